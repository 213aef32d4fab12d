"""Submissions that have to wait for another transaction (rule "a waiting caller leaves the group").

Those that wait for the same key or row form one line, and one connection serves the line. What was busy is remembered for some
seconds: submissions that need it come here at once, and no group meets the lock again. Each caller has one deadline, from when
it joined its line: the wait for a connection and the wait for the lock both count.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple

from sexton.clock import Clock
from sexton.domain.job import Submission
from sexton.errors import Contention, KeyBusy, SextonError
from sexton.store.database import SUBMIT_LOCK_TIMEOUT_S, Database
from sexton.store.postgres import waiting_pool
from sexton.store.postgres.waiting_pool import WAITING_POOL_SIZE, WaitingPool
from sexton.store.work.jobs import JobView
from sexton.wire import Fault

from .answers.problems import Refused
from .busy_resources import BusyResources, LockedResource

WAIT_S_MIN = 0.1  # callers with less time left are answered together


class Stored(NamedTuple):
    job: JobView
    created: bool


class Waiting(NamedTuple):
    submission: Submission
    answer: asyncio.Future[Stored]


class Place(NamedTuple):
    """Of a caller in a line."""

    until_s: float  # then it gets a problem
    one: Waiting


# The last argument: how long the submissions may wait for a lock.
Store = Callable[[Database, Sequence[Submission], float], Awaitable[Sequence[Stored | Exception]]]


class LockWaiters:
    def __init__(self, waiting_pool: WaitingPool, store: Store, clock: Clock) -> None:
        self._waiting_pool, self._store, self._clock = waiting_pool, store, clock
        self._lines: dict[LockedResource, list[Place]] = {}
        self._count = 0  # callers without an answer
        self._turns: deque[LockedResource] = deque()  # lines that wait for a connection
        self._served: set[LockedResource] = set()  # lines that have one
        self._busy = BusyResources(clock)
        self._serving: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return self._count

    def busy(self, submission: Submission) -> LockedResource | None:
        """What this submission needs and another transaction has held recently."""
        if not self._busy:
            return None
        return next((resource for resource in _resources_of(submission) if resource in self._busy), None)

    def add(self, kind: str, one: Waiting) -> None:
        """`kind` is what the submission waits for, in the words of `sexton.submit_each`."""
        resource = next((resource for resource in _resources_of(one.submission) if resource[0] == kind), ("other",))
        self._busy.remember(resource)
        self.join(resource, one)

    def join(self, resource: LockedResource, one: Waiting) -> None:
        """Nothing is remembered here: to join a line is no proof that something is still locked."""
        if resource not in self._lines and resource not in self._served:
            self._turns.append(resource)
        self._lines.setdefault(resource, []).append(Place(self._clock.monotonic() + waiting_pool.PATIENCE_S, one))
        self._count += 1
        one.answer.add_done_callback(self._answered)
        if len(self._serving) < WAITING_POOL_SIZE:
            self._serving.add(asyncio.create_task(self._serve(), name="api lock waiters"))

    def _answered(self, _answer: asyncio.Future[Stored]) -> None:
        self._count -= 1

    async def close(self) -> None:
        while self._serving:
            await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self) -> None:
        try:
            while self._turns:
                resource = self._turns.popleft()
                self._served.add(resource)
                try:
                    await self._serve_one(resource, self._lines.pop(resource))
                finally:
                    self._served.discard(resource)
                    if resource in self._lines:
                        self._turns.append(resource)
        finally:  # at once, so that the next submission starts another task
            self._serving -= {asyncio.current_task()}

    async def _serve_one(self, resource: LockedResource, line: Sequence[Place]) -> None:
        """Until each caller of the line has an answer. One that has waited until its deadline gets the problem; it never starts
        again, which would be another wait."""
        late_s = self._clock.monotonic()
        while line := self._left(resource, line, late_s):
            now = self._clock.monotonic()
            late_s = max(line[0].until_s, now + WAIT_S_MIN)
            try:
                async with self._waiting_pool.taken(within_s=late_s - now) as database:
                    if await self._is_stored(resource, database, line, late_s):
                        return
            except Contention:
                pass  # all connections of the waiting pool are in use
            except BaseException as error:
                fail([place.one for place in line], error)
                if not isinstance(error, Exception):
                    raise
                return

    def _left(self, resource: LockedResource, line: Sequence[Place], late_s: float) -> list[Place]:
        """Those that wait longer than this; the others get the problem."""
        fail_busy(resource, [place.one for place in line if place.until_s <= late_s])
        return [place for place in line if not place.one.answer.done()]

    async def _is_stored(self, resource: LockedResource, database: Database, line: Sequence[Place], late_s: float) -> bool:
        begun_s = self._clock.monotonic()
        try:
            await self._send(database, [place.one for place in line], max(late_s - begun_s, WAIT_S_MIN))
        except (KeyBusy, Contention):
            self._busy.remember(resource)
            return False
        if self._clock.monotonic() - begun_s < SUBMIT_LOCK_TIMEOUT_S:
            self._busy.forget(resource)  # no wait, so it is free
        return True

    async def _send(self, database: Database, group: Sequence[Waiting], wait_s: float) -> None:
        try:
            answers = await self._store(database, [one.submission for one in group], wait_s)
        except (KeyBusy, Contention):
            raise
        except SextonError as error:
            if len(group) == 1:
                fail(group, error)
                return
            for one in group:  # one of them is wrong
                await self._send(database, [one], wait_s)
        else:
            tell(group, answers)


def _resources_of(submission: Submission) -> Iterator[LockedResource]:
    """What a submission may have to wait for. Equal jobs and limits are known by the whole submission here: their keys are
    made in the database."""
    tenant = submission.tenant or "default"
    whole = (submission.task, tenant, submission.name, bytes(submission.payload))
    if submission.key is not None:
        yield ("key", tenant, submission.key)
    if submission.unique is not None:
        yield ("unique", submission.unique, *whole)
    yield ("limit", submission.limit, *whole)
    yield ("tenant", tenant)


def tell(group: Sequence[Waiting], answers: Sequence[Stored | Exception]) -> None:
    for one, answer in zip(group, answers, strict=True):
        if isinstance(answer, Exception):
            fail([one], answer)
        elif not one.answer.done():
            one.answer.set_result(answer)


def fail(group: Sequence[Waiting], error: BaseException) -> None:
    for one in group:
        if one.answer.done():
            continue
        if isinstance(error, Exception):
            one.answer.set_exception(error)
        else:
            one.answer.cancel()


def fail_busy(resource: LockedResource, group: Sequence[Waiting]) -> None:
    for one in group:
        fail([one], busy_problem(str(resource[0]), one.submission))


def busy_problem(kind: str, submission: Submission, at: str = "") -> Refused:
    """`at` is the pointer to the submission."""
    limit = "of this task" if submission.limit is None else f'"{submission.limit.key}"'
    field, what = {
        "key": ("/idempotency_key", f'holds the idempotency key "{submission.key}"'),
        "unique": ("/unique", "submits an equal job"),
        "limit": ("/limit", f"creates the limit {limit}"),
        "tenant": ("/tenant", f'holds the limits of tenant "{submission.tenant or "default"}"'),
    }.get(kind, ("", "holds a lock that this submission needs"))
    code = "idempotency_key_busy" if kind == "key" else "contention"
    detail = f"another transaction {what} and has not ended; nothing was submitted, and it is safe to try again"
    return Refused(code, detail, [Fault(pointer=at + field, detail=detail)], headers={"Retry-After": "1"})
