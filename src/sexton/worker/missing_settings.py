"""Secrets and settings that jobs needed and this worker does not have. Such a run goes back, for a worker that has them, and
spends no attempt. The delay doubles with every return of the same run, so that no worker claims it over and over."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from sexton.clock import Clock
from sexton.domain.backoff import doubled_s
from sexton.errors import NotHere
from sexton.telemetry.events import Emit, SettingMissing

DELAY_S = (1.0, 60.0)  # first and longest
KEPT_S = 3_600.0  # a run comes back once a minute, to one worker: all must be asked before the first note expires
NAMES_LIMIT = 100
RUNS_LIMIT = 10_000


class MissingSettings:
    def __init__(self, *, clock: Clock, emit: Emit) -> None:
        self._clock, self._emit = clock, emit
        self._noted_at: dict[str, float] = {}
        self._returned: dict[UUID, int] = {}  # how often, by run

    def returned(self, run_id: UUID, error: NotHere) -> float:
        """Notes what is missing. Returns the seconds to wait before the run is tried again."""
        self._note(error)
        count = self._returned.pop(run_id, 0)
        if len(self._returned) >= RUNS_LIMIT:
            del self._returned[next(iter(self._returned))]
        self._returned[run_id] = count + 1
        return doubled_s(*DELAY_S, count)

    def _note(self, error: NotHere) -> None:
        now = self._clock.monotonic()
        known = dict(self._noted_at)
        if error.lacks not in known:
            self._emit(SettingMissing(error.lacks, str(error)))
        kept = {name: at for name, at in known.items() if now - at < KEPT_S and name != error.lacks}
        self._noted_at = {**dict(list(kept.items())[-NAMES_LIMIT + 1 :]), error.lacks: now}

    def found(self, names: Iterable[str]) -> None:
        """A call was made that needs these: what was missing is here now."""
        found = set(names)
        self._noted_at = {name: at for name, at in self._noted_at.items() if name not in found}

    @property
    def has_any(self) -> bool:
        return bool(self._noted_at)

    @property
    def names(self) -> list[str]:
        """What was missing lately; the heartbeat, in its own thread, tells the others."""
        now = self._clock.monotonic()
        return sorted(name for name, at in self._noted_at.items() if now - at < KEPT_S)
