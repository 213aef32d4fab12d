"""One typed event per transition. Logs, metrics, traces, the live stream and tests all subscribe here; logic never calls a
metric or a logger for what an event already says."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import msgspec


class Promoted(msgspec.Struct, frozen=True):
    count: int
    queues: tuple[str, ...]
    overdue: bool  # taken over from a leader that should have done it


class Planned(msgspec.Struct, frozen=True):
    """The next fires of recurring jobs are written."""

    count: int
    overdue: bool  # taken over from a leader that should have done it


class FiresMissed(msgspec.Struct, frozen=True):
    """Fires that nobody planned in time and that will not run; the ledger has them."""

    count: int


class Repaired(msgspec.Struct, frozen=True):
    """The guardian found recurring jobs that nobody would have planned."""

    job_ids: tuple[UUID, ...]
    late_count: int


class SlotsMended(msgspec.Struct, frozen=True):
    """Slots of limits were held by runs that were gone: somebody changed runs by hand, or it is a defect."""

    count: int


class PausedAfterFailures(msgspec.Struct, frozen=True):
    """A recurring job has failed as often in a row as its `pause_after` allows; nothing fires before a person resumes it."""

    job_id: UUID
    count: int
    error: str  # of the last


class ZonesFollowed(msgspec.Struct, frozen=True):
    """Schedules were planned anew because newer time zone data move their fires."""

    version: str
    replanned_count: int


class ZonesOlder(msgspec.Struct, frozen=True):
    """Another node has newer time zone data than this one, which therefore leaves planning to it, for a while."""

    version: str
    newest: str
    advice: str = "upgrade the tzdata package here; until then this node plans only what no other planned in time"


class Claimed(msgspec.Struct, frozen=True):
    worker_id: UUID
    count: int


class Ended(msgspec.Struct, frozen=True):
    """One execution has ended and is recorded."""

    worker_id: UUID | None
    job_id: UUID
    run_id: UUID
    token: int
    task: str
    status: str
    ending: str | None  # completed, failed, cancelled; none: the run goes on
    attempt: int
    lag_s: float  # start minus due
    took_s: float
    reason: str | None


class HandedOver(msgspec.Struct, frozen=True):
    """A run has left its worker: whoever was called goes on by itself and ends it over HTTP."""

    worker_id: UUID
    job_id: UUID
    run_id: UUID
    token: int
    task: str


class LeaseLost(msgspec.Struct, frozen=True):
    """A result came after the lease had gone: it was dropped."""

    worker_id: UUID
    job_id: UUID
    run_id: UUID
    token: int


class WorkerJoined(msgspec.Struct, frozen=True):
    worker_id: UUID
    name: str


class WorkerLost(msgspec.Struct, frozen=True):
    """A sweeper has declared a worker dead."""

    worker_id: UUID
    silent_s: float


class DeclaredLost(msgspec.Struct, frozen=True):
    """This very worker was declared dead: it drops what it holds and joins again under a new id."""

    worker_id: UUID
    held_count: int


class Swept(msgspec.Struct, frozen=True):
    """Runs ended or returned because their worker, their time or their chance to start had gone."""

    lost_count: int
    timed_out_count: int
    missed_count: int


class Reconciled(msgspec.Struct, frozen=True):
    """Leases of this worker that it never heard of (a claim's reply was lost) were handed back."""

    worker_id: UUID
    count: int


class LeadershipChanged(msgspec.Struct, frozen=True):
    node_id: UUID
    partitions: tuple[int, ...]
    node_count: int


class DatabaseLost(msgspec.Struct, frozen=True):
    service: str
    error: str


class DatabaseAwaited(msgspec.Struct, frozen=True):
    """A service cannot go on without it and tries again; told at first and then now and then."""

    service: str
    error: str
    waited_s: float


class DatabaseBack(msgspec.Struct, frozen=True):
    service: str
    away_s: float


class EmbeddedRestarted(msgspec.Struct, frozen=True):
    """The embedded PostgreSQL had ended without being asked to, killed by the kernel for its memory, as a rule."""

    data_dir: str


class ServiceFailed(msgspec.Struct, frozen=True):
    """A pass raised something nobody foresaw; the service goes on after a pause."""

    service: str
    error: BaseException


class LoopStalled(msgspec.Struct, frozen=True):
    """The event loop hangs: the heartbeat falls silent so that others may take over."""

    worker_id: UUID
    stalled_s: float


class Drained(msgspec.Struct, frozen=True):
    worker_id: UUID
    handed_back_count: int


class ApiListening(msgspec.Struct, frozen=True):
    address: str


class ApiExposed(msgspec.Struct, frozen=True):
    """The API listens beyond this machine."""

    address: str
    advice: str = "it asks nobody who they are: whoever reaches it may do everything; keep it behind a firewall or a proxy"


Event = (
    Promoted
    | Planned
    | FiresMissed
    | Repaired
    | SlotsMended
    | PausedAfterFailures
    | ZonesFollowed
    | ZonesOlder
    | Claimed
    | Ended
    | HandedOver
    | LeaseLost
    | WorkerJoined
    | WorkerLost
    | DeclaredLost
    | Swept
    | Reconciled
    | LeadershipChanged
    | DatabaseLost
    | DatabaseAwaited
    | DatabaseBack
    | EmbeddedRestarted
    | ServiceFailed
    | LoopStalled
    | Drained
    | ApiListening
    | ApiExposed
)
Emit = Callable[[Event], None]


class Events:
    """A list of subscribers. They must be quick; one that raises (a log on a closed pipe) breaks nothing it observes."""

    def __init__(self, *subscribers: Emit) -> None:
        self._subscribers = list(subscribers)

    def subscribe(self, subscriber: Emit) -> None:
        self._subscribers.append(subscriber)

    def __call__(self, event: Event) -> None:
        for subscriber in self._subscribers:
            try:  # noqa: SIM105  an end is told of every run, and this costs nothing
                subscriber(event)
            except Exception:  # noqa: S110  whoever listens must not disturb the work
                pass


def unheard(_event: Event) -> None:
    """For whoever does not care."""
