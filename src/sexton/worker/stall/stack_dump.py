"""Keeps the stack of a worker that stands still as a whole, because a C call does not let go of Python's interpreter lock.

No Python code runs then, also not the heartbeat's. `faulthandler` has a thread of its own that needs no lock: the pulse of the
event loop arms it ahead, and it writes the stacks to a file if the pulse does not come back in time. The loop reads the file
when it is back. If the process is killed before, the next worker process on this machine finds the file.
"""

from __future__ import annotations

import faulthandler
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sexton.clock import Clock

ARM_S = 1.0  # between two times of arming; each starts a thread
_SUFFIX = ".stack"


class StackDump:
    def __init__(self, file: int, path: Path, *, after_s: float, clock: Clock) -> None:
        self._file, self._path, self._after_s, self._clock = file, path, after_s, clock
        self._arm_s = min(ARM_S, after_s / 4)
        self._armed_at = float("-inf")

    @classmethod
    def open(cls, app: str, *, after_s: float, clock: Clock) -> StackDump | None:
        """`app`: whose later processes may read it, see `name_of`. `None` if this process cannot write files."""
        try:
            path = _folder() / f"{app}-{os.getpid()}{_SUFFIX}"
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held until this process ends
            os.ftruncate(file, 0)
        except OSError:  # another worker in this process, or one with this number in another container
            os.close(file)
            return None
        return cls(file, path, after_s=after_s, clock=clock)

    def arm(self) -> None:
        """From now on `after_s` count again."""
        now = self._clock.monotonic()
        if now - self._armed_at >= self._arm_s:
            self._armed_at = now
            faulthandler.dump_traceback_later(self._after_s, file=self._file)

    def take(self) -> str | None:
        """What was written since the last time."""
        if not os.fstat(self._file).st_size:
            return None
        faulthandler.cancel_dump_traceback_later()  # waits for the watchdog, which writes line by line
        self._armed_at = float("-inf")
        text = os.pread(self._file, os.fstat(self._file).st_size, 0).decode(errors="replace")
        os.ftruncate(self._file, 0)
        return text

    def close(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        self._path.unlink(missing_ok=True)
        os.close(self._file)


def name_of(app: str, database_url: str) -> str:
    """Only a process of the same app knows the tasks of a dump, and only on the same database it is news."""
    return hashlib.sha256(f"{app} {database_url}".encode()).hexdigest()[:16]


def left_behind(app: str) -> Iterator[tuple[int, str]]:
    """The dumps of processes of this app that have ended: process id and text. Each is found once."""
    try:
        paths = sorted(_folder().glob(f"{app}-*{_SUFFIX}"))
    except OSError:
        return
    for path in paths:
        with suppress(OSError, ValueError):
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its process is alive
                text = file.read().decode(errors="replace")
                path.unlink()
            if text:
                yield int(path.name.removesuffix(_SUFFIX).rpartition("-")[2]), text


def _folder() -> Path:
    """Of this user only: a stack shows names of files and functions."""
    folder = Path(tempfile.gettempdir()) / f"sexton-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    return folder
