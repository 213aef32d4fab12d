"""Runs that somebody ends over HTTP: a target that was called and goes on by itself, or a worker in another language.

The token of the claim is the fence, whoever holds the run: it never comes twice, and a hand-over keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.domain.run import Lease
from sexton.domain.signed_lease import SignedLease
from sexton.store.database import Connection
from sexton.store.sql import statements
from sexton.store.uuid7 import hour_before

_SQL = statements(__name__)

HOLDER = UUID("ca11bac5-0000-4000-8000-000000000000")  # of what was handed over; sexton.callbacks() in SQL


class Heard(NamedTuple):
    """What a run's sign of life brings back."""

    cancel_requested: bool
    ends_at: datetime | None  # a sweeper ends it then


class Told(NamedTuple):
    """A run that is about to be ended: its lease as at its claim, and what else a report says of it."""

    lease: Lease
    held_s: float
    lag_s: float  # claim minus due
    task: str
    key: str | None
    cancel_requested: bool


class Recorded(NamedTuple):
    execution_id: UUID
    status: str
    state: str | None  # of the run now; null: it has ended


async def key(connection: Connection) -> bytes:
    """What leases are signed with, the same for the whole life of this database."""
    (row,) = await connection.fetch(_SQL["key"])
    return bytes(row["key"])


async def hand_over(
    connection: Connection, worker_id: UUID, leases: Sequence[tuple[UUID, int]], *, now: datetime | None = None
) -> set[UUID]:
    """Of these runs (and their tokens), those that were still this worker's and are its no more."""
    runs, tokens = [run_id for run_id, _ in leases], [token for _, token in leases]
    return {row["id"] for row in await connection.fetch(_SQL["hand_over"], now, worker_id, runs, tokens)}


async def hear(
    connection: Connection,
    lease: SignedLease,
    *,
    progress: msgspec.Raw | None = None,
    output: str | None = None,
    now: datetime | None = None,
) -> Heard | None:
    """`None`: the lease is gone."""
    given = None if progress is None else bytes(progress).decode()
    rows = await connection.fetch(_SQL["hear"], now, lease.run_id, lease.token, given, output)
    return Heard(*rows[0]) if rows else None


async def leases(connection: Connection, signed: Sequence[SignedLease], *, now: datetime | None = None) -> dict[UUID, Told]:
    """By run, those that still stand."""
    runs, tokens = [one.run_id for one in signed], [one.token for one in signed]
    rows = [tuple(row) for row in await connection.fetch(_SQL["leases"], now, runs, tokens)]
    return {row[0]: Told(Lease(*row[:13]), *row[13:]) for row in rows}


async def recorded(connection: Connection, lease: SignedLease) -> Recorded | None:
    """What history has of the try under this lease; `None`: nothing, and never will."""
    rows = await connection.fetch(_SQL["recorded"], lease.run_id, lease.job_id, lease.token, hour_before(lease.run_id))
    return Recorded(*rows[0]) if rows else None
