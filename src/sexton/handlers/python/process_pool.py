"""The worker's side of handlers that run in processes: a few children, started when needed, each serving one call at a
time. A child can be killed at any moment, with all processes it has started, without effect on the others."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, assert_never

import msgspec

from sexton.domain.outcome import ErrorInfo
from sexton.errors import PermanentError, RetryLater, SextonError, Snooze
from sexton.handlers.context import Context, Stoppable, Stopped, own_output_of
from sexton.handlers.handle import Handle
from sexton.handlers.process_handle import ProcessHandle

from .messages import (
    LENGTH_BYTES,
    Alive,
    Hello,
    Logged,
    OfRun,
    Progressed,
    Raised,
    Returned,
    Start,
    StartBatch,
    Stop,
    ToChild,
    ToParent,
    body_length,
    for_parent,
    frame,
)

EXIT_GRACE_S = 2.0  # time for the exit hooks of a child that is no longer needed


class RemoteError(SextonError):
    """The handler raised the error `info` in its process."""

    code = "remote"

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(f"{info.type}: {info.message}")
        self.info = info


class ProcessDied(SextonError):
    """The handler's process ended during the call. Another attempt gets a new process."""

    code = "process_died"

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"the handler's process {how_it_ended(exit_code)}")
        self.exit_code = exit_code  # negative: the signal that killed it


def info_of(error: BaseException) -> ErrorInfo:
    """The error as the handler raised it, in this process or a child."""
    for candidate in (error, error.__cause__):
        if isinstance(candidate, RemoteError):
            return candidate.info
    return ErrorInfo.of(error)


class ProcessPool:
    def __init__(self, size: int) -> None:
        self._size = size
        self._slots = asyncio.Semaphore(size)
        self._members: set[Member] = set()
        self._idle: list[Member] = []
        self._is_closed = False

    def start(self, start: Start, context: Context) -> Handle:
        """Only on the event loop's thread: the kernel ends a child together with the thread that started it."""
        return FunctionHandle(self, lambda: start, context)

    async def close(self) -> None:
        """Idle members end at once, busy ones after their call. Returns when the last has ended."""
        self._is_closed = True
        for member in self._idle:
            member.dismiss()
        for _ in range(self._size):
            await self._slots.acquire()
        for _ in range(self._size):
            self._slots.release()
        if self._members:
            await asyncio.wait([member.gone for member in self._members])

    @asynccontextmanager
    async def member(self) -> AsyncIterator[Member]:
        """A member for one call."""
        async with self._slots:
            if self._is_closed:
                raise Stopped("the worker is stopping")
            member = self._idle_member() or await self._new_member()
            try:
                yield member
            finally:
                if member.is_busy:  # its caller was cancelled because the loop is closing
                    member.force_stop()
                    await asyncio.wait([member.gone])
                elif self._is_closed:
                    member.dismiss()
                else:
                    self._idle.append(member)

    def _idle_member(self) -> Member | None:
        while self._idle:
            member = self._idle.pop()
            if member.is_connected:
                return member
        return None

    async def _new_member(self) -> Member:
        member = await Member.spawn()
        self._members.add(member)
        member.gone.add_done_callback(lambda _: self._members.discard(member))
        return member


class FunctionHandle(ProcessHandle["Member"]):
    __slots__ = ()

    def __init__(
        self,
        pool: ProcessPool,
        start: Callable[[], Start | StartBatch],
        context: Stoppable,
        of_run: Callable[[OfRun], None] | None = None,
    ) -> None:
        """`start` is called when a process is free. `of_run` receives what the child says about one run of a batch."""
        super().__init__(context, self._run(pool, start, of_run))

    async def _run(
        self, pool: ProcessPool, start: Callable[[], Start | StartBatch], of_run: Callable[[OfRun], None] | None
    ) -> None:
        try:
            async with pool.member() as member:
                if not self.done.done():
                    self._process = member
                    self._succeed(await member.call(start(), self._context, of_run))
        except (Exception, Stopped) as error:
            self._fail(error)
        finally:
            self._process = None
            self.done.cancel()  # has an effect only while the loop is closing


class Member:
    """One child process and the socket to it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        lifeline: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._lifeline = lifeline
        self._reader = reader
        self._writer = writer
        self._context: Stoppable | None = None
        self._of_run: Callable[[OfRun], None] | None = None
        self._answer: asyncio.Future[Any] | None = None
        self._is_dismissed = False
        self.gone = asyncio.get_running_loop().create_task(self._listen())  # done when the process is reaped

    @classmethod
    async def spawn(cls) -> Member:
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours)
            held_by_child, lifeline = os.pipe()
            try:
                # The socket is its standard input, which it replaces at once, so no other descriptor has to be passed.
                # Its own session keeps the terminal's Ctrl-C away, and makes a group that can be killed together.
                process = subprocess.Popen(  # noqa: ASYNC220  blocks for the 2 ms until exec; must be this thread
                    [sys.executable, "-P", "-m", "sexton.handlers.python.child", str(held_by_child)],
                    stdin=theirs.fileno(),
                    pass_fds=[held_by_child],
                    start_new_session=True,
                )
            except BaseException:
                writer.close()
                os.close(lifeline)
                raise
            finally:
                os.close(held_by_child)
        member = cls(process, lifeline, reader, writer)
        member.send(Hello(search_path=sys.path, argv=sys.argv))
        return member

    @property
    def is_connected(self) -> bool:
        return not self._writer.is_closing()

    @property
    def is_busy(self) -> bool:
        return self._answer is not None

    async def call(self, start: Start | StartBatch, context: Stoppable, of_run: Callable[[OfRun], None] | None = None) -> Any:
        message = frame(start)
        self._context, self._of_run = context, of_run
        self._answer = asyncio.get_running_loop().create_future()
        self._writer.write(message)
        return await self._answer

    def ask_to_stop(self) -> None:
        self.send(Stop())

    def dismiss(self) -> None:
        """An idle child ends when its socket closes."""
        self._is_dismissed = True
        self._writer.close()

    def force_stop(self) -> None:
        if self._process.returncode is None:  # not reaped yet, so the pid still belongs to it
            with suppress(ProcessLookupError, PermissionError):  # macOS denies signals to a group of dead processes
                os.killpg(self._process.pid, signal.SIGKILL)

    def send(self, message: ToChild) -> None:
        if self.is_connected:
            self._writer.write(frame(message))

    async def _listen(self) -> None:
        try:
            while True:
                length = body_length(await self._reader.readexactly(LENGTH_BYTES))
                self._receive(for_parent(await self._reader.readexactly(length)))
        except (asyncio.IncompleteReadError, OSError, msgspec.MsgspecError):
            pass  # it died, was dismissed, or sent an invalid message: it ends in every case
        finally:
            exit_code = await self._reap()
            if self._answer is not None:
                self._settle(ProcessDied(exit_code))

    def _receive(self, message: ToParent) -> None:
        context = self._context
        if context is None:
            return
        match message:
            case Returned(result):
                self._settle(None, result)
            case Raised():
                self._settle(exception_of(message))
            case OfRun():
                if self._of_run is not None:
                    self._of_run(message)
            case Alive() | Progressed() | Logged():
                if isinstance(context, Context):
                    write(message, context)
            case _:
                assert_never(message)

    def _settle(self, error: BaseException | None, result: Any = None) -> None:
        answer, self._answer, self._context, self._of_run = self._answer, None, None, None
        if answer is None or answer.done():
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    async def _reap(self) -> int:
        self._writer.close()
        if self._is_dismissed:
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, EXIT_GRACE_S)
        self.force_stop()
        exit_code = await asyncio.to_thread(self._process.wait)
        os.close(self._lifeline)
        return exit_code


def write(message: Alive | Progressed | Logged, context: Context) -> None:
    """What the child's handler has written becomes the output of its run."""
    output = own_output_of(context)
    match message:
        case Alive():
            output.is_alive()
        case Progressed(progress):
            output.progressed(progress.copy())
        case Logged(text):
            output.logged(text)
        case _:
            assert_never(message)


def exception_of(raised: Raised) -> BaseException:
    """The exception that the worker would have seen if the handler had run in the worker's process."""
    remote = RemoteError(raised.info)
    error: BaseException
    match raised.kind:
        case "snooze":
            return Snooze(raised.delay_s)
        case "stopped":
            return Stopped(raised.info.message)
        case "permanent":
            error = PermanentError(raised.info.message)
        case "retry_later":
            error = RetryLater(raised.info.message, delay_s=raised.delay_s)
        case "error":
            return remote
        case _:
            assert_never(raised.kind)
    error.__cause__ = remote
    return error


def how_it_ended(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    return f"was killed by {name}"
