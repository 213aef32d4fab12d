"""The loop of every service: it repeats `run_once`. Tests call `run_once` directly and never sleep."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from sexton.clock import Clock
from sexton.domain.backoff import doubled_s
from sexton.domain.reminders import Reminders
from sexton.errors import Contention, DatabaseUnavailable
from sexton.ids import Rng
from sexton.telemetry.events import Contended, DatabaseAwaited, DatabaseBack, DatabaseLost, Emit, ServiceFailed

T = TypeVar("T")

RETRY_S_MAX = 2.0
RETRY_S_MIN = 0.05
CAUSE_S = 2.0  # an outage that lasts this long has a cause that its first error may not have named
REMIND_S = 30.0  # a service that waits, for its database or for locks, logs that again after this long
CONTENDED_S = 3.0  # passes that fail on locks of other sessions for this long are a warning


class AskedToStop(Exception):
    """The process was asked to stop before it had started."""


class Service(Protocol):
    @property
    def name(self) -> str: ...

    async def run_once(self) -> float:
        """One pass. Returns the seconds to rest; a wake-up ends the rest early."""


class Wake:
    """A wake-up that is not lost if it comes before the rest starts. Several count as one."""

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
        """Sleeps for that time or until woken; true if woken."""
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
    """Turns many failures of one kind into two log lines: the database is unavailable, it is available again. A database that
    was never available is waited for, with a reminder in the log."""

    def __init__(self, service: str, clock: Clock, emit: Emit, rng: Rng, *, is_start: bool = False) -> None:
        self._service, self._clock, self._emit, self._rng = service, clock, emit, rng
        self._is_start = is_start
        self._since: float | None = None
        self._contended_since: float | None = None
        self._first_error: str | None = None  # until a later one was told
        self._failures = 0
        self._outages, self._contentions, self._bugs = Reminders(REMIND_S), Reminders(REMIND_S), Reminders(REMIND_S)

    def over(self) -> None:
        if not self._failures:
            return
        self._failures = 0
        self._contended_since = None
        self._contentions.keep(())
        self._outages.keep(())
        if self._since is not None:
            self._emit(DatabaseBack(self._service, self._clock.monotonic() - self._since))
            self._since = None

    def failed(self, error: BaseException) -> float:
        """How long to wait before the next try: longer with each failure, with jitter so that nodes do not retry together."""
        self._failures += 1
        if isinstance(error, Contention):
            self._report_contention(str(error))
        elif isinstance(error, DatabaseUnavailable):
            self._report(str(error))
        else:
            self._report_bug(error)
        return doubled_s(RETRY_S_MIN, RETRY_S_MAX, self._failures) * self._rng.uniform(0.5, 1.0)

    def _report_contention(self, error: str) -> None:
        """A deadlock, or a lock that another session holds for a short time, is not logged: the next pass succeeds."""
        now = self._clock.monotonic()
        if self._contended_since is None:
            self._contended_since = now
        if now - self._contended_since >= CONTENDED_S and self._contentions.is_due(self._service, now):
            self._emit(Contended(self._service, error, now - self._contended_since))

    def _report_bug(self, error: BaseException) -> None:
        """An error that comes back in every pass is told with its traceback once, and again after a while."""
        bug = type(error), str(error)
        self._bugs.keep([bug])
        if self._bugs.is_due(bug, self._clock.monotonic()):
            self._emit(ServiceFailed(self._service, error))

    def _report(self, error: str) -> None:
        """The first error of an outage often says only that a connection broke. Why no other opens is told later, once."""
        now = self._clock.monotonic()
        is_new = self._since is None
        if self._since is None:
            self._since, self._first_error = now, error
        if self._is_start:
            if self._outages.is_due(self._service, now):
                self._emit(DatabaseAwaited(self._service, error, now - self._since))
        elif is_new:
            self._emit(DatabaseLost(self._service, error))
        elif now - self._since >= CAUSE_S and self._first_error not in (None, error):
            self._first_error = None
            self._emit(DatabaseAwaited(self._service, error, now - self._since))


async def repeat(service: Service, wake: Wake, *, clock: Clock, emit: Emit, rng: Rng) -> None:
    """Runs passes until cancelled. No failure ends it: it logs the failure, waits and continues."""
    outage = Outage(service.name, clock, emit, rng)
    while True:
        try:
            rest_s = await service.run_once()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # any error of one pass: the next pass may succeed
            rest_s = outage.failed(error)
        else:
            outage.over()
        await wake.rest(rest_s)


async def insist(name: str, attempt: Callable[[], Awaitable[T]], *, clock: Clock, emit: Emit, rng: Rng) -> T:
    """Tries until the database is available and there is no contention."""
    outage = Outage(name, clock, emit, rng, is_start=True)
    while True:
        try:
            answer = await attempt()
        except (DatabaseUnavailable, Contention) as error:
            await asyncio.sleep(outage.failed(error))
        else:
            outage.over()
            return answer


async def unless_stopped(stop: asyncio.Event, work: Awaitable[T]) -> T:
    """The result of `work`. When `stop` is set first, the work is cancelled and `AskedToStop` is raised."""
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
