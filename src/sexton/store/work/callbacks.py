"""Runs that are ended over HTTP: by a target that was called and continues by itself, or by a worker in another language.

The token of the claim is the fence, for every holder of the run: a token is never used twice, and a hand-over keeps it.
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

HOLDER = UUID("ca11bac5-0000-4000-8000-000000000000")  # worker id of runs that were handed over; sexton.callbacks() in SQL


class Heard(NamedTuple):
    """The answer to a heartbeat of a run."""

    cancel_requested: bool
    ends_at: datetime | None  # a sweeper ends it then


class HeldLease(NamedTuple):
    """A run that is about to be ended: its lease at its claim, and the other values that a report needs."""

    lease: Lease
    held_s: float
    lag_s: float  # claim minus due
    task: str
    key: str | None
    cancel_requested: bool


class Recorded(NamedTuple):
    execution_id: UUID
    status: str
    state: str | None  # the current state of the run; null: it has ended


async def key(connection: Connection) -> bytes:
    """The key that signs leases. It stays the same as long as this database exists."""
    (row,) = await connection.fetch(_SQL["key"])
    return bytes(row["key"])


async def hand_over(
    connection: Connection, worker_id: UUID, leases: Sequence[tuple[UUID, int]], *, now: datetime | None = None
) -> set[UUID]:
    """Returns those of these runs (with their tokens) that this worker held until now and no longer holds."""
    runs, tokens = [run_id for run_id, _ in leases], [token for _, token in leases]
    return {row["id"] for row in await connection.fetch(_SQL["hand_over"], now, worker_id, runs, tokens)}


async def still_held(connection: Connection, worker_id: UUID, leases: Sequence[tuple[UUID, int]]) -> set[UUID]:
    """Those of these runs that did not leave because another transaction has locked them."""
    runs, tokens = [run_id for run_id, _ in leases], [token for _, token in leases]
    return {row["id"] for row in await connection.fetch(_SQL["still_held"], worker_id, runs, tokens)}


async def hear(
    connection: Connection,
    lease: SignedLease,
    *,
    progress: msgspec.Raw | None = None,
    output: str | None = None,
    now: datetime | None = None,
) -> Heard | None:
    """`None`: the lease is lost."""
    given = None if progress is None else bytes(progress).decode()
    rows = await connection.fetch(_SQL["hear"], now, lease.run_id, lease.token, given, output)
    return Heard(*rows[0]) if rows else None


async def leases(
    connection: Connection, signed: Sequence[SignedLease], *, now: datetime | None = None
) -> dict[UUID, HeldLease]:
    """By run, those whose lease is still valid."""
    runs, tokens = [one.run_id for one in signed], [one.token for one in signed]
    rows = [tuple(row) for row in await connection.fetch(_SQL["leases"], now, runs, tokens)]
    return {row[0]: HeldLease(Lease(*row[:13]), *row[13:]) for row in rows}


async def recorded(connection: Connection, lease: SignedLease) -> Recorded | None:
    """The history row of the attempt under this lease; `None`: there is none, and there never will be."""
    rows = await connection.fetch(_SQL["recorded"], lease.run_id, lease.job_id, lease.token, hour_before(lease.run_id))
    return Recorded(*rows[0]) if rows else None
