"""The parent's side of quarantine (rule "suspects apart"): when suspects wait, a worker process starts one child for them.

A worker in the child may die of a suspect, as often as that takes. The parent hears of it at once, declares the worker lost
without waiting for a lease, and lets the next one begin.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from uuid import UUID

from sexton.clock import Clock
from sexton.domain.backoff import doubled_s
from sexton.handlers.python.process_pool import how_it_ended
from sexton.service import Wake
from sexton.store.database import Database
from sexton.store.fleet import workers
from sexton.telemetry.events import Emit, QuarantineLost, QuarantineStarted

from .child import HANDED_BACK, Place

CHECK_S = 1.0  # between two questions whether the child was declared lost
LOOK_S = 0.1  # between two looks at a living child
REST_S = 60.0  # without suspects
# The workers of a fleet hear of suspects together. As many as there are groups start a child at once, each other one this much
# later than the one before it, if it is still needed then. A child counts from when it has joined.
TURN_S = 3.0
DELAY_S_MIN, DELAY_S_MAX = 0.25, 5.0  # before the next worker, if the last one died without a suspect


@dataclass(frozen=True)
class Command:
    """How the child is started: the words of its command line; an option that makes it a child in quarantine is added."""

    words: Sequence[str]
    folder: str = field(default_factory=os.getcwd)  # as at the start of the parent, whatever its handlers do later
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))


class Ended(NamedTuple):
    """A worker of the child."""

    worker_id: UUID
    pid: int
    exit_code: int


class Child(Protocol):
    """A child process. Tests have their own."""

    @property
    def pid(self) -> int: ...

    @property
    def worker_id(self) -> UUID | None:
        """The id of its present worker."""

    @property
    def is_over(self) -> bool:
        """The process has ended."""

    def look(self) -> list[Ended]:
        """The workers that have ended since the last look."""

    def begin_next(self) -> None: ...

    def ask_to_stop(self) -> None: ...

    def kill(self) -> None: ...

    def close(self) -> None: ...


class ChildProcess:
    """In its own session: Ctrl-C reaches only the parent, which asks the child to stop."""

    def __init__(self, command: Command, parent_id: UUID) -> None:
        """Only on the event loop's thread: the kernel stops a child when the thread that started it ends."""
        self.worker_id: UUID | None = None
        self._unread = b""
        held_by_child, self._lifeline = os.pipe()
        self._reports, theirs = os.pipe()
        os.set_blocking(self._reports, False)
        option = str(Place(parent_id, held_by_child, theirs))
        try:
            self._process = subprocess.Popen(
                [*command.words, "--quarantine", option],
                cwd=command.folder,
                env=command.environment,
                stdin=subprocess.PIPE,
                pass_fds=[held_by_child, theirs],
                start_new_session=True,
            )
        except BaseException:
            os.close(self._lifeline)
            os.close(self._reports)
            raise
        finally:
            os.close(held_by_child)
            os.close(theirs)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def look(self) -> list[Ended]:
        is_over = self.is_over  # before the last lines are read
        with suppress(BlockingIOError):
            while received := os.read(self._reports, 4096):
                self._unread += received
        *lines, self._unread = self._unread.split(b"\n")
        ended = []
        for what, value, number in (line.decode().split() for line in lines):
            if what == "begun":
                self.worker_id = UUID(value)
            elif self.worker_id is not None:
                ended.append(Ended(self.worker_id, int(value), int(number)))
                self.worker_id = None
        if is_over and self.worker_id is not None:  # the child itself was the worker, or was killed together with it
            ended.append(Ended(self.worker_id, self.pid, self._process.returncode))
            self.worker_id = None
        return ended

    def begin_next(self) -> None:
        with suppress(OSError):
            os.write(self._stdin, b"\n")

    def ask_to_stop(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        if self._process.returncode is None:  # not reaped yet, so the pid still belongs to it
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        os.close(self._lifeline)
        os.close(self._reports)
        if self._process.stdin is not None:
            self._process.stdin.close()

    @property
    def _stdin(self) -> int:
        assert self._process.stdin is not None, "it was asked for"  # noqa: S101
        return self._process.stdin.fileno()


class Quarantine:
    name = "quarantine"

    def __init__(
        self,
        database: Database,
        start: Callable[[], Child],
        *,
        worker_id: Callable[[], UUID],
        queues: Sequence[str],
        tasks: Sequence[str],
        read_dumps: Callable[[], None] = lambda: None,
        clock: Clock,
        emit: Emit,
    ) -> None:
        """`worker_id` is the present one of this worker. `read_dumps` logs the handlers in which ended workers stood still."""
        self._database, self._start, self._queues, self._tasks = database, start, queues, tasks
        self._read_dumps = read_dumps
        self._worker_id, self._clock, self._emit = worker_id, clock, emit
        self.wake = Wake()
        self._child: Child | None = None
        self._ended: list[Ended] = []  # workers that have ended, but whose runs were not taken back yet
        self._suspects_wait = False
        self._heard_at = float("-inf")  # of suspects that wait; -inf: its own child was taken down by one
        self._not_before = 0.0
        self._failure_count = 0  # consecutive workers that died without a suspect, or by SIGKILL
        self._is_next_due = False
        self._is_closing = False
        self._checked_at = clock.monotonic()

    def hear_of_suspects(self) -> None:
        """A heartbeat has seen that suspects wait for a worker with these queues and tasks."""
        if not self._suspects_wait:
            self._heard_at = self._clock.monotonic()
        self._suspects_wait = True
        self.wake()

    async def run_once(self) -> float:
        if self._child is None:
            return REST_S if self._is_closing or not self._suspects_wait else await self._begin()
        is_over = self._child.is_over
        self._ended += self._child.look()
        while self._ended:
            await self._take_back(self._ended[0])
            del self._ended[0]
        if is_over:
            self._child.close()
            self._child, self._is_next_due = None, False
            return 0.0
        if self._is_next_due and self._clock.monotonic() >= self._not_before:
            self._is_next_due = False
            self._child.begin_next()
        elif not self._is_closing and self._clock.monotonic() - self._checked_at >= CHECK_S:
            self._checked_at = self._clock.monotonic()
            await self._check(self._child)
        return LOOK_S

    def ask_to_stop(self) -> None:
        """The worker drains: so does the child."""
        self._is_closing = True
        if self._child is not None and not self._child.is_over:
            self._child.ask_to_stop()

    async def close(self, patience_s: float) -> None:
        """Returns when the child has ended, by force after `patience_s`. Call `ask_to_stop` first."""
        until = self._clock.monotonic() + patience_s
        while (child := self._child) is not None:
            if self._clock.monotonic() >= until:
                child.kill()
            await self.wake.rest(await self.run_once())

    async def _begin(self) -> float:
        wait_s = self._not_before - self._clock.monotonic()
        if wait_s > 0:
            return wait_s
        async with self._database.connection() as connection:
            turn = await workers.quarantine_turn(
                connection, self._worker_id(), queues=self._queues, tasks=self._tasks, now=self._clock.database_now()
            )
        if turn.wanted_count <= 0 or self._is_closing:
            self._suspects_wait = False
            return REST_S
        turns = max(0, turn.ahead_count - turn.wanted_count + 1)
        wait_s = self._heard_at + turns * TURN_S - self._clock.monotonic()
        if wait_s > 0:
            return wait_s
        self._suspects_wait = False
        self._child = self._start()
        self._emit(QuarantineStarted(self._child.pid))
        return LOOK_S

    async def _check(self, child: Child) -> None:
        """A worker that stands still is declared lost by a sweeper. It cannot end by itself then."""
        if child.worker_id is None:
            return
        async with self._database.connection() as connection:
            if await workers.is_lost(connection, child.worker_id):
                child.kill()

    async def _take_back(self, ended: Ended) -> None:
        """Its runs go back at once. If it died of one of them, the next worker begins at once as well. SIGKILL proves nothing:
        when memory runs out, the kernel kills this process first, whichever took the memory. Later there may be more of it."""
        how, was_killed = how_it_ended(ended.exit_code), ended.exit_code == -signal.SIGKILL
        async with self._database.connection() as connection:
            held = await workers.leased(connection, ended.worker_id)
            reason = f"its worker in quarantine {how}"
            now = self._clock.database_now()
            was_lost = await workers.declare_ended(connection, ended.worker_id, reason=reason, with_parent=was_killed, now=now)
        found_one = bool(held) or ended.exit_code == HANDED_BACK
        if ended.exit_code == 0 or (found_one and not was_killed):
            self._failure_count = 0
        else:
            delay_s = doubled_s(DELAY_S_MIN, DELAY_S_MAX, self._failure_count)
            self._failure_count += 1
            self._not_before = self._clock.monotonic() + delay_s
        self._is_next_due = True
        if found_one:
            self._suspects_wait, self._heard_at = True, float("-inf")
        if ended.exit_code != 0 or was_lost:
            self._emit(QuarantineLost(ended.worker_id, ended.pid, how, tuple(one.run_id for one in held)))
            self._read_dumps()
