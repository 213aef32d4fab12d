"""One typed event per transition. Logs, metrics, traces, the live stream and tests all subscribe here. Other code never calls a
metric or a logger for what an event already reports."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import msgspec

from .lock_events import AdvisoryLockTaken as AdvisoryLockTaken
from .lock_events import Contended as Contended
from .lock_events import RowLocked as RowLocked
from .lock_events import TableLocked as TableLocked
from .loop_events import LoopCallRefused as LoopCallRefused
from .loop_events import LoopInterrupted as LoopInterrupted
from .loop_events import WorkerDisabled as WorkerDisabled


class Promoted(msgspec.Struct, frozen=True):
    count: int
    queues: tuple[str, ...]
    overdue: bool  # done for a leader that is overdue


class Planned(msgspec.Struct, frozen=True):
    """The next fires of recurring jobs are written."""

    count: int
    overdue: bool  # done for a leader that is overdue


class FiresMissed(msgspec.Struct, frozen=True):
    """Fires that no planner planned in time and that will not run. The ledger has them."""

    count: int


class Repaired(msgspec.Struct, frozen=True):
    """The guardian found recurring jobs that no planner would have planned."""

    job_ids: tuple[UUID, ...]
    late_count: int


class SlotsRepaired(msgspec.Struct, frozen=True):
    """Slots of limits were held by runs that no longer exist. A person changed runs by hand, or it is a defect."""

    count: int


class PausedAfterFailures(msgspec.Struct, frozen=True):
    """A recurring job failed as many times in a row as its `pause_after` allows. It does not fire until a person resumes it."""

    job_id: UUID
    count: int
    error: str  # of the last failure


class ZonesFollowed(msgspec.Struct, frozen=True):
    """Schedules were planned again because newer time zone data move their fires."""

    version: str
    replanned_count: int


class ZonesOlder(msgspec.Struct, frozen=True):
    """Another node has newer time zone data than this one, so this node leaves planning to it for a while."""

    version: str
    newest: str
    advice: str = "upgrade Sexton and tzdata here; until then this node plans only schedules that no other node planned in time"


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
    ending: str | None  # completed, failed, cancelled; None: the run continues
    attempt: int
    lag_s: float  # start minus due
    took_s: float
    reason: str | None


class HandedOver(msgspec.Struct, frozen=True):
    """A run has left its worker: its target continues by itself and ends the run over HTTP."""

    worker_id: UUID
    job_id: UUID
    run_id: UUID
    token: int
    task: str


class LeaseLost(msgspec.Struct, frozen=True):
    """A result came after the lease was lost. It was dropped."""

    worker_id: UUID
    job_id: UUID
    run_id: UUID
    token: int


class ReportHeldUp(msgspec.Struct, frozen=True):
    """Another transaction has locked a run that has ended. Its report is tried again until the lock is gone; other runs are
    reported meanwhile."""

    worker_id: UUID
    job_id: UUID
    run_id: UUID
    task: str
    held_up_s: float
    holder: str  # the session that has the lock, and what to do about it
    more_count: int = 0  # on the last of several: other runs that the same session has locked


class WorkerJoined(msgspec.Struct, frozen=True):
    worker_id: UUID
    name: str


SILENT, SESSIONS_ENDED = "it sent no heartbeat for a lease", "its sessions ended"


class WorkerLost(msgspec.Struct, frozen=True):
    """A sweeper has declared a worker dead."""

    worker_id: UUID
    silent_s: float
    reason: str = SILENT


class DeclaredLost(msgspec.Struct, frozen=True):
    """This worker was declared dead: it drops its runs and registers again under a new id."""

    worker_id: UUID
    held_count: int


class Swept(msgspec.Struct, frozen=True):
    """Runs that a sweeper ended or returned: their worker died, their time was over, or they could not start in time."""

    lost_count: int
    timed_out_count: int
    missed_count: int
    quarantined_count: int = 0  # of the lost: suspects, which a worker in quarantine executes


class RunsLost(msgspec.Struct, frozen=True):
    """Runs that were under way when their worker died, and that will not run again: at-most-once runs, and those that took down
    too many workers. They are dead letters with the status `lost`."""

    count: int
    runs: tuple[str, ...]  # task and run id, a bounded number of them


class Reconciled(msgspec.Struct, frozen=True):
    """Leases of this worker that it does not know (the reply of a claim was lost) were given back."""

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
    """A service cannot continue without it and tries again. Reported the first time, then at intervals."""

    service: str
    error: str
    waited_s: float


class DatabaseBack(msgspec.Struct, frozen=True):
    service: str
    away_s: float


class EmbeddedRestarted(msgspec.Struct, frozen=True):
    """The embedded PostgreSQL ended unexpectedly. Usually the kernel killed it to free memory."""

    data_dir: str


class ServiceFailed(msgspec.Struct, frozen=True):
    """A pass raised an unexpected error. The service continues after a pause."""

    service: str
    error: BaseException


class LoopStalled(msgspec.Struct, frozen=True):
    """The event loop hangs: the heartbeat stops, so that other nodes can take over. `task`, `run_id` and `place` name the
    handler that blocks it, if there is one."""

    worker_id: UUID
    stalled_s: float
    task: str | None = None
    run_id: UUID | None = None
    place: str | None = None  # file, line and function
    advice: str = "a handler that computes or waits without await must be a plain function or have process=True"


class StallHandedBack(msgspec.Struct, frozen=True):
    """A worker whose event loop hangs has given back its runs: `count` of them, with the one that blocked the loop."""

    worker_id: UUID
    blocked_by: UUID
    count: int


class CallDivided(msgspec.Struct, frozen=True):
    """A call of a batch task has failed with several runs in it. `run_count` of them are given back, for calls of at most
    `batch_limit` runs each."""

    worker_id: UUID
    task: str
    run_count: int
    batch_limit: int
    error: str


class StallFound(msgspec.Struct, frozen=True):
    """A worker process that has now ended had been blocked by a call that kept Python from running. It had written its
    stack."""

    pid: int
    place: str
    task: str | None = None


class QuarantineStarted(msgspec.Struct, frozen=True):
    """Suspects wait (runs whose worker was lost twice), and this worker has started a process that executes only them."""

    pid: int


class QuarantineLost(msgspec.Struct, frozen=True):
    """A worker in quarantine has died. If it held only one run, that run took it down."""

    worker_id: UUID
    pid: int
    how: str  # it ended
    run_ids: tuple[UUID, ...]  # that it held


class ProcessChanged(msgspec.Struct, frozen=True):
    """Handlers of one of these tasks changed what belongs to the worker's process. It was restored, unless `not_restored` says
    why not."""

    what: str
    now: str
    tasks: tuple[str, ...]
    other_task_count: int = 0
    not_restored: str | None = None
    advice: str = "it affects all handlers of this worker; use process=True for a task that needs it"


class ExitForced(msgspec.Struct, frozen=True):
    """The process exits although threads, child processes or an exit handler have not ended. `stuck_at` is where the main
    thread was when its time was over."""

    threads: tuple[str, ...]
    children: tuple[str, ...]
    stuck_at: str | None = None
    limit_s: float | None = None
    advice: str = "let the handler end what it starts, or make its threads daemon threads"


class EditsKept(msgspec.Struct, frozen=True):
    """Schedules that the code declares as before and that were edited by hand: the edits stay."""

    names: tuple[str, ...]


class EditsOverwritten(msgspec.Struct, frozen=True):
    """Schedules whose declaration changed in the code: the declaration replaced manual edits."""

    names: tuple[str, ...]


class SettingMissing(msgspec.Struct, frozen=True):
    """A job needs a secret or a setting that this worker does not have: its run goes back, for a worker that has it."""

    what: str
    reason: str


class Drained(msgspec.Struct, frozen=True):
    worker_id: UUID
    handed_back_count: int


class ApiListening(msgspec.Struct, frozen=True):
    address: str


class ApiExposed(msgspec.Struct, frozen=True):
    """The API listens on addresses that other machines can reach."""

    address: str
    advice: str = (
        "it has no authentication: every client that reaches it may do everything; keep it behind a firewall or a proxy"
    )


Event = (
    Promoted
    | Planned
    | FiresMissed
    | Repaired
    | SlotsRepaired
    | PausedAfterFailures
    | ZonesFollowed
    | ZonesOlder
    | Claimed
    | Ended
    | HandedOver
    | LeaseLost
    | ReportHeldUp
    | WorkerJoined
    | WorkerLost
    | DeclaredLost
    | Swept
    | RunsLost
    | Reconciled
    | LeadershipChanged
    | DatabaseLost
    | DatabaseAwaited
    | DatabaseBack
    | Contended
    | RowLocked
    | TableLocked
    | AdvisoryLockTaken
    | EmbeddedRestarted
    | ServiceFailed
    | LoopStalled
    | StallHandedBack
    | CallDivided
    | StallFound
    | QuarantineStarted
    | QuarantineLost
    | LoopInterrupted
    | LoopCallRefused
    | WorkerDisabled
    | ProcessChanged
    | ExitForced
    | SettingMissing
    | EditsKept
    | EditsOverwritten
    | Drained
    | ApiListening
    | ApiExposed
)
Emit = Callable[[Event], None]


class Events:
    """A list of subscribers. They must be fast. One that raises (a log on a closed pipe) does not affect the code that it
    observes."""

    def __init__(self, *subscribers: Emit) -> None:
        self._subscribers = list(subscribers)

    def subscribe(self, subscriber: Emit) -> None:
        self._subscribers.append(subscriber)

    def __call__(self, event: Event) -> None:
        for subscriber in self._subscribers:
            try:  # noqa: SIM105  every end of a run is reported here, and `try` costs nothing
                subscriber(event)
            except Exception:  # noqa: S110  a subscriber must not disturb the work
                pass


def unheard(_event: Event) -> None:
    """For code that needs no events."""
