"""Finds jobs and executions, newest first, page by page, at a cost that does not grow with their number.

One index drives each search, chosen here. The other filters apply to the rows that it finds, and a page reads a bounded number
of those. Each step is a separate statement, so a job that changes meanwhile is filtered by the state in which it is shown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from sexton.errors import NotFound
from sexton.store.database import Connection
from sexton.store.sql import statements
from sexton.store.uuid7 import RECURRING, floor, is_recurring
from sexton.store.work import jobs
from sexton.store.work.jobs import Execution, JobView

T = TypeVar("T")

EXAMINED_LIMIT = 2_000  # rows read per page, for any filters: 20 to 50 µs each with a cold cache
CHUNK = 1_000
PAGE_BYTES = 8 * 2**20  # of payloads or results; a page with larger ones ends early, because 500 of them would be 128 MiB
_SHOWN = 50  # looked up at once

_SQL = statements(__name__)
_LOWEST, _HIGHEST = UUID(int=0), UUID(int=2**128 - 1)
_BATCH_SPREAD = timedelta(seconds=1)  # the ids of one batch are up to 10 ms later than the instant of its submission


class WorkFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A null field matches all. `…_from` is included, `…_until` is not."""

    status: str | None = None
    task: str | None = None
    tenant: str | None = None
    queue: str | None = None


class JobFilter(WorkFilter, frozen=True, kw_only=True):
    """Which jobs."""

    name: str | None = None
    tag: str | None = None
    submitted_from: datetime | None = None
    submitted_until: datetime | None = None
    kind: str | None = None  # once or recurring; the id shows it, so it costs nothing

    @property
    def sifted_by(self) -> tuple[Any, ...]:
        """In the order of the statement's parameters."""
        work = (self.name, self.tag, self.tenant, self.queue, self.task)
        return (self.status, *work, self.submitted_from, self.submitted_until)


class ExecutionFilter(WorkFilter, frozen=True, kw_only=True):
    """Which executions. `started_from` and `started_until` exclude those that never started."""

    job_id: UUID | None = None
    started_from: datetime | None = None
    started_until: datetime | None = None

    @property
    def sifted_by(self) -> tuple[Any, ...]:
        """In the order of the statements' parameters."""
        return (self.status, self.task, self.tenant, self.queue, self.started_from, self.started_until)


class Found(msgspec.Struct, Generic[T], frozen=True):
    """A page. With a `next_before` there may be more, even if this page is short or empty."""

    rows: Sequence[T]
    next_before: UUID | None


async def find_jobs(connection: Connection, chosen: JobFilter, *, before: UUID | None = None, limit: int) -> Found[JobView]:
    """Newest first, strictly before the given id. Both kinds are in one order, that of their submission."""
    kinds = [kind for kind in ("recurring", "once") if chosen.kind in (None, kind)]
    found = [await _find_kind(connection, chosen, kind, _below(before, kind), limit) for kind in kinds]
    ids, next_before = _merged(found, limit)
    page = await _page(ids, next_before, lambda part: jobs.show_many(connection, part), lambda job: len(job.payload_json))
    return Found([job for job in page.rows if chosen.status in (None, job.status)], page.next_before)


def _age(job_id: UUID) -> tuple[int, bool]:
    """The order of jobs of both kinds: their ids without the bit that marks a recurring one are in the order of submission."""
    return job_id.int & ~RECURRING.int, is_recurring(job_id)


def _below(before: UUID | None, kind: str) -> UUID:
    """The ids of a kind that come after a job of either kind are below this one."""
    if before is None or before == RECURRING:  # where recurring jobs ended, in cursors of the last release
        return _HIGHEST if kind == "recurring" else RECURRING
    time, was_recurring = _age(before)
    return UUID(int=time | RECURRING.int) if kind == "recurring" else UUID(int=time + was_recurring)


def _merged(found: Sequence[tuple[list[UUID], UUID | None]], limit: int) -> tuple[list[UUID], UUID | None]:
    """One page of two. A kind that has more was examined down to an id; the page ends there at the latest."""
    reached = max((more for _, more in found if more is not None), key=_age, default=None)
    ids = sorted((job_id for part, _ in found for job_id in part), key=_age, reverse=True)
    if reached is not None:
        ids = [job_id for job_id in ids if _age(job_id) >= _age(reached)]
    return (ids[:limit], ids[limit - 1]) if len(ids) > limit else (ids, reached)


async def _find_kind(
    connection: Connection, chosen: JobFilter, kind: str, before: UUID, limit: int
) -> tuple[list[UUID], UUID | None]:
    driver, key, left = _driver(chosen, by_status=kind == "once")
    left = msgspec.structs.replace(left, kind=None)
    shift = RECURRING.int if kind == "recurring" else 0
    lowest, highest = UUID(int=shift), before
    if chosen.submitted_from is not None:
        lowest = UUID(int=floor(chosen.submitted_from).int | shift)
    if chosen.submitted_until is not None:
        highest = min(highest, UUID(int=floor(chosen.submitted_until + _BATCH_SPREAD).int | shift))

    async def drive(highest: UUID, at_most: int) -> list[UUID]:
        return [row["id"] for row in await connection.fetch(driver.statement, lowest, highest, at_most, *key)]

    async def sift(ids: Sequence[UUID], at_most: int) -> list[UUID]:
        rows = await connection.fetch(_SQL["wanted_jobs"], ids, at_most, *left.sifted_by)
        return [row["id"] for row in rows]

    return await _walk(drive, None if left == JobFilter() else sift, highest, limit)


async def find_executions(
    connection: Connection, chosen: ExecutionFilter, *, before: UUID | None = None, limit: int
) -> Found[Execution]:
    """Newest first, strictly before the given id. With status `running`, those that run now, which have no id yet: their pages
    go by `run_id`. Otherwise only ended ones."""
    if chosen.status == "running":
        return await _find_running(connection, chosen, before or _HIGHEST, limit)
    lowest = _LOWEST if chosen.job_id is None else jobs.oldest_execution(chosen.job_id)
    if chosen.started_from is not None:
        lowest = max(lowest, floor(chosen.started_from))  # an id is created when its attempt has ended
    left = chosen.sifted_by

    async def drive(highest: UUID, at_most: int) -> list[UUID]:
        if chosen.job_id is None:
            rows = await connection.fetch(_SQL["newest_executions"], lowest, highest, at_most)
        else:
            rows = await connection.fetch(_SQL["executions_of_job"], lowest, highest, at_most, chosen.job_id)
        return [row["id"] for row in rows]

    async def sift(ids: Sequence[UUID], at_most: int) -> list[UUID]:
        return [row["id"] for row in await connection.fetch(_SQL["wanted_executions"], ids, at_most, *left)]

    ids, next_before = await _walk(drive, sift if any(left) else None, before or _HIGHEST, limit)
    return await _page(ids, next_before, lambda part: jobs.tries(connection, part), _size)


async def _page(
    ids: Sequence[UUID],
    next_before: UUID | None,
    show: Callable[[Sequence[UUID]], Awaitable[list[T]]],
    size: Callable[[T], int],
) -> Found[T]:
    """The rows of these ids, in portions, as far as a page may hold them."""
    rows: list[T] = []
    left_bytes = PAGE_BYTES
    for start in range(0, len(ids), _SHOWN):
        part = ids[start : start + _SHOWN]
        rows += (shown := await show(part))
        left_bytes -= sum(map(size, shown))
        if left_bytes < 0 and start + _SHOWN < len(ids):
            return Found(rows, part[-1])
    return Found(rows, next_before)


def _size(one: Execution) -> int:
    return len(one.result_json or "") + len(one.output or "")


async def execution(connection: Connection, execution_id: UUID) -> Execution:
    """An ended execution, with its output."""
    found = await jobs.tries(connection, [execution_id])
    if not found:
        raise NotFound(f"there is no execution {execution_id}")
    return found[0]


class _Driver(NamedTuple):
    field: str
    values: Collection[str] | None  # None: any
    statement: str
    is_keyed: bool = True  # the statement takes the value
    is_exact: bool = True  # every row that it finds has the value


# The first that matches: the index that leaves the fewest rows to read, as far as the filter alone can tell.
_DRIVERS = (
    _Driver("status", {"running"}, _SQL["running"], is_keyed=False),
    _Driver("status", {"paused"}, _SQL["paused"], is_keyed=False),
    _Driver("status", {"failed", "cancelled"}, _SQL["not_completed"]),
    _Driver("name", None, _SQL["by_name"]),
    _Driver("tag", None, _SQL["by_tag"]),
    _Driver("status", {"pending"}, _SQL["live"], is_keyed=False, is_exact=False),
    _Driver("tenant", None, _SQL["by_tenant"]),
    _Driver("task", None, _SQL["by_task"]),
    _Driver("queue", None, _SQL["by_queue"]),
    _Driver("status", {"completed"}, _SQL["completed"], is_keyed=False, is_exact=False),
)
_NEWEST = _Driver("status", None, _SQL["newest"], is_keyed=False, is_exact=False)


def _driver(chosen: JobFilter, *, by_status: bool) -> tuple[_Driver, list[str], JobFilter]:
    """The statement, its value if it takes one, and the remaining filters. The status of a one-time job is in its run or its
    ending, which are indexed; that of a recurring one has to be looked up."""
    for driver in _DRIVERS:
        if driver.field == "status" and not by_status:
            continue
        value = getattr(chosen, driver.field)
        if value is not None and (driver.values is None or value in driver.values):
            left = msgspec.structs.replace(chosen, **{driver.field: None}) if driver.is_exact else chosen
            return driver, [value] if driver.is_keyed else [], left
    return _NEWEST, [], chosen


async def _walk(
    drive: Callable[[UUID, int], Awaitable[list[UUID]]],
    sift: Callable[[Sequence[UUID], int], Awaitable[list[UUID]]] | None,
    highest: UUID,
    limit: int,
) -> tuple[list[UUID], UUID | None]:
    """The ids of a page, and where to continue. Reads more rows than a page only if filters drop some."""
    if sift is None:
        kept = await drive(highest, limit + 1)
        return kept[:limit], kept[limit - 1] if len(kept) > limit else None
    kept = []
    examined_count, size = 0, min(2 * (limit + 1), CHUNK)  # most pending or completed jobs match
    while examined_count < EXAMINED_LIMIT:
        ids = await drive(highest, size)
        kept += await sift(ids, limit + 1 - len(kept)) if ids else []
        if len(kept) > limit:
            return kept[:limit], kept[limit - 1]
        if len(ids) < size:
            return kept, None
        highest = ids[-1]
        examined_count, size = examined_count + size, CHUNK
    return kept, highest


async def _find_running(connection: Connection, chosen: ExecutionFilter, highest: UUID, limit: int) -> Found[Execution]:
    _status, *others = chosen.sifted_by
    rows = await connection.fetch(_SQL["running_executions"], _LOWEST, highest, limit + 1, chosen.job_id, *others)
    found = [Execution(*row) for row in rows]
    return Found(found[:limit], found[limit - 1].run_id if len(found) > limit else None)
