"""Processes that end with the drill, even if it is killed, and a folder that is removed with them.

PostgreSQL refuses to run as root and Patroni starts it in a session of its own, so neither a signal to the session nor the
death of the parent reaches it. A guard process therefore waits for the end of its own input, kills every process whose working
directory is in the folder, and removes the folder."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

ROLE = "postgres"  # created by Debian's package
ROOM = 6 << 30  # bytes
KEEP = "keep"  # a file of this name keeps the folder

GUARD = """
cat >/dev/null
for _ in 1 2 3; do
    for process in /proc/[0-9]*; do
        case "$(readlink "$process/cwd")" in "$1" | "$1"/*) kill -KILL "${process#/proc/}" 2>/dev/null ;; esac
    done
    sleep 0.1
done
[ -e "$1/keep" ] || rm -rf "$1"
"""


@contextmanager
def guarded_folder() -> Iterator[Path]:
    """The parent folder of all files of the drill. It is in memory if there is room, because three servers on one disk wait for
    each other as they would not on three machines. The drill kills only processes, and these lose nothing that they wrote."""
    folder = Path(tempfile.mkdtemp(prefix="sexton-failover-", dir=_memory_folder()))
    folder.chmod(0o755)
    with subprocess.Popen(["sh", "-c", GUARD, "guard", str(folder)], stdin=subprocess.PIPE, cwd="/", start_new_session=True):
        yield folder  # the guard waits for the end of its input, which Popen closes at the end


def _memory_folder() -> str | None:
    try:
        room = shutil.disk_usage("/dev/shm").free
    except OSError:
        return None
    return "/dev/shm" if min(room, psutil.virtual_memory().available) > ROOM else None


def own_folder(path: Path) -> Path:
    """A new folder that the servers' user can write to."""
    path.mkdir()
    if os.geteuid() == 0:
        shutil.chown(path, ROLE, ROLE)
    path.chmod(0o700)
    return path


def private_file(path: Path, text: str) -> str:
    """A file that only the servers' user can read: it may hold passwords."""
    path.touch(mode=0o600)
    path.write_text(text)
    if os.geteuid() == 0:
        shutil.chown(path, ROLE, ROLE)
    return str(path)


def free_ports(count: int) -> list[int]:
    """Free ports on the loopback interface. All are bound at the same time, so that they differ."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class Process:
    """One named server, with its working directory in the guarded folder. Only the main thread may start it: the kernel treats
    the end of the thread that started it as the death of the parent."""

    def __init__(self, command: list[str], folder: Path, log: Path) -> None:
        self._command, self._folder, self._log = command, folder, log
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        user = ROLE if os.geteuid() == 0 else None
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self._folder), "LC_ALL": "C.UTF-8"}
        with self._log.open("ab") as log:
            self._popen = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self._command],
                user=user,
                group=user,
                extra_groups=[] if user else None,
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        assert self._popen is not None, "not started yet"
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def kill(self) -> None:
        if self.is_running:
            os.killpg(self.pid, signal.SIGKILL)
        if self._popen is not None:
            self._popen.wait()


def family(pid: int) -> list[psutil.Process]:
    """A process and all its descendants; empty if the process has ended."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def signal_all(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue
