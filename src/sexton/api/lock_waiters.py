"""Submissions that have to wait for another transaction (rule "a waiting caller leaves the group").

Those that wait for the same key or row form one line, and one connection serves the line. What was busy is remembered for some
seconds: submissions that need it come here at once, and no group meets the lock again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from sexton.clock import Clock
from sexton.domain.job import Submission
from sexton.errors import Contention, KeyBusy, SextonError
from sexton.store.database import SUBMIT_LOCK_TIMEOUT_S, Database
from sexton.store.postgres.waiting_pool import PATIENCE_S, WAITING_POOL_SIZE, WaitingPool
from sexton.store.work.jobs import JobView
from sexton.wire import Fault

from .answers.problems import Refused

BUSY_S = 10.0  # a key or row counts as busy for this long after a submission last had to wait for it
BUSY_LIMIT = 10_000  # keys and rows remembered; the oldest is forgotten first

LockedResource = tuple[Hashable, ...]  # what another transaction holds: its kind, then what identifies it


class Stored(NamedTuple):
    job: JobView
    created: bool


class Waiting(NamedTuple):
    submission: Submission
    answer: asyncio.Future[Stored]


Store = Callable[[Database, Sequence[Submission]], Awaitable[Sequence[Stored | Exception]]]


class LockWaiters:
    def __init__(self, waiting_pool: WaitingPool, store: Store, clock: Clock) -> None:
        self._waiting_pool, self._store, self._clock = waiting_pool, store, clock
        self._lines: dict[LockedResource, list[tuple[float, Waiting]]] = {}
        self._turns: deque[LockedResource] = deque()  # lines that wait for a connection
        self._served: set[LockedResource] = set()  # lines that have one
        self._busy_until: dict[LockedResource, float] = {}
        self._serving: set[asyncio.Task[Any]] = set()

    def busy(self, submission: Submission) -> LockedResource | None:
        """What this submission needs and another transaction has held recently."""
        if not self._busy_until:
            return None
        now = self._clock.monotonic()
        return next((resource for resource in _resources_of(submission) if self._busy_until.get(resource, now) > now), None)

    def add(self, kind: str, one: Waiting) -> None:
        """`kind` is what the submission waits for, in the words of `sexton.submit_each`."""
        self.join(next((resource for resource in _resources_of(one.submission) if resource[0] == kind), ("other",)), one)

    def join(self, resource: LockedResource, one: Waiting) -> None:
        self._remember(resource)
        if resource not in self._lines and resource not in self._served:
            self._turns.append(resource)
        self._lines.setdefault(resource, []).append((self._clock.monotonic(), one))
        if len(self._serving) < WAITING_POOL_SIZE:
            self._serving.add(asyncio.create_task(self._serve(), name="api lock waiters"))

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

    async def _serve_one(self, resource: LockedResource, line: Sequence[tuple[float, Waiting]]) -> None:
        begun_at = self._clock.monotonic()
        fail_busy(resource, [one for since, one in line if begun_at - since > PATIENCE_S])
        group = [one for _, one in line if not one.answer.done()]
        if not group:
            return
        try:
            async with self._waiting_pool.taken() as database:
                begun_at = self._clock.monotonic()
                await self._send(resource, database, group)
        except BaseException as error:
            fail(group, error)
            if not isinstance(error, Exception):
                raise
        if self._clock.monotonic() - begun_at < SUBMIT_LOCK_TIMEOUT_S:
            self._busy_until.pop(resource, None)  # no wait, so it is free

    async def _send(self, resource: LockedResource, database: Database, group: Sequence[Waiting]) -> None:
        try:
            answers = await self._store(database, [one.submission for one in group])
        except (KeyBusy, Contention):
            self._remember(resource)
            fail_busy(resource, group)
        except SextonError:
            if len(group) == 1:
                raise
            for one in group:  # one of them is wrong
                try:
                    await self._send(resource, database, [one])
                except SextonError as error:
                    fail([one], error)
        else:
            tell(group, answers)

    def _remember(self, resource: LockedResource) -> None:
        if len(self._busy_until) >= BUSY_LIMIT:
            del self._busy_until[next(iter(self._busy_until))]
        self._busy_until.pop(resource, None)
        self._busy_until[resource] = self._clock.monotonic() + BUSY_S


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
