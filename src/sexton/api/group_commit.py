"""Group commit: single submissions that arrive during a transaction share the next one.

Each is answered only after its commit. An idle API adds no wait; under load one commit carries hundreds. If a group fails
because of one caller's data, the submissions that the error names go alone and the others go together once more; if it names
none, each goes alone. So one bad job harms no other, and a tenant over its limit does not slow down the others. A submission
that has to wait for another transaction leaves the group (rule "a waiting caller leaves the group").
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

from sexton.clock import Clock
from sexton.domain.job import Submission
from sexton.errors import Contention, DataRefused, InvalidSubmission, KeyBusy, KeyReused, LimitExceeded
from sexton.operations.caller import Caller
from sexton.operations.submit import submit_and_show, submit_each
from sexton.store.database import Connection, Database
from sexton.store.postgres.waiting_pool import WaitingPool
from sexton.store.work import jobs
from sexton.wire import Fault

from .answers.problems import Refused
from .lock_waiters import LockWaiters, Stored, Waiting, fail, tell
from .state import ACTOR

GROUP = Caller(ACTOR)  # for all submissions that share a transaction; each of them carries its own submitter
GROUP_LIMIT = 500
WAITING_LIMIT = 10_000  # jobs; more than this is seconds of work, so the caller is rejected
_ALONE_LIMIT = 2  # transactions at once for the jobs of a failed group
_TOGETHER_LIMIT = 4  # tries of a group that becomes smaller; then each job is submitted alone
# What one job may do to the others of its group.
_OF_ONE = (KeyReused, DataRefused, LimitExceeded, InvalidSubmission)


class GroupCommit:
    def __init__(self, database: Database, clock: Clock, *, notify: bool, waiting_pool: WaitingPool | None = None) -> None:
        self._database, self._clock, self._notify = database, clock, notify
        self._lock_waiters = LockWaiters(waiting_pool or WaitingPool(database), self._store, clock)
        self._waiting: deque[Waiting] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._alone: set[asyncio.Task[None]] = set()
        self._few = asyncio.Semaphore(_ALONE_LIMIT)

    async def submit(self, submission: Submission) -> Stored:
        """Returns once the job is durable. A caller that stops waiting before its turn has submitted nothing."""
        if len(self._waiting) + len(self._lock_waiters) >= WAITING_LIMIT:
            raise Refused(
                "overloaded",
                f"{WAITING_LIMIT:,} submissions are already waiting; try again shortly",
                headers={"Retry-After": "1"},
            )
        answer: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        busy = self._lock_waiters.busy(submission)
        if busy is not None:
            self._lock_waiters.join(busy, Waiting(submission, answer))
            return await answer
        self._waiting.append(Waiting(submission, answer))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send(), name="api group commit")
        return await answer

    async def close(self) -> None:
        """Makes sure that every submission taken is answered."""
        if self._sender is not None:
            await asyncio.gather(self._sender, return_exceptions=True)
        await asyncio.gather(*self._alone, return_exceptions=True)
        await self._lock_waiters.close()

    async def _send(self) -> None:
        while self._waiting:
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), GROUP_LIMIT))]
            group = [one for one in taken if not one.answer.done()]
            if group:
                await self._together(group)

    async def _together(self, group: Sequence[Waiting]) -> None:
        for _ in range(_TOGETHER_LIMIT if len(group) > 1 else 1):
            try:
                answers = await self._store(self._database, [one.submission for one in group])
            except (KeyBusy, Contention) as error:
                await self._divide(group, error)
                return
            except _OF_ONE as error:
                if len(group) == 1:
                    fail(group, error)
                    return
                suspects, group = _divided(group, error)
                self._send_alone(suspects)
                if not group:
                    return
            except BaseException as error:
                fail(group, error)
                if not isinstance(error, Exception):
                    raise
                return
            else:
                tell(group, answers)
                return
        self._send_alone(group)

    async def _divide(self, group: Sequence[Waiting], error: KeyBusy | Contention) -> None:
        """Rule "a waiting caller leaves the group": each by itself, in one round trip that waits for none of them. Those that
        have to wait go to the lock waiters."""
        if len(group) == 1:
            self._lock_waiters.add("key" if isinstance(error, KeyBusy) else error.waits_for or "other", group[0])
            return
        try:
            async with self._database.connection() as connection:
                tried = await submit_each(
                    connection, GROUP, [one.submission for one in group], notify=self._notify, now=self._clock.database_now()
                )
        except Exception as failure:
            fail(group, failure)
            return
        stored: list[tuple[Waiting, jobs.Submitted]] = []
        for one, (job_id, created, waits_for) in zip(group, tried, strict=True):
            if job_id is not None:
                stored.append((one, jobs.Submitted(job_id, bool(created))))
            elif waits_for is not None:
                self._lock_waiters.add(waits_for, one)
            else:
                self._send_alone([one])
        tell([one for one, _ in stored], await self._shown([submitted for _, submitted in stored], {}))

    def _send_alone(self, group: Sequence[Waiting]) -> None:
        for one in group:
            task = asyncio.create_task(self._by_itself(one))
            self._alone.add(task)
            task.add_done_callback(self._alone.discard)

    async def _by_itself(self, one: Waiting) -> None:
        async with self._few:
            if not one.answer.done():
                await self._together([one])

    async def _store(
        self, database: Database, submissions: Sequence[Submission], wait_s: float | None = None
    ) -> list[Stored | Exception]:
        """One round trip, which is a transaction by itself. With `wait_s` that is the time for locks, instead of what is set
        for the connection."""
        async with database.connection() if wait_s is None else _waiting_for(database, wait_s) as connection:
            answers = await submit_and_show(connection, GROUP, submissions, notify=self._notify, now=self._clock.database_now())
        return await self._shown([one for one, _ in answers], {job.id: job for _, job in answers if job is not None})

    async def _shown(self, submitted: Collection[jobs.Submitted], found: dict[UUID, jobs.JobView]) -> list[Stored | Exception]:
        """`found` are the views that are known already."""
        old = await self._look_up({one.id for one in submitted} - found.keys())
        if not isinstance(old, Exception):
            found |= old
        missing = old if isinstance(old, Exception) else _forgotten()
        return [Stored(found[one.id], one.created) if one.id in found else missing for one in submitted]

    async def _look_up(self, job_ids: Collection[UUID]) -> dict[UUID, jobs.JobView] | Exception:
        """Jobs that already existed. A failure here concerns only their callers: the new jobs are already durable."""
        if not job_ids:
            return {}
        try:
            async with self._database.connection() as connection:
                return {job.id: job for job in await jobs.show_many(connection, list(job_ids))}
        except Exception as error:
            return error


@asynccontextmanager
async def _waiting_for(database: Database, wait_s: float) -> AsyncIterator[Connection]:
    async with database.transaction() as connection:
        await connection.execute(f"SET LOCAL sexton.submit_wait = '{wait_s * 1000:.0f}ms'")
        yield connection


def _divided(group: Sequence[Waiting], error: Exception) -> tuple[list[Waiting], list[Waiting]]:
    """The submissions that may have caused the error, and the others. If the error names none, each may have caused it."""

    def is_named(one: Waiting) -> bool:
        match error:
            case LimitExceeded():
                return (one.submission.tenant or "default") == error.tenant
            case KeyReused():
                return one.submission.key is not None and f'"{one.submission.key}"' in str(error)
            case _:
                return False

    named = [one for one in group if is_named(one)]
    return (named, [one for one in group if not is_named(one)]) if named else (list(group), [])


def _forgotten() -> Refused:
    """A key may outlive the history of its job."""
    detail = "the job of this key is no longer stored; it was submitted once, so use a new key to submit it again"
    return Refused("conflict", detail, [Fault(pointer="/idempotency_key", detail=detail)])
