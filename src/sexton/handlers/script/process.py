"""One script under way, as the worker sees it: its keeper, its output, and how it is asked and forced to stop."""

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
OUTPUT_GRACE_S = 1.0  # for the end of its output, when it has ended but something that we may not kill holds on to it


class Order(msgspec.Struct, frozen=True):
    """What the keeper is to start. It goes through a socket: the arguments of a process are everybody's to read."""

    argv: list[str]
    environment: Mapping[str, str]
    directory: str
    user: str | int | None
    group: str | int | None
    limits: Mapping[str, int]


class Word(msgspec.Struct):
    """What a keeper says: that it has started the script, that it could not, or that all has ended."""

    started: int | None = None
    refused: str | None = None
    errno: int | None = None
    ended: int | None = None


class NotStarted(SextonError):
    """The command cannot be started here: a file is missing, or may not be executed. Another worker may be set up better."""

    code = "not_started"


class ScriptProcess:
    """From its start to the end of all it has started."""

    def __init__(self, keeper: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._keeper = keeper
        self._control = control
        self._script: int | None = None  # its process, which leads its group; none before it runs and once all has ended
        self._is_asked = False

    @classmethod
    async def spawn(cls, payload: bytes, output: Listener, errors: Listener) -> ScriptProcess:
        """On the event loop's thread only: the kernel ties the keeper's life to the thread that made it."""
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
        """Its exit code, once nothing of it is left; negative for the signal that killed it."""
        loop = asyncio.get_running_loop()
        ended: int | None = None
        received = b""
        try:
            await loop.sock_sendall(self._control, msgspec.json.encode(order) + b"\n")
            while ended is None and (part := await loop.sock_recv(self._control, 4096)):
                *lines, received = (received + part).split(b"\n")
                for line in lines:
                    ended = self._hear(msgspec.json.decode(line, type=Word))
        except OSError:
            pass  # the keeper is gone
        finally:
            if ended is None:  # without its keeper a script dies, but not what it has started
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
        """The group by ourselves; who left it, by the keeper, which ends all when our side closes."""
        self._signal(signal.SIGKILL)
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def _hear(self, word: Word) -> int | None:
        if word.refused is not None:
            raise _refusal(word.refused, word.errno)
        if word.started is not None:
            self._script = word.started
            if self._is_asked:
                self._signal(signal.SIGTERM)
        return word.ended

    def _signal(self, number: int) -> None:
        if self._script is not None:
            with suppress(ProcessLookupError, PermissionError):  # all dead, or become another user
                os.killpg(self._script, number)


def _refusal(words: str, number: int | None) -> SextonError:
    return PermanentError("payload: too long for the arguments of a command") if number == errno.E2BIG else NotStarted(words)


@contextmanager
def _file_of(payload: bytes) -> Iterator[int]:
    """A file rather than a pipe: a script that does not read it, or closes it, is nobody's trouble."""
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
    """The writing end, which is closed here when the script has it."""
    reading, writing = os.pipe()
    held.callback(os.close, writing)
    await asyncio.get_running_loop().connect_read_pipe(lambda: listener, os.fdopen(reading, "rb", buffering=0))
    return writing
