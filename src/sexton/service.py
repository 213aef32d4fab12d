"""Every looping service is `run_once` plus this thin loop: a test calls `run_once` and never sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from sexton.clock import Clock
from sexton.errors import Contention, DatabaseUnavailable
from sexton.ids import Rng
from sexton.telemetry.events import DatabaseAwaited, DatabaseBack, DatabaseLost, Emit, ServiceFailed

T = TypeVar("T")

RETRY_S_MAX = 2.0
RETRY_S_MIN = 0.05
REMIND_S = 30.0  # a service that waits for its database says so again after this long


class AskedToStop(Exception):
    """The process was asked to stop before it had begun."""


class Service(Protocol):
    @property
    def name(self) -> str: ...

    async def run_once(self) -> float:
        """One pass. Answers with the seconds it may rest; a wake-up cuts the rest short."""


class Wake:
    """A wake-up that is not lost if it comes while nobody sleeps, and never more than one."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def __call__(self) -> None:
        self._event.set()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def clear(self) -> None:
        self._event.clear()

    async def rest(self, rest_s: float) -> bool:
        """Sleeps that long or until woken; true if woken."""
        if rest_s > 0 and not self._event.is_set():
            try:
                async with asyncio.timeout(rest_s):
                    await self._event.wait()
            except TimeoutError:
                pass
        elif rest_s <= 0:
            await asyncio.sleep(0)
        woken = self.is_set
        self.clear()
        return woken


class Outage:
    """Turns a storm of failures of one kind into two lines: it is gone, it is back. What was never there is awaited, and
    whoever looks at the log is reminded of it."""

    def __init__(self, service: str, clock: Clock, emit: Emit, dice: Rng, *, is_start: bool = False) -> None:
        self._service, self._clock, self._emit, self._dice = service, clock, emit, dice
        self._is_start = is_start
        self._since: float | None = None
        self._told_at = 0.0
        self._failures = 0

    def over(self) -> None:
        self._failures = 0
        if self._since is not None:
            self._emit(DatabaseBack(self._service, self._clock.monotonic() - self._since))
            self._since = None

    def failed(self, error: BaseException) -> float:
        """How long to wait before the next try: longer with each failure, never in step with other nodes."""
        self._failures += 1
        if isinstance(error, DatabaseUnavailable):
            self._tell(str(error))
        elif not isinstance(error, Contention):
            self._emit(ServiceFailed(self._service, error))
        return min(RETRY_S_MIN * 2.0 ** min(self._failures, 10), RETRY_S_MAX) * self._dice.uniform(0.5, 1.0)

    def _tell(self, error: str) -> None:
        now = self._clock.monotonic()
        if self._since is None:
            self._since = now
        elif not self._is_start or now - self._told_at < REMIND_S:
            return
        self._told_at = now
        self._emit(
            DatabaseAwaited(self._service, error, now - self._since) if self._is_start else DatabaseLost(self._service, error)
        )


async def repeat(service: Service, wake: Wake, *, clock: Clock, emit: Emit, dice: Rng) -> None:
    """Runs passes until cancelled. No failure ends it: it says so, waits and goes on."""
    outage = Outage(service.name, clock, emit, dice)
    while True:
        try:
            rest_s = await service.run_once()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # the loop is the last line: whatever one pass meets, the next may succeed
            rest_s = outage.failed(error)
        else:
            outage.over()
        await wake.rest(rest_s)


async def insist(name: str, attempt: Callable[[], Awaitable[T]], *, clock: Clock, emit: Emit, dice: Rng) -> T:
    """Tries until the database is there and nobody is in the way."""
    outage = Outage(name, clock, emit, dice, is_start=True)
    while True:
        try:
            answer = await attempt()
        except (DatabaseUnavailable, Contention) as error:
            await asyncio.sleep(outage.failed(error))
        else:
            outage.over()
            return answer


async def unless_stopped(stop: asyncio.Event, work: Awaitable[T]) -> T:
    """What `work` answers, or `AskedToStop` the moment somebody asks; the work is then cancelled."""
    working, asked = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, asked), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise AskedToStop
    finally:
        working.cancel()
        asked.cancel()
        await asyncio.gather(working, asked, return_exceptions=True)
