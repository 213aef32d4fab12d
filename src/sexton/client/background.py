"""A private event loop on a daemon thread, for callers without one: `submit_sync` and the other `_sync` calls run there."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """Started by the first call, and again after a fork, which copies no threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: _LoopThread | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._thread is None or self._thread.pid != os.getpid():
                self._thread = _LoopThread()
            future = asyncio.run_coroutine_threadsafe(work, self._thread.loop)
        try:
            return future.result()
        except BaseException:  # also Ctrl-C: the call has no caller any more, so it is cancelled
            future.cancel()
            raise

    def stop(self, cleanup: Coroutine[Any, Any, None]) -> None:
        """Runs `cleanup` there and ends the thread. Calls of other threads that are still in progress are cancelled."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is None or thread.pid != os.getpid():
            cleanup.close()
            return
        try:
            asyncio.run_coroutine_threadsafe(cleanup, thread.loop).result()
        finally:
            thread.end()


class _LoopThread:
    def __init__(self) -> None:
        self.pid = os.getpid()
        begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=asyncio.run, args=(_serve(begun),), name="sexton client", daemon=True)
        self._thread.start()
        self.loop, self._enough = begun.result()

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self._enough.set)
        self._thread.join()


async def _serve(begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    enough = asyncio.Event()
    begun.set_result((asyncio.get_running_loop(), enough))
    await enough.wait()
