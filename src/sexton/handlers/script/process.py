"""One running script, on the worker's side: its keeper, its output, and how it is asked and forced to stop."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec

from sexton.errors import PermanentError, SextonError
from sexton.handlers.python.process_pool import ProcessDied

from .output import Listener

KEEPER = Path(__file__).with_name("keeper.py")
OUTPUT_GRACE_S = 1.0  # wait for the end of the output after the script: a process that cannot be killed may keep it open


class Order(msgspec.Struct, frozen=True):
    """What the keeper starts. It is sent through a socket, because all users can read the arguments of a process."""

    argv: list[str]
    environment: Mapping[str, str]
    directory: str
    user: str | int | None
    group: str | int | None
    limits: Mapping[str, int]


class KeeperMessage(msgspec.Struct):
    """A message of the keeper: the script has started, could not start, or all of it has ended."""

    started: int | None = None
    refused: str | None = None
    errno: int | None = None
    ended: int | None = None


class NotStarted(SextonError):
    """The command cannot be started on this worker: a file is missing or not executable. Another worker may be able to."""

    code = "not_started"


class ScriptProcess:
    """One script, until all processes that it started have ended."""

    def __init__(self, keeper: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._keeper = keeper
        self._control = control
        self._script: int | None = None  # its pid, which is also its group; `None` before it starts and after all has ended
        self._is_asked = False

    @classmethod
    async def spawn(cls, payload: bytes, output: Listener, errors: Listener) -> ScriptProcess:
        """Only on the event loop's thread: the kernel ends the keeper together with the thread that started it."""
        with ExitStack() as held:
            stdin = held.enter_context(_file_of(payload))
            stdout, stderr = await _pipe_to(output, held), await _pipe_to(errors, held)
            ours, theirs = socket.socketpair()
            held.enter_context(theirs)
            ours.setblocking(False)
            try:
                keeper = subprocess.Popen(  # noqa: ASYNC220  blocks for the 2 ms until exec; must be this thread
                    [sys.executable, "-I", "-S", "-X", "utf8", str(KEEPER), str(theirs.fileno()), str(os.getpid())],
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    env={},
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # keeps the terminal's Ctrl-C away
                )
            except BaseException:
                ours.close()
                raise
        return cls(keeper, ours)

    async def run(self, order: Order) -> int:
        """Its exit code, after all of its processes have ended; negative for the signal that killed it."""
        loop = asyncio.get_running_loop()
        ended: int | None = None
        received = b""
        try:
            await loop.sock_sendall(self._control, msgspec.json.encode(order) + b"\n")
            while ended is None and (part := await loop.sock_recv(self._control, 4096)):
                *lines, received = (received + part).split(b"\n")
                for line in lines:
                    ended = self._receive(msgspec.json.decode(line, type=KeeperMessage))
        except OSError:
            pass  # the keeper has died
        finally:
            if ended is None:  # without its keeper the script dies, but not the processes it started
                self._signal(signal.SIGKILL)
            self._script = None
            self._control.close()
            code = await asyncio.to_thread(self._keeper.wait)
        if ended is None:
            raise ProcessDied(code)
        return ended

    def ask_to_stop(self) -> None:
        self._is_asked = True
        self._signal(signal.SIGTERM)

    def force_stop(self) -> None:
        """Kills the group. The keeper ends the processes that left it, because this side of the socket closes."""
        self._signal(signal.SIGKILL)
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def _receive(self, message: KeeperMessage) -> int | None:
        if message.refused is not None:
            raise _refusal(message.refused, message.errno)
        if message.started is not None:
            self._script = message.started
            if self._is_asked:
                self._signal(signal.SIGTERM)
        return message.ended

    def _signal(self, number: int) -> None:
        if self._script is not None:
            with suppress(ProcessLookupError, PermissionError):  # all are dead, or run as another user
                os.killpg(self._script, number)


def _refusal(message: str, number: int | None) -> SextonError:
    return PermanentError("payload: is too long for a command's arguments") if number == errno.E2BIG else NotStarted(message)


@contextmanager
def _file_of(payload: bytes) -> Iterator[int]:
    """A file, not a pipe: a script may leave it unread or close it without an error."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("payload")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(payload)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


async def _pipe_to(listener: Listener, held: ExitStack) -> int:
    """The writing end, which is closed here after the script has it."""
    reading, writing = os.pipe()
    held.callback(os.close, writing)
    await asyncio.get_running_loop().connect_read_pipe(lambda: listener, os.fdopen(reading, "rb", buffering=0))
    return writing
