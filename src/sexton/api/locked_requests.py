"""Requests that have to wait for another transaction, apart from single submissions of one-time jobs. Rule
"a waiting caller leaves the group".

A request that meets a lock on the shared connections starts again on a connection of the waiting pool. Those that need the
same row form one line, which uses one connection. What was busy is remembered for some seconds, and a request that needs it
joins the line at once. Each request has one deadline, from when it joined: the wait for its turn, for a connection and for the
locks all count.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from sexton.clock import Clock
from sexton.errors import Contention, KeyBusy
from sexton.store.database import SUBMIT_LOCK_TIMEOUT_S, Database
from sexton.store.postgres import waiting_pool
from sexton.store.postgres.waiting_pool import WaitingPool
from sexton.wire import Fault

from .answers.problems import Refused
from .busy_resources import BusyResources, LockedResource

if TYPE_CHECKING:
    from .state import ApiRequest, ApiState

PLACES = 200  # requests in all lines; above it a request that would have to wait gets a problem at once
_CHANGES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
# A worker that has met a lock once must not queue behind other callers: a late heartbeat costs it its runs.
_OF_WORKERS = frozenset({"workers", "runs"})


class LockedOut(Contention):
    """Another transaction holds `resource`. `refusal` is the answer if that does not end in time."""

    def __init__(self, resource: LockedResource, refusal: Refused | None = None) -> None:
        super().__init__("another transaction holds what this call needs" if refusal is None else refusal.detail)
        self.resource, self.refusal = resource, refusal


class _Line:
    def __init__(self) -> None:
        self.turn, self.count = asyncio.Lock(), 0


class LockedRequests:
    def __init__(self, waiting_pool: WaitingPool, clock: Clock) -> None:
        self._waiting_pool, self._clock = waiting_pool, clock
        self._busy = BusyResources(clock)
        self._tries: dict[LockedResource, _Line] = {}
        self._lines: dict[LockedResource, _Line] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def is_busy(self, resource: LockedResource) -> bool:
        return resource in self._busy

    def remember(self, resource: LockedResource) -> None:
        self._busy.remember(resource)

    @asynccontextmanager
    async def tried(self, resource: LockedResource | None, problem: Refused | None = None) -> AsyncIterator[None]:
        """On the shared connections, where one request at a time finds out whether the resource is busy: a hundred that arrive
        together would meet its lock on all of them."""
        if resource is None:
            yield
            return
        async with _one_at_a_time(self._tries, resource, waiting_pool.PATIENCE_S):
            if self.is_busy(resource):
                raise LockedOut(resource, problem)
            try:
                yield
            except Contention as error:
                self.remember(resource)
                raise LockedOut(resource, problem) from error

    @asynccontextmanager
    async def turn(self, resource: LockedResource | None, *, until_s: float | None = None) -> AsyncIterator[Database]:
        """A database on which one request may wait. Without a resource there is no line, only the wait for a connection.
        `until_s`: for a request that has already waited."""
        if self._count >= PLACES:
            raise Contention(f"{PLACES} other calls wait for locks as well")
        if until_s is None:
            until_s = self._clock.monotonic() + waiting_pool.PATIENCE_S
        self._count += 1
        try:
            async with (
                _one_at_a_time(self._lines, resource, until_s - self._clock.monotonic()),
                self._waiting_pool.taken_until(self._left_s(until_s)) as database,
            ):
                began_s = self._clock.monotonic()
                yield database
            if resource is not None and self._clock.monotonic() - began_s < SUBMIT_LOCK_TIMEOUT_S:
                self._busy.forget(resource)  # no wait, so it is free
        except (Contention, KeyBusy):
            if resource is not None:
                self._busy.remember(resource)
            raise
        finally:
            self._count -= 1

    def _left_s(self, until_s: float) -> Callable[[], float]:
        return lambda: until_s - self._clock.monotonic()


@asynccontextmanager
async def _one_at_a_time(
    lines: dict[LockedResource, _Line], resource: LockedResource | None, within_s: float
) -> AsyncIterator[None]:
    if resource is None:
        yield
        return
    line = lines.setdefault(resource, _Line())
    line.count += 1
    try:
        try:
            async with asyncio.timeout(within_s):
                await line.turn.acquire()
        except TimeoutError:
            raise LockedOut(resource) from None
        try:
            yield
        finally:
            line.turn.release()
    finally:
        line.count -= 1
        if not line.count:
            del lines[resource]


def changed_by(request: ApiRequest) -> LockedResource | None:
    """What a change names by its address, such as one job. Others lock rows that only their handler knows."""
    if request.method not in _CHANGES or not request.path_params:
        return None
    _, kind, *_ = request.url.path.strip("/").split("/")
    name = str(next(iter(request.path_params.values()))).removesuffix("/status")
    return None if kind in _OF_WORKERS else (kind, name)


class Named(Protocol):
    """A schedule as a request names it."""

    @property
    def tenant(self) -> str | None: ...

    @property
    def name(self) -> str | None: ...


@asynccontextmanager
async def naming_schedules(state: ApiState, schedules: Mapping[str, Named]) -> AsyncIterator[None]:
    """For a request whose body names the schedules that it writes, each with its pointer there. If one of them was busy
    recently, the request leaves the shared connections before it writes."""
    named = {resource: at for at, one in schedules.items() if (resource := locked_schedule(one)) is not None}
    if not named:
        yield
        return
    known = next((resource for resource in named if state.locked_requests.is_busy(resource)), None)
    all_of_them: LockedResource = next(iter(named)) if len(named) == 1 else ("schedules", frozenset(named))
    resource = known or all_of_them
    problem = _busy(resource, named.get(resource, ""))
    if not state.may_wait:
        async with state.locked_requests.tried(resource, problem):
            yield
        return
    try:
        yield
    except Contention as error:
        raise LockedOut(resource, problem) from error


def locked_schedule(one: Named) -> LockedResource | None:
    return ("schedule", one.tenant or "default", one.name) if one.name else None


def busy_schedule(one: Named) -> Refused:
    return _busy(locked_schedule(one), "")


def _busy(resource: LockedResource | None, at: str) -> Refused:
    """`at` is the pointer to the schedule."""
    match resource:
        case ("schedule", _, name):
            field, what = f"{at}/name", f'writes the schedule "{name}"'
        case _:
            field, what = at, "holds a lock that this submission needs"
    detail = f"another transaction {what} and has not ended; nothing was submitted, and it is safe to try again"
    return Refused("contention", detail, [Fault(pointer=field, detail=detail)], headers={"Retry-After": "1"})
