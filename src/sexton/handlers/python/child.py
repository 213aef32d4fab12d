"""One process of the pool: `python -m sexton.handlers.python.child`, started by `process_pool` alone.

The main thread runs one call after the other. A second thread listens, so that a request to stop arrives during a call.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.machinery
import importlib.util
import inspect
import operator
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import msgspec

from sexton.domain.outcome import storable
from sexton.errors import PermanentError
from sexton.handlers.context import Context, ask_to_stop
from sexton.handlers.forked import calls_a_handler, end_children_that_return, end_if_child
from sexton.handlers.live_output import LiveOutput
from sexton.handlers.parent_death import die_with_parent
from sexton.handlers.tracebacks import drop_tracebacks

from . import messages
from .process_state import ProcessState

# The name multiprocessing gives a main module in its children: `if __name__ == "__main__"` stays false, and libraries know it.
MAIN = "__mp_main__"


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGTERM):
        # The worker decides when this process ends. Not SIG_IGN: programs that the handler starts would inherit it.
        signal.signal(number, lambda *_: None)
    link = Link(_take_over_stdin())
    # Otherwise a process that the handler forks would hide the death of this process from the worker.
    os.register_at_fork(after_in_child=link.close)
    end_children_that_return()
    attempts: SimpleQueue[Attempt | None] = SimpleQueue()
    match link.receive():
        case messages.Hello(search_path, argv):
            sys.path[:], sys.argv[:] = search_path, argv
        case _:
            return
    threading.Thread(target=_listen, args=(link, attempts), name="sexton-listener", daemon=True).start()
    state = ProcessState()
    while (attempt := attempts.get()) is not None:
        answer = attempt.run()
        for what in state.changes():  # the next call may be of another task
            fault = state.restore(what)
            if fault is not None:
                sys.stderr.write(
                    f"sexton: {attempt.task} changed the {what} of its process, which cannot be restored: {fault}\n"
                )
        link.send_frame(answer)


def _take_over_stdin() -> socket.socket:
    taken = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return taken


def _listen(link: Link, attempts: SimpleQueue[Attempt | None]) -> None:
    current: Attempt | None = None
    while (message := link.receive()) is not None:
        match message:
            case messages.Start():
                current = Attempt(message, link)
                attempts.put(current)
            case messages.Stop() if current is not None:
                current.ask_to_stop()
            case _:
                pass
    if current is not None and not current.is_over:  # the socket closes during a call only if the worker is dead
        os.killpg(0, signal.SIGKILL)
    attempts.put(None)


class Link:
    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._lock = threading.Lock()

    def send(self, message: messages.ToParent) -> None:
        self.send_frame(messages.frame(message))

    def send_frame(self, data: bytes) -> None:
        with self._lock:
            self._peer.sendall(data)

    def receive(self) -> messages.ToChild | None:
        """The next message; `None` when the worker has ended or has closed the socket."""
        header = self._read(messages.LENGTH_BYTES)
        body = None if header is None else self._read(messages.body_length(header))
        return None if body is None else messages.for_child(body)

    def close(self) -> None:
        self._peer.close()

    def _read(self, length: int) -> bytes | None:
        received = bytearray()
        while len(received) < length:
            try:
                part = self._peer.recv(length - len(received))
            except OSError:
                return None
            if not part:
                return None
            received += part
        return bytes(received)


class Relay(LiveOutput):
    """Sends the handler's output to the worker until its call ends. Its leftover threads must not write to the next call."""

    __slots__ = ("_link", "_speaking", "is_over")

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._speaking = threading.Lock()
        self.is_over = False

    def is_alive(self) -> None:
        self._pass_on(messages.Alive())

    def progressed(self, progress: msgspec.Raw) -> None:
        self._pass_on(messages.Progressed(progress))

    def logged(self, text: str) -> None:
        self._pass_on(messages.Logged(storable(text)))

    def end(self) -> None:
        with self._speaking:
            self.is_over = True

    def _pass_on(self, message: messages.ToParent) -> None:
        with self._speaking:
            if not self.is_over:
                self._link.send(message)


class Attempt:
    def __init__(self, start: messages.Start, link: Link) -> None:
        self._start = start
        self._relay = Relay(link)
        self._context = Context(start.call, new_output=lambda: self._relay)
        self._cancel_task: Callable[[], object] | None = None

    @property
    def task(self) -> str:
        return self._start.call.task

    @property
    def is_over(self) -> bool:
        return self._relay.is_over

    def ask_to_stop(self) -> None:
        ask_to_stop(self._context)
        if self._cancel_task is not None:
            with suppress(RuntimeError):  # its loop was just closed
                self._cancel_task()

    @calls_a_handler
    def run(self) -> bytes:
        """The encoded answer."""
        try:
            fn = _find(self._start)
            self._context.check_cancelled()
            if inspect.iscoroutinefunction(fn):
                result, exit_ = asyncio.run(self._run_async(fn))
                if exit_ is not None:
                    raise exit_
            else:
                result = fn(self._context, **self._start.call.arguments)
            answer = _answer(result)
        except BaseException as error:  # sys.exit() and all: it ends the call, not the process
            end_if_child(error)
            answer = messages.frame(messages.Raised.of(error))
            drop_tracebacks(error)
        self._relay.end()
        return answer

    async def _run_async(self, fn: Callable[..., Any]) -> tuple[Any, BaseException | None]:
        loop = asyncio.get_running_loop()
        task = loop.create_task(_with_exit(fn(self._context, **self._start.call.arguments)))
        self._cancel_task = lambda: loop.call_soon_threadsafe(task.cancel)
        if self._context.cancelled:  # the request came before there was a task
            task.cancel()
        try:
            return await task
        finally:
            self._cancel_task = None  # it refers to the task, and the task to an exception and its frames


async def _with_exit(handler: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """The result, or `sys.exit()` as a value: asyncio would end the event loop for it, and keep the frames in a cycle."""
    try:
        return await handler, None
    except (SystemExit, KeyboardInterrupt) as error:
        return None, error


def _answer(result: Any) -> bytes:
    try:
        return messages.frame(messages.Returned(result))
    except (TypeError, ValueError) as error:
        # Permanent, as in the worker: the call has had its effect, and another attempt would only repeat it.
        raise PermanentError(f"result: cannot be encoded as JSON: {error}") from None


def _find(start: messages.Start) -> Callable[..., Any]:
    module = importlib.import_module(start.module) if start.file is None else _load_main(start.file)
    found = operator.attrgetter(start.qualname)(module)
    fn: Callable[..., Any] = getattr(found, "fn", found)  # a task contains its function
    return fn


def _load_main(file: str) -> ModuleType:
    if MAIN in sys.modules:
        return sys.modules[MAIN]
    spec = importlib.util.spec_from_loader(MAIN, importlib.machinery.SourceFileLoader(MAIN, file))
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MAIN] = sys.modules["__main__"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[MAIN]
        raise
    return module


if __name__ == "__main__":
    main()
