"""A process of ours dies with the worker that started it, be it by kill -9, and takes along what it has started itself.

Otherwise a lost run would go on here while its next attempt runs elsewhere.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import sys

_PR_SET_PDEATHSIG = 1
_F_SETSIG = 10  # Linux; not in Python's fcntl


def die_with_parent(lifeline: int) -> None:
    """`lifeline` is the reading end of a pipe whose other end only the parent holds and never writes to. The caller leads
    its process group. Elsewhere than on Linux only the case of a parent already dead is covered here."""
    os.set_inheritable(lifeline, False)
    if sys.platform == "linux":
        # Both, since each has a hole. The kernel kills the whole group when the pipe closes, even while our threads are
        # stuck in C code; but a process forked by the parent may hold the pipe open for a while. The death signal cannot be
        # held back, but reaches only us. It comes when the thread that made us ends, and the pipe closes only with the last
        # thread: so it stops us instead of killing us, for a dead reader would leave nobody for the pipe to kill the group by.
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, _F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGSTOP)
    look = select.poll()  # select.select knows only the first 1,024 descriptors
    look.register(lifeline, select.POLLIN)
    if look.poll(0):  # closed before we were listening
        os._exit(1)
