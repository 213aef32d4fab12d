"""The folder of an embedded PostgreSQL: created completely or not at all, never over other files, and accessible to the user
that runs the server."""

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

# PostgreSQL does not run as root, so root runs it as this system user, the same one that the wheel would create.
SERVICE_USER: Final = "pgserver"
SOCKET_PATH_LIMIT: Final = 103  # bytes; 107 on Linux, but macOS allows only this many
USERS_LOCK: Final = "sexton-users.lock"
KEEPER_LOCK: Final = "sexton-keeper.lock"

_BEING_MADE, _MADE = ".being-made", ".made"
_OURS: Final = {USERS_LOCK, KEEPER_LOCK, _BEING_MADE, _MADE}
_LAST: Final = "PG_VERSION"  # moved last: if it exists, the folder is complete


def require_ours(data_dir: Path) -> None:
    """Rejects a folder that contains other files, before anything in it is changed."""
    if (data_dir / _LAST).exists() or (data_dir / _MADE).exists():
        return
    others = sorted(entry.name for entry in data_dir.iterdir() if entry.name not in _OURS)
    if others:
        raise EmbeddedUnavailable(
            f"{data_dir} contains other files ({', '.join(others[:3])}{', …' if len(others) > 3 else ''}); "
            "set SEXTON_DATA_DIR to an empty or a new folder"
        )


def make_contents(data_dir: Path, initdb: Callable[[Path], object]) -> None:
    """Runs `initdb` in a temporary folder and moves the result here. After a crash, the move is resumed or everything starts
    again: PostgreSQL cannot detect an incomplete folder."""
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
    """The data directory itself, or a private short one with a name derived from it, so that URLs stay the same."""
    if len(os.fsencode(data_dir / ".s.PGSQL.65535")) <= SOCKET_PATH_LIMIT:
        return data_dir
    owner = data_dir.stat()
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:12]
    directory = Path(tempfile.gettempdir(), f"sexton-{digest}")
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
        os.chown(directory, owner.st_uid, owner.st_gid)
    if directory.lstat().st_uid != owner.st_uid:
        raise EmbeddedUnavailable(f"{directory} belongs to another user; remove it, or choose a shorter data directory")
    return directory


def open_to_service_user(data_dir: Path, bin_dir: Path) -> None:
    """As root: gives a root-owned data directory to the service user, and lets it enter (not list) the parent folders."""
    with locked(bin_dir):  # two processes must not both create the user
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
            f"PostgreSQL does not run as root, and the user {SERVICE_USER!r} for it cannot be created ({error}); "
            "run as an ordinary user, or set SEXTON_DATABASE_URL"
        ) from error
    return pwd.getpwnam(SERVICE_USER)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Allows one process at a time. The lock is on the directory itself, because it exists before its files."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
