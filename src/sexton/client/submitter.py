"""Sends requests to the database: over Sexton's own pool, or in the caller's transaction on the caller's connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Protocol
from uuid import UUID

from sexton.clock import Clock
from sexton.domain.job import BATCH_LIMIT, Submission
from sexton.errors import Contention, InvalidSubmission, KeyBusy, SextonError
from sexton.settings import Settings
from sexton.store.database import Database, Postgres
from sexton.store.postgres import caller_connection
from sexton.store.work import jobs, runs

from .background import Background
from .error_translation import submission_faults
from .pools import Pools
from .request import Request
from .results import Results, Submitted
from .throttle import Throttle

PART = 1_000  # jobs per part of a large submission; a part is sent while the next one is made
FEW = 100
DUE_SOON_S = 3.0  # the database notifies schedulers of jobs that are due sooner than this


class Way(Protocol):
    """Takes requests instead of the database, in a test."""

    async def submit(self, requests: Sequence[Request], connection: object | None = None) -> list[Submitted]: ...

    def submit_sync(self, requests: Sequence[Request], connection: object | None = None) -> list[Submitted]: ...


class Submitter:
    def __init__(
        self, pools: Pools, background: Background, results: Results, settings: Callable[[], Settings], clock: Clock
    ) -> None:
        self._pools, self._background, self._results = pools, background, results
        self._settings, self._clock = settings, clock
        self._throttle = Throttle(clock)
        self.stand_in: Way | None = None

    async def submit(self, requests: Iterable[Request], connection: object | None = None) -> list[Submitted]:
        """All of them or none."""
        if connection is None and self.stand_in is None:
            left = iter(requests)
            first = list(islice(left, PART))
            with submission_faults():
                if len(first) == PART:
                    return await self._in_parts(first, left)
                return await self._over_own_pool(first) if first else []
        requests = list(requests)
        if not requests:
            return []
        if self.stand_in is not None:
            return await self.stand_in.submit(requests, connection)
        with submission_faults():
            return self._answers(await caller_connection.run(connection, jobs.SUBMIT, *self._arguments(requests)))

    def submit_sync(self, requests: Sequence[Request], connection: object | None = None) -> list[Submitted]:
        if not requests:
            return []
        if self.stand_in is not None:
            return self.stand_in.submit_sync(requests, connection)
        if connection is None:
            return self._background.run(self.submit(requests))
        with submission_faults():
            return self._answers(caller_connection.run_sync(connection, jobs.SUBMIT, *self._arguments(requests)))

    async def _over_own_pool(self, requests: Sequence[Request]) -> list[Submitted]:
        database = await self._pools.here()
        started_at = self._throttle.now()
        is_covered = _is_only_ready_work(requests) and self._throttle.covers(_queues(requests))
        notify = self._settings().notify
        try:
            answers = await self._send(database, requests, notify=notify and not is_covered)
        except (KeyBusy, Contention):  # rule "a waiting caller leaves the group": not on a connection that the others need
            async with (await self._pools.waiting_pool_here()).taken() as waiting:
                answers = await self._send(waiting, requests, notify=notify and not is_covered)
        if notify:
            created = [request for request, (_, is_new) in zip(requests, answers, strict=True) if is_new]
            if not is_covered:
                self._throttle.notified(_queues(created), started_at)
            else:
                await self._notify_if_late(database, _queues(created))
        return self._answers(answers)

    async def _send(self, database: Database, requests: Sequence[Request], *, notify: bool) -> list[jobs.Submitted]:
        submissions, now = [request.submission for request in requests], self._clock.database_now()
        async with database.connection() as connection:
            return await jobs.submit(connection, submissions, notify=notify, now=now)

    async def _in_parts(self, first: list[Request], left: Iterator[Request]) -> list[Submitted]:
        """In one transaction. While the database works on one part, the next is made and the results of the last are read."""
        database, notify, now = await self._pools.here(), self._settings().notify, self._clock.database_now()
        documents: str | None = _encoded(first)
        rows: list[jobs.Submitted] = []
        answers: list[Submitted] = []
        async with database.transaction(patient=True) as connection:
            while documents is not None:
                sending = asyncio.ensure_future(jobs.submit_documents(connection, documents, notify=notify, now=now))
                try:
                    await asyncio.sleep(0)
                    answers += self._answers(rows)
                    documents = await _next_part(left)
                finally:  # the part in progress comes first, even if the next one could not be made
                    await asyncio.wait([sending])
                rows = sending.result()
        return answers + self._answers(rows)

    async def _notify_if_late(self, database: Postgres, queues: set[str]) -> None:
        if queues and not self._throttle.covers(queues):
            started_at = self._throttle.now()
            with suppress(SextonError):  # the jobs are committed, and a wake-up is only a hint
                async with database.connection() as connection:
                    await runs.announce(connection, queues)
                self._throttle.notified(queues, started_at)

    def _arguments(self, requests: Sequence[Request]) -> tuple[Any, ...]:
        """Of the single statement on the caller's connection. Splitting it would need a transaction, and the caller may have
        none. It always notifies: PostgreSQL sends the notification with the caller's commit."""
        if len(requests) > BATCH_LIMIT:
            raise InvalidSubmission(
                "",
                f"{len(requests):,} jobs in one call; the limit on your own connection is {BATCH_LIMIT:,}; "
                "submit them in several calls inside your transaction",
            )
        return _encoded(requests), self._settings().notify, self._clock.database_now()

    def _answers(self, rows: Sequence[tuple[Any, ...]]) -> list[Submitted]:
        return [
            Submitted(job_id if isinstance(job_id, UUID) else UUID(job_id), is_new, self._results) for job_id, is_new in rows
        ]


async def _next_part(left: Iterator[Request]) -> str | None:
    """A few at a time, so that the event loop can send the previous part meanwhile."""
    part: list[Request] = []
    while len(part) < PART and (some := list(islice(left, FEW))):
        part += some
        await asyncio.sleep(0)
    return _encoded(part) if part else None


def _encoded(requests: Sequence[Request]) -> str:
    return jobs.encode_submissions([request.submission for request in requests])


def _is_ready(submission: Submission) -> bool:
    return submission.run_at is None and submission.delay_s is None


def _is_only_ready_work(requests: Sequence[Request]) -> bool:
    """Whether a worker's second claim finds all these jobs without a notification. It does not if a queue is unknown here, or
    if a job is due so soon that a scheduler must be notified."""
    return all(
        (request.queue is not None and _is_ready(request.submission))
        or (request.submission.run_at is None and (request.submission.delay_s or 0.0) >= DUE_SOON_S)
        for request in requests
    )


def _queues(requests: Sequence[Request]) -> set[str]:
    return {request.queue for request in requests if request.queue is not None and _is_ready(request.submission)}
