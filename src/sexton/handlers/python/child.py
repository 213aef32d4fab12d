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
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import msgspec

from sexton.domain.batch import run_arguments
from sexton.domain.outcome import storable
from sexton.errors import PermanentError
from sexton.handlers.context import Call, Context, Stoppable, ask_to_stop
from sexton.handlers.forked import calls_a_handler, end_children_that_return, end_if_child
from sexton.handlers.live_output import LiveOutput
from sexton.handlers.parent_death import die_with_parent
from sexton.handlers.tracebacks import drop_tracebacks

from . import messages
from .batch.context import BatchContext, Run
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
            case messages.StartBatch():
                current = BatchAttempt(message, link)
                attempts.put(current)
            case messages.Stop() if current is not None:
                current.ask_to_stop()
            case messages.StopRun(index) if isinstance(current, BatchAttempt):
                current.stop_run(index)
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

    __slots__ = ("_index", "_link", "_speaking", "is_over")

    def __init__(self, link: Link, index: int | None = None) -> None:
        """`index`: of one run of a batch."""
        super().__init__()
        self._link = link
        self._index = index
        self._speaking = threading.Lock()
        self.is_over = False

    def is_alive(self) -> None:
        self._pass_on(messages.Alive())

    def progressed(self, progress: msgspec.Raw) -> None:
        self._pass_on(messages.Progressed(progress))

    def logged(self, text: str) -> None:
        self._pass_on(messages.Logged(storable(text)))

    def decide(self, decision: messages.Returned | messages.Raised) -> None:
        self._pass_on(decision)

    def end(self) -> None:
        with self._speaking:
            self.is_over = True

    def _pass_on(self, message: messages.Word) -> None:
        with self._speaking:
            if not self.is_over:
                self._link.send(message if self._index is None else messages.OfRun(self._index, message))


class Attempt:
    def __init__(self, start: messages.Start, link: Link) -> None:
        relay = Relay(link)
        self._where: messages.Start | messages.StartBatch = start
        self._relays = [relay]
        self._context: Stoppable = Context(start.call, new_output=lambda: relay)
        self._arguments = start.call.arguments
        self._cancel_task: Callable[[], object] | None = None
        self.task = start.call.task

    @property
    def is_over(self) -> bool:
        return self._relays[0].is_over

    def ask_to_stop(self) -> None:
        ask_to_stop(self._context)
        if self._cancel_task is not None:
            with suppress(RuntimeError):  # its loop was just closed
                self._cancel_task()

    @calls_a_handler
    def run(self) -> bytes:
        """The encoded answer."""
        try:
            fn = _find(self._where)
            self._context.check_cancelled()
            call = self._bind(fn)
            if inspect.iscoroutinefunction(fn):
                result, exit_ = asyncio.run(self._run_async(call()))
                if exit_ is not None:
                    raise exit_
            else:
                result = call()
            answer = _answer(result)
        except BaseException as error:  # sys.exit() and all: it ends the call, not the process
            end_if_child(error)
            answer = messages.frame(messages.Raised.of(error))
            drop_tracebacks(error)
        for relay in self._relays:
            relay.end()
        return answer

    def _bind(self, fn: Callable[..., Any]) -> Callable[[], Any]:
        return partial(fn, self._context, **self._arguments)

    async def _run_async(self, handler: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
        loop = asyncio.get_running_loop()
        task = loop.create_task(_with_exit(handler))
        self._cancel_task = lambda: loop.call_soon_threadsafe(task.cancel)
        if self._context.cancelled:  # the request came before there was a task
            task.cancel()
        try:
            return await task
        finally:
            self._cancel_task = None  # it refers to the task, and the task to an exception and its frames


class BatchAttempt(Attempt):
    """One call for several runs. The worker has the last word: it refuses what is said about a run that has left the call."""

    def __init__(self, start: messages.StartBatch, link: Link) -> None:
        self._where = start
        self._relays = [Relay(link, index) for index in range(len(start.runs))]
        self._contexts = [_context_of(call, relay) for call, relay in zip(start.runs, self._relays, strict=True)]
        self._payloads = [call.arguments for call in start.runs]
        self._open = set(range(len(start.runs))).difference(start.left)
        self._lock = threading.Lock()
        self._runs: list[Run[Any]] = []
        self._context = BatchContext(start.runs[0].task, self._runs, self._decide, self._open.__contains__)
        self._cancel_task = None
        self.task = start.runs[0].task
        for index in start.left:
            ask_to_stop(self._contexts[index])

    def ask_to_stop(self) -> None:
        for index in tuple(self._open):
            ask_to_stop(self._contexts[index])
        super().ask_to_stop()

    def stop_run(self, index: int) -> None:
        ask_to_stop(self._contexts[index])
        self._take(index)

    def _bind(self, fn: Callable[..., Any]) -> Callable[[], Any]:
        arguments = run_arguments(fn)
        together = enumerate(zip(self._contexts, self._payloads, strict=True))
        self._runs += [Run(context, arguments.read(payload), index) for index, (context, payload) in together]
        return partial(fn, self._context, self._runs)

    def _decide(self, index: int, result: Any, error: BaseException | None) -> bool:
        decision = messages.Returned(result) if error is None else messages.Raised.of(error)
        try:
            messages.frame(decision)
        except (TypeError, ValueError) as fault:
            decision = messages.Raised.of(PermanentError(f"result: cannot be encoded as JSON: {fault}"))
        if not self._take(index):
            return False
        self._relays[index].decide(decision)
        return True

    def _take(self, index: int) -> bool:
        with self._lock:
            if index not in self._open:
                return False
            self._open.discard(index)
            return True


def _context_of(call: Call, relay: Relay) -> Context:
    return Context(call, new_output=lambda: relay)


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


def _find(start: messages.Start | messages.StartBatch) -> Callable[..., Any]:
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
