"""Subscriptions, and the log of what was delivered for them.

The events themselves come from a trigger on the history (`sexton.raise_events`). Deliveries are ordinary jobs, found by their
name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.domain.job import Submission
from sexton.domain.run import Lease
from sexton.domain.subscription import Delivers, Kind, Subscription, job_name
from sexton.store.database import Connection, Row
from sexton.store.sql import statements
from sexton.store.views import search
from sexton.store.views.search import Found, JobFilter

from .jobs import Execution, JobView

_SQL = statements(__name__)
_ANSWERED = re.compile(r"\banswered (\d{3})\b")
_submission = msgspec.json.Decoder(Submission).decode
_encode = msgspec.json.Encoder().encode


class Known(msgspec.Struct, frozen=True):
    """A subscription and its settings."""

    name: str
    kinds: list[Kind]
    tenant: str | None
    queue: str | None
    job_id: UUID | None
    delivery: Submission
    paused_at: datetime | None
    created_at: datetime
    updated_at: datetime


class Delivery(NamedTuple):
    """The delivery of one event to one subscriber; `event_json` as it is sent."""

    job: JobView
    delivers: Delivers
    event_json: str
    response_status: int | None  # of the last answer


class Undelivered(NamedTuple):
    job_ids: list[UUID]
    looked_until: UUID | None  # None: there are no more


class Reopened(NamedTuple):
    job_id: UUID
    queue: str


class Held(NamedTuple):
    submitted_count: int
    refused_count: int


async def get(connection: Connection, name: str) -> Known | None:
    rows = await connection.fetch(_SQL["get"], name)
    return _known(rows[0]) if rows else None


async def find(connection: Connection, *, after: str = "", limit: int = 100) -> list[Known]:
    """By name."""
    return [_known(row) for row in await connection.fetch(_SQL["list"], after, limit)]


async def put(connection: Connection, given: Subscription, *, now: datetime | None = None) -> bool:
    """Creates it, or replaces it for future events; deliveries that already exist do not change. True: it is new."""
    document = _encode(given.delivery).decode()
    whose = given.runs
    (row,) = await connection.fetch(
        _SQL["put"], now, given.name, given.kinds, whose.tenant, whose.queue, whose.job_id, document, given.paused
    )
    return bool(row["is_new"])


async def pause(connection: Connection, name: str, *, now: datetime | None = None) -> bool:
    """Creates no further events for it until it is put again. False: it does not exist."""
    return "\x00" not in name and bool(await connection.fetch(_SQL["pause"], now, name))


async def remove(connection: Connection, name: str) -> bool:
    """Creates no further events for it. False: it does not exist."""
    return bool(await connection.fetch(_SQL["remove"], name))


async def deliveries(
    connection: Connection, name: str, chosen: JobFilter, *, before: UUID | None = None, limit: int
) -> Found[Delivery]:
    """The log, newest first. Of the filter, only status and time apply."""
    wanted = msgspec.structs.replace(chosen, name=job_name(name), kind="once")
    page = await search.find_jobs(connection, wanted, before=before, limit=limit)
    return Found([one for view in page.rows if (one := _delivery(view, name)) is not None], page.next_before)


async def undelivered(connection: Connection, name: str, *, before: UUID | None = None, limit: int) -> Undelivered:
    """Those among the next `limit` deliveries that have not ended."""
    rows = await connection.fetch(_SQL["undelivered"], job_name(name), before or UUID(int=2**127), limit)
    looked_until = rows[-1]["id"] if len(rows) == limit else None
    return Undelivered([row["id"] for row in rows if row["is_live"]], looked_until)


async def leases(connection: Connection, job_ids: Sequence[UUID]) -> list[Lease]:
    """The live runs of these deliveries."""
    return [Lease(*row) for row in await connection.fetch(_SQL["leases"], job_ids)]


async def retarget(connection: Connection, name: str, job_ids: Sequence[UUID]) -> list[UUID]:
    """Points ended deliveries of this subscription to its current URL. Returns those that belong to it."""
    return [row["id"] for row in await connection.fetch(_SQL["retarget"], job_ids, name)]


async def letters(connection: Connection, job_ids: Sequence[UUID]) -> list[UUID]:
    """Their dead letters."""
    return [row["id"] for row in await connection.fetch(_SQL["letters"], job_ids)]


async def reopen(connection: Connection, job_ids: Sequence[UUID], *, now: datetime | None = None) -> list[Reopened]:
    """A new run for each ended delivery."""
    return [Reopened(row["job_id"], row["queue"]) for row in await connection.fetch(_SQL["reopen"], now, job_ids)]


async def submit_held(connection: Connection, *, limit: int, now: datetime | None = None) -> Held:
    """Submits deliveries that could not be submitted when their run ended."""
    (row,) = await connection.fetch(_SQL["submit_held"], now, limit)
    return Held(*row)


def _known(row: Row) -> Known:
    name, kinds, tenant, queue, job_id, delivery, *times = row
    return Known(name, kinds, tenant, queue, job_id, _submission(delivery), *times)


class _Policy(msgspec.Struct):
    delivers: Delivers | None = None


_policy = msgspec.json.Decoder(_Policy).decode


def delivers(view: JobView, name: str) -> Delivers | None:
    """The event that the job delivers for this subscription. Any job may have such a name; only a delivery has the policy of
    one."""
    found = None if view.policy_json is None else _policy(view.policy_json).delivers
    return found if found is not None and found.subscription == name else None


def _delivery(view: JobView, name: str) -> Delivery | None:
    found = delivers(view, name)
    return None if found is None else Delivery(view, found, view.payload_json, _response_status(view.last_execution))


class _Answered(msgspec.Struct):
    status: int | None = None


def _response_status(last: Execution | None) -> int | None:
    """As the HTTP handler reports it: in its result, or in the message of its error."""
    if last is None:
        return None
    if last.result_json is not None:
        try:
            return msgspec.json.decode(last.result_json, type=_Answered).status
        except msgspec.MsgspecError:
            return None
    found = _ANSWERED.search(last.error.message) if last.error is not None else None
    return int(found[1]) if found else None
