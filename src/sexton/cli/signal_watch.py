"""Hears signals in a thread of its own. Python calls a signal handler on the main thread only, between two steps of its code:
never, while a job's handler keeps that thread in a C call that the signal does not end.

The C part of Python writes each signal to a descriptor (`signal.set_wakeup_fd`). The event loop uses that, too, so it gets from
here what it would have read. A call that also holds the interpreter lock stops this thread, too. Then only SIGKILL helps.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class SignalWatch:
    def __init__(self, heard: Callable[[int], None]) -> None:
        """`heard` is called in the thread."""
        self._heard = heard
        self._reads, self._writes = socket.socketpair()
        self._writes.setblocking(False)
        self._reads.setsockopt(socket.SOL_SOCKET, _PASS_CREDENTIALS, 1)
        self._of_loop = -1

    @classmethod
    def start(cls, heard: Callable[[int], None]) -> SignalWatch | None:
        """`None` where a process that was just forked could not be told from this one."""
        if _PASS_CREDENTIALS is None:
            return None
        watch = cls(heard)
        threading.Thread(target=watch._listen, name="sexton-signals", daemon=True).start()
        return watch

    def attend(self) -> None:
        """On the main thread, each time after the event loop has set its own descriptor."""
        before = signal.set_wakeup_fd(self._writes.fileno(), warn_on_full_buffer=False)
        if before != self._writes.fileno():
            self._of_loop = before

    def _listen(self) -> None:
        while True:
            numbers, ancillary, _, _ = self._reads.recvmsg(64, socket.CMSG_SPACE(_CREDENTIALS.size))
            if not any(_pid(data) == os.getpid() for _, _, data in ancillary):
                continue  # a process that a handler forked shares the descriptor for a moment
            if self._of_loop >= 0:
                with suppress(OSError):
                    os.write(self._of_loop, numbers)
            for number in numbers:
                self._heard(number)


def _pid(data: bytes) -> int:
    return int(_CREDENTIALS.unpack(data)[0])


_PASS_CREDENTIALS: Any = getattr(socket, "SO_PASSCRED", None)
