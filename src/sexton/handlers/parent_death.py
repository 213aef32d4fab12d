"""A child process dies with the worker that started it, also after kill -9, together with the processes it has started.

Otherwise a lost run would continue here while its next attempt runs elsewhere.
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
    """`lifeline` is the reading end of a pipe. Only the parent holds the other end, and it never writes to it. The caller
    leads its process group. On systems other than Linux, only a parent that is already dead is detected here."""
    os.set_inheritable(lifeline, False)
    if sys.platform == "linux":
        # Two mechanisms, because each has a gap. When the pipe closes, the kernel kills the whole group, even while threads
        # are stuck in C code; but a process forked by the parent may keep the pipe open for a while. The death signal cannot
        # be delayed, but reaches only this process. It comes when the thread that started this process ends, while the pipe
        # closes only with the last thread. So the signal is SIGSTOP, not SIGKILL: the pipe needs a living reader to kill the
        # group.
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, _F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGSTOP)
    look = select.poll()  # select.select supports only the first 1,024 descriptors
    look.register(lifeline, select.POLLIN)
    if look.poll(0):  # closed before this process listened
        os._exit(1)
