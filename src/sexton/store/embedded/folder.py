"""The folder of an embedded PostgreSQL: made whole or not at all, never on top of somebody else's files, and open to the
user that runs the server."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from sexton.errors import EmbeddedUnavailable

# PostgreSQL refuses to run as root, so root runs it as this system user, the same one that the wheel would create.
SERVICE_USER: Final = "pgserver"
SOCKET_PATH_LIMIT: Final = 103  # bytes; 107 on Linux, but macOS allows only this many
USERS_LOCK: Final = "sexton-users.lock"
KEEPER_LOCK: Final = "sexton-keeper.lock"

_BEING_MADE, _MADE = ".being-made", ".made"
_OURS: Final = {USERS_LOCK, KEEPER_LOCK, _BEING_MADE, _MADE}
_LAST: Final = "PG_VERSION"  # once this is in its place, all is


def require_ours(data_dir: Path) -> None:
    """Refuses a folder in which somebody keeps other things, before anything in it is changed."""
    if (data_dir / _LAST).exists() or (data_dir / _MADE).exists():
        return
    foreign = sorted(entry.name for entry in data_dir.iterdir() if entry.name not in _OURS)
    if foreign:
        raise EmbeddedUnavailable(
            f"{data_dir} holds other files ({', '.join(foreign[:3])}{', …' if len(foreign) > 3 else ''}); "
            "name an empty or a new folder in SEXTON_DATA_DIR"
        )


def make_contents(data_dir: Path, initdb: Callable[[Path], object]) -> None:
    """Lets `initdb` fill a folder beside, and moves what it made here. A crash in between is resumed or begun anew: PostgreSQL
    cannot tell a half-made folder from a whole one."""
    being_made, made = data_dir / _BEING_MADE, data_dir / _MADE
    if not made.exists():
        if being_made.exists():
            shutil.rmtree(being_made)
        initdb(being_made)
        being_made.rename(made)
    for entry in sorted(made.iterdir(), key=lambda entry: entry.name == _LAST):
        entry.rename(data_dir / entry.name)
    made.rmdir()


def is_made(data_dir: Path) -> bool:
    return (data_dir / _LAST).exists() and not (data_dir / _MADE).exists()


def socket_dir(data_dir: Path) -> Path:
    """The data directory itself, or a private short one whose name follows from it, so that URLs survive a restart."""
    if len(os.fsencode(data_dir / ".s.PGSQL.65535")) <= SOCKET_PATH_LIMIT:
        return data_dir
    owner = data_dir.stat()
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:12]
    directory = Path(tempfile.gettempdir(), f"sexton-{digest}")
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
        os.chown(directory, owner.st_uid, owner.st_gid)
    if directory.lstat().st_uid != owner.st_uid:
        raise EmbeddedUnavailable(f"{directory} belongs to somebody else: remove it, or choose a shorter data directory")
    return directory


def open_to_service_user(data_dir: Path, bin_dir: Path) -> None:
    """As root: give a root-owned data directory to the service user, and let it pass through (not list) the parents."""
    with locked(bin_dir):  # two first starts at once must not both create the user
        try:
            user = pwd.getpwnam(SERVICE_USER)
        except KeyError:
            user = _make_service_user()
    if data_dir.stat().st_uid == 0:
        os.chown(data_dir, user.pw_uid, user.pw_gid)
    for parent in {*data_dir.parents, *bin_dir.parents}:
        mode = parent.stat().st_mode
        if not mode & stat.S_IXOTH:
            parent.chmod(mode | stat.S_IXOTH)


def _make_service_user() -> pwd.struct_passwd:
    command = ["useradd", "--system", "--no-create-home", SERVICE_USER]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise EmbeddedUnavailable(
            f"PostgreSQL does not run as root, and the user {SERVICE_USER!r} for it cannot be made ({error}): "
            "run as an ordinary user, or set SEXTON_DATABASE_URL"
        ) from error
    return pwd.getpwnam(SERVICE_USER)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Let one process at a time in. The lock is on the directory itself: it is there before anything in it."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
