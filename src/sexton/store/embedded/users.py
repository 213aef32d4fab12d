"""The users of an embedded PostgreSQL: every process that uses it holds a shared lock, which the kernel frees when the process
ends in any way. A keeper process waits for the exclusive lock and then stops the server, so that no server is left behind.

A process that joins while the server is being stopped waits until it has stopped.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from sexton.errors import EmbeddedUnavailable

from .folder import KEEPER_LOCK, USERS_LOCK

LAST_TRIES: Final = 10  # for the exclusive lock; the keeper may hold it for a moment
LAST_PAUSE_S: Final = 0.02

_held: dict[tuple[int, Path], Membership] = {}  # by process: a fork shares its parent's lock and needs its own
_lock = threading.Lock()


class Membership:
    """This process as a user of one server. There is one per process and server."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self._descriptor = open_lock(data_dir, USERS_LOCK)
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    @property
    def is_current(self) -> bool:
        """False if the folder was deleted meanwhile, and perhaps created again."""
        return is_same(self._descriptor, self.data_dir / USERS_LOCK)

    def become_last(self) -> bool:
        """True if no other process uses the server; none can start to use it until `end`."""
        for _ in range(LAST_TRIES):
            with suppress(BlockingIOError):
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            time.sleep(LAST_PAUSE_S)
        return False

    def end(self) -> None:
        with _lock:
            _held.pop((os.getpid(), self.data_dir), None)
        os.close(self._descriptor)


def join(data_dir: Path) -> Membership:
    """Waits while the server is being stopped."""
    key = os.getpid(), data_dir
    with _lock:
        membership = _held.get(key)
        if membership is None or not membership.is_current:
            membership = _held[key] = Membership(data_dir)
        return membership


def ensure_keeper(data_dir: Path, bin_dir: Path) -> None:
    """The keeper's lock is taken here and passed to the keeper process, so there is never a second keeper."""
    descriptor = open_lock(data_dir, KEEPER_LOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return
    try:
        # It returns when the keeper is in the background. Its own session keeps Ctrl-C away.
        started = subprocess.run(
            [sys.executable, "-P", "-m", "sexton.store.embedded.keeper", str(data_dir), str(bin_dir), str(descriptor)],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=[descriptor],
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    if started.returncode != 0:
        output = started.stderr.strip().splitlines() or [f"exit code {started.returncode}"]
        raise EmbeddedUnavailable(f"the keeper of the embedded PostgreSQL in {data_dir} could not be started: {output[-1]}")


def open_lock(data_dir: Path, name: str) -> int:
    """As root, the file gets the owner of the folder, like all other files there."""
    descriptor = os.open(data_dir / name, os.O_RDWR | os.O_CREAT, 0o600)
    if os.geteuid() == 0:
        owner = data_dir.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
    return descriptor


def is_same(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat()
    except OSError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)
