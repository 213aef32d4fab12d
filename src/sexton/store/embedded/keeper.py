"""The supervisor process of one embedded PostgreSQL: `python -m sexton.store.embedded.keeper FOLDER BINARIES LOCK`.

It waits until no process uses the server, waits a little longer for the next short command, then stops the server and exits.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from sexton.errors import EmbeddedUnavailable

from .folder import USERS_LOCK
from .server import EmbeddedPostgres
from .users import is_same, open_lock

LINGER_S: Final = 5.0  # so that a script with several commands starts the server once


def keep(data_dir: Path, bin_dir: Path, keeper_lock: int) -> None:
    users = open_lock(data_dir, USERS_LOCK)
    while True:
        fcntl.flock(users, fcntl.LOCK_EX)  # waits until the last user has ended
        fcntl.flock(users, fcntl.LOCK_UN)
        time.sleep(LINGER_S)
        with suppress(BlockingIOError):
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
    # A new folder at the same path has its own keeper and users.
    if is_same(users, data_dir / USERS_LOCK):
        _stop(EmbeddedPostgres.at(data_dir, bin_dir))
    # In this order: the next process that gets the users' lock must see that there is no keeper.
    os.close(keeper_lock)
    os.close(users)


def _stop(server: EmbeddedPostgres) -> None:
    with suppress(OSError):  # the folder was deleted, and PostgreSQL ends when it notices
        try:
            server.stop()
        except EmbeddedUnavailable:
            server.kill()


def _into_background() -> None:
    if os.fork():
        os._exit(0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.chdir("/")


if __name__ == "__main__":
    _into_background()
    keep(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
