"""What a migration reports while it runs: which session it waits for, and its progress. The CLI shows it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Blocker(msgspec.Struct, frozen=True):
    """The session that holds a lock which a migration needs."""

    pid: int
    application: str
    state: str
    age_s: float  # of its query; of its transaction if it is idle

    @property
    def line(self) -> str:
        return f"process {self.pid} ({self.application or 'without application_name'}, {self.state}, for {self.age_s:.0f} s)"


class Waiting(msgspec.Struct, frozen=True):
    """Another migrator is at work."""

    @property
    def line(self) -> str:
        return "another process migrates this database; waiting for it"


class Retrying(msgspec.Struct, frozen=True):
    """A lock was not available in time, or was held too long. The whole transaction was rolled back."""

    what: str
    tries: int
    pause_s: float
    reason: str
    blocker: Blocker | None

    @property
    def line(self) -> str:
        by = f" because of {self.blocker.line}" if self.blocker else ""
        return f"{self.what}: {self.reason}{by}; try {self.tries + 1} in {self.pause_s:.1f} s"


class Progressed(msgspec.Struct, frozen=True):
    """A part of a long step is done and will not be done again."""

    step: str
    done: int
    total: int | None
    unit: str  # rows, indexes

    @property
    def line(self) -> str:
        of = f" of {self.total:,}" if self.total is not None else ""
        return f"{self.step}: {self.done:,}{of} {self.unit}"


Report = Waiting | Retrying | Progressed
Tell = Callable[[Report], None]


def untold(_report: Report) -> None:
    """For callers that show nothing."""
