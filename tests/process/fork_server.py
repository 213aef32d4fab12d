"""Starts members of a cluster by fork from a process that has already imported Sexton: imports are most of the time of a start,
and these tests start hundreds of members. Each member is a separate process, with its own session, environment and log, and the
kernel kills it when the server ends. The server ends with the process that started it.

`tests/process/test_dev.py`, `tests/process/test_depth.py`, `tests/docs` and `python -m chaos` start members by exec, as users
do."""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import sexton
from sexton.cli.main import entry_point as run

ROOT = Path(__file__).parents[2]
PR_SET_PDEATHSIG = 1


class ForkServer:
    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "tests.process.fork_server", str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], start_new_session=True)
        self._socket, self._unread = ours, b""
        self._codes: dict[int, int] = {}  # exit codes of ended members, by pid

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    def start(self, arguments: list[str], environment: dict[str, str], log_path: Path) -> ForkedProcess:
        request = {"arguments": arguments, "environment": environment, "log": str(log_path)}
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        while (pid := self._hear()) is None:
            pass
        return ForkedProcess(self, pid)

    def code_of(self, pid: int, *, wait: bool) -> int | None:
        while pid not in self._codes and (wait or self._has_more()):
            self._hear()
        return self._codes.get(pid)

    def _has_more(self) -> bool:
        return b"\n" in self._unread or bool(select.select([self._socket], [], [], 0)[0])

    def _hear(self) -> int | None:
        """The pid of a member, if the server reports that it has just started."""
        while b"\n" not in self._unread:
            received = self._socket.recv(65536)
            if not received:
                raise RuntimeError("the fork server has ended")
            self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, int] = json.loads(line)
        if "code" in answer:
            self._codes[answer["pid"]] = answer["code"]
            return None
        return answer["pid"]


class ForkedProcess:
    """The part of `subprocess.Popen` that a cluster needs."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server, self.pid = server, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.code_of(self.pid, wait=False)
        return self.returncode

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = self._server.code_of(self.pid, wait=True)
        assert self.returncode is not None
        return self.returncode


def _serve(connection: socket.socket) -> dict[str, Any] | None:
    """In the server: returns `None` when there are no more requests. In a member: returns what it runs."""
    wakes, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    requests = b""
    while True:
        readable, _, _ = select.select([connection.fileno(), wakes], [], [])
        if wakes in readable:
            os.read(wakes, 4096)
        if connection.fileno() in readable:
            received = connection.recv(65536)
            if not received:
                return None
            requests += received
        while b"\n" in requests:
            line, _, requests = requests.partition(b"\n")
            server_pid, (is_set_up, set_up) = os.getpid(), os.pipe()
            if (pid := os.fork()) == 0:
                for end in (wakes, wake, is_set_up):
                    os.close(end)
                return {**json.loads(line), "server_pid": server_pid, "set_up": set_up}
            os.close(set_up)
            os.read(is_set_up, 1)  # when the caller gets the answer, the member leads its session and has its log
            os.close(is_set_up)
            connection.sendall(json.dumps({"pid": pid}).encode() + b"\n")
        for pid, status in iter(_ended, None):
            connection.sendall(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}).encode() + b"\n")


def _ended() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _become_member(request: dict[str, Any]) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != request["server_pid"]:  # the server ended before prctl was called
        os._exit(1)
    os.setsid()
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(log)
    os.close(nothing)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["sexton", *request["arguments"]]
    os.close(request["set_up"])


def _import_everything() -> None:
    """Imports all modules of the product."""
    for module in pkgutil.walk_packages(sexton.__path__, "sexton."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    _import_everything()
    gc.collect()
    gc.freeze()  # otherwise a collection in a member would copy every page
    request = _serve(connection)
    connection.close()
    if request is not None:
        _become_member(request)
        run()


if __name__ == "__main__":
    main()
