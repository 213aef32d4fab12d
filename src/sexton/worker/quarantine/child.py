"""The child's side of quarantine: a worker process that executes only suspects, and dies with the worker that started it.

It may have to die many times. So the child of a worker imports the app once, and then forks one worker process after the other:
a start takes milliseconds instead of a second. Where a fork is not safe, because the app started threads when it was imported,
the child itself is the worker, and its parent starts a new one after it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, NoReturn
from uuid import UUID

from sexton.clock import Clock
from sexton.handlers.parent_death import die_with_parent
from sexton.ids import process_id
from sexton.worker.held_runs import HeldRuns

HANDED_BACK = 75  # the exit code of a worker that has named the suspect that blocked it, and has given back the others
LEAVE_S = 30.0  # without a suspect
POLL_S = 0.2  # between two claims: the next suspects may start as soon as the last ones are reported
_LOOK_S = 1.0
_PR_SET_PDEATHSIG = 1


class Place(NamedTuple):
    """What the parent tells the child on its command line."""

    parent_id: UUID
    lifeline: int
    reports: int  # a pipe: the child says which worker has begun, and how it ended

    @classmethod
    def of(cls, text: str) -> Place:
        parent_id, lifeline, reports = text.split("/")
        return cls(UUID(parent_id), int(lifeline), int(reports))

    def __str__(self) -> str:
        return f"{self.parent_id}/{self.lifeline}/{self.reports}"


class Confined(NamedTuple):
    """One worker in quarantine. It has no other id than this: if it is declared lost, it ends."""

    worker_id: UUID
    parent_id: UUID


def begin(place: Place) -> None:
    """Before anything else: from here on the child dies with its parent, and first when memory runs out."""
    die_with_parent(place.lifeline)
    os.set_inheritable(place.reports, False)
    if sys.platform == "linux":
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")


def confine(place: Place) -> Confined:
    """Called when the app is imported, on the only thread. Returns in each process that is to be a worker."""
    if not _is_fork_safe():
        confined = Confined(process_id(), place.parent_id)
        _tell(place, f"begun {confined.worker_id} {os.getpid()}")
        return confined
    gc.freeze()  # a collection in a worker would copy every page
    rounds = _Rounds(place)
    while True:
        worker = rounds.fork()
        if worker is not None:
            return worker
        rounds.wait()


class _Rounds:
    """The process that forks. It does nothing else, so nothing that a worker does can harm it."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._worker_pid: int | None = None
        self._is_asked = False
        signal.signal(signal.SIGTERM, self._ask_to_stop)
        signal.signal(signal.SIGINT, self._ask_to_stop)

    def fork(self) -> Confined | None:
        """A worker, in its own process; `None` in this one."""
        own_pid, confined = os.getpid(), Confined(process_id(), self._place.parent_id)
        pid = os.fork()
        if pid == 0:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != own_pid:
                os._exit(1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)  # standard input is for the process that forks
            os.close(nothing)
            return confined
        self._worker_pid = pid
        _tell(self._place, f"begun {confined.worker_id} {pid}")
        if self._is_asked:
            os.kill(pid, signal.SIGTERM)
        return None

    def wait(self) -> None:
        """Returns when the next one shall begin."""
        worker_pid = self._worker_pid or 0
        _, status = os.waitpid(worker_pid, 0)
        self._worker_pid = None
        code = os.waitstatus_to_exitcode(status)
        _tell(self._place, f"ended {worker_pid} {code}")
        if code == 0 or self._is_asked or not os.read(0, 1):
            _exit(0 if code == 0 or self._is_asked else 1)

    def _ask_to_stop(self, *_: object) -> None:
        self._is_asked = True
        if self._worker_pid is not None:
            with suppress(ProcessLookupError):  # it has just ended: `wait` ends this process, too
                os.kill(self._worker_pid, signal.SIGTERM)
        else:
            _exit(0)


def _exit(code: int) -> NoReturn:
    os._exit(code)


def _tell(place: Place, line: str) -> None:
    with suppress(OSError):  # the parent is gone, and so will this process be
        os.write(place.reports, f"{line}\n".encode())


def _is_fork_safe() -> bool:
    """A thread that holds a lock while another one forks holds it for ever in the new process."""
    if sys.platform != "linux":
        return False
    with suppress(OSError):
        return len(os.listdir("/proc/self/task")) == 1
    return False


class Idleness:
    """Lets a worker in quarantine leave when there is nothing left to do for it."""

    name = "idleness"

    def __init__(self, held_runs: HeldRuns, leave: Callable[[], None], *, clock: Clock) -> None:
        self._held_runs, self._leave, self._clock = held_runs, leave, clock
        self._busy_at = clock.monotonic()

    async def run_once(self) -> float:
        now = self._clock.monotonic()
        if len(self._held_runs):
            self._busy_at = now
        elif now - self._busy_at >= LEAVE_S:
            self._leave()
        return _LOOK_S
