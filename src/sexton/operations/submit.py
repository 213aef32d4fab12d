"""Submits jobs of either kind, each batch in one transaction. `sexton.submit_jobs` decides about one-time jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sexton.domain.job import Submission
from sexton.domain.schedule.document import ScheduleDocument
from sexton.operations.recurring import recurring_jobs
from sexton.store.database import Connection
from sexton.store.work import jobs
from sexton.store.work.jobs import JobView, Submitted, Tried

from .caller import Caller

Document = Submission | ScheduleDocument


async def submit(
    connection: Connection, caller: Caller, documents: Sequence[Document], *, notify: bool = True, now: datetime | None = None
) -> list[Submitted]:
    """In the order given, for both kinds."""
    once = {index: one for index, one in enumerate(documents) if isinstance(one, Submission)}
    again = {index: one for index, one in enumerate(documents) if isinstance(one, ScheduleDocument)}
    stored: dict[int, Submitted] = {}
    if once:
        submitted = await jobs.submit(connection, list(once.values()), notify=notify, now=now)
        stored |= zip(once, submitted, strict=True)
    written = await recurring_jobs.submit_many(connection, caller, list(again.values()), now=now)
    stored |= zip(again, (Submitted(one.id, one.created) for one in written), strict=True)
    return [stored[index] for index in range(len(documents))]


async def submit_and_show(
    connection: Connection, caller: Caller, submissions: Sequence[Submission], *, notify: bool, now: datetime | None = None
) -> list[tuple[Submitted, JobView | None]]:
    """One-time jobs in one round trip, with the view of each new job."""
    return await jobs.submit_and_show(connection, submissions, notify=notify, now=now)


async def submit_each(
    connection: Connection, caller: Caller, submissions: Sequence[Submission], *, notify: bool, now: datetime | None = None
) -> list[Tried]:
    """One-time jobs, each by itself in one round trip. Those that would have to wait for another transaction are not submitted
    (rule "a waiting caller leaves the group")."""
    return await jobs.submit_each(connection, submissions, notify=notify, now=now)
