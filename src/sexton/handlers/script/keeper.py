"""Supervises one script: starts it and ends all of its processes. A program between the worker and the script.

`python -I -S keeper.py DESCRIPTOR WORKER`, started only by `process`. It imports nothing of Sexton, so that it starts fast.
The worker sends one line, the order, and closes its side when everything must end; the worker's death has the same effect.
"""

from __future__ import annotations

import ctypes
import grp
import json
import os
import pwd
import resource
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CPU_GRACE_S = 5  # between SIGXCPU and SIGKILL
MIB = 1024 * 1024
_ended: dict[int, int] = {}
HANDLED_SIGNALS = (signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    worker = int(sys.argv[2])
    control = socket.socket(fileno=int(sys.argv[1]))
    signals = _signal_socket()
    _follow_worker_and_adopt_orphans()
    order = _order(control)
    if order is None or os.getppid() != worker:
        return
    try:
        script = _start(order, control)
    except (OSError, LookupError, ValueError, subprocess.SubprocessError) as error:
        _send(control, {"refused": _message(error, order), "errno": getattr(error, "errno", None)})
        return
    finally:
        _let_go_of_standard_streams()
    while _status(script) is None and _is_wanted(control, signals, worker):
        _reap_orphans(script)
    _end_all(script)
    _send(control, {"ended": _status(script)})
    # Not reaped until the worker knows: it signals this pid, so no other process may get it.
    while _is_wanted(control, signals, worker):
        pass
    with suppress(ChildProcessError):
        os.waitpid(script, 0)


def _signal_socket() -> socket.socket:
    """Readable after a signal. Signals that end a worker do not end the keeper: the worker decides when the script ends."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.detach(), warn_on_full_buffer=False)
    for number in HANDLED_SIGNALS:
        signal.signal(number, lambda *_: None)
    return ours


def _follow_worker_and_adopt_orphans() -> None:
    """Linux only. The keeper detects the worker's death even if another process still holds the worker's side of the socket.
    Processes that the script leaves behind become children of the keeper, even in a session of their own."""
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_PDEATHSIG, signal.SIGUSR1)
        prctl(PR_SET_CHILD_SUBREAPER, 1)


def _order(control: socket.socket) -> dict[str, Any] | None:
    received = bytearray()
    while not received.endswith(b"\n"):
        part = control.recv(65536)
        if not part:
            return None
        received += part
    order: dict[str, Any] = json.loads(received)
    return order


def _start(order: dict[str, Any], control: socket.socket) -> int:
    """The pid of the script, which is also its process group and its session. The order in the child matters: subprocess
    changes the user first and then calls `_prepare`. A later change of user would clear the death signal."""
    keeper = os.getpid()
    process = subprocess.Popen(
        order["argv"],
        env=order["environment"],
        cwd=order["directory"],
        start_new_session=True,
        preexec_fn=lambda: _prepare(order["limits"], keeper, control),  # safe: the keeper has one thread
        **_identity(order["user"], order["group"]),
    )
    process.returncode = 0  # the keeper waits for it itself
    return process.pid


def _prepare(limits: dict[str, int], keeper: int, control: socket.socket) -> None:
    """Runs in the child, just before its program. It sends the group to the worker: if the script kills its keeper, the
    worker can still end the rest."""
    for number in HANDLED_SIGNALS:
        signal.signal(number, signal.SIG_DFL)  # otherwise a request to stop before the program starts would be lost
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(1)
    _send(control, {"started": os.getpid()})
    wanted = {
        resource.RLIMIT_CORE: (0, 0),  # a core file could expose secrets
        resource.RLIMIT_NOFILE: _both(limits.get("files")),
        resource.RLIMIT_NPROC: _both(limits.get("processes")),
        resource.RLIMIT_CPU: (limits["cpu_s"], limits["cpu_s"] + CPU_GRACE_S) if "cpu_s" in limits else None,
        resource.RLIMIT_AS: _both(limits.get("memory_mib"), MIB),  # last: this interpreter may already use more
    }
    for kind, pair in wanted.items():
        if pair is not None:
            resource.setrlimit(kind, _within(resource.getrlimit(kind)[1], pair))


def _both(limit: int | None, unit: int = 1) -> tuple[int, int] | None:
    return None if limit is None else (limit * unit, limit * unit)


def _within(highest: int, pair: tuple[int, int]) -> tuple[int, int]:
    """A limit of the worker also limits the script."""
    return pair if highest == resource.RLIM_INFINITY else (min(pair[0], highest), min(pair[1], highest))


def _identity(user: str | int | None, group: str | int | None) -> dict[str, Any]:
    """User, group and all other groups: a script that kept a group of the worker could read that group's files."""
    if user is None and group is None:
        return {}
    account = None if user is None else pwd.getpwnam(user) if isinstance(user, str) else pwd.getpwuid(user)
    uid = os.geteuid() if account is None else account.pw_uid
    if group is not None:
        gid = grp.getgrnam(group).gr_gid if isinstance(group, str) else group
    else:
        gid = os.getegid() if account is None else account.pw_gid
    if (uid, gid) == (os.geteuid(), os.getegid()) and uid != 0:
        return {}  # already that user; setting it again may not be allowed
    extra = [gid] if account is None else os.getgrouplist(account.pw_name, gid)
    return {"user": uid, "group": gid, "extra_groups": extra}


def _let_go_of_standard_streams() -> None:
    """They belong to the script. While the keeper holds them, the worker does not see their end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)


def _is_wanted(control: socket.socket, signals: socket.socket, worker: int) -> bool:
    """Waits for an event; false when the worker has closed its side or has died."""
    look = select.poll()  # select.select supports only the first 1,024 descriptors
    for one in (control, signals):
        look.register(one, select.POLLIN)
    readable = {descriptor for descriptor, _ in look.poll()}
    if signals.fileno() in readable:
        signals.recv(4096)
    try:
        return not (control.fileno() in readable and control.recv(1) == b"") and os.getppid() == worker
    except OSError:
        return False


def _send(control: socket.socket, message: dict[str, Any]) -> None:
    with suppress(OSError):  # the worker has died
        control.sendall(json.dumps(message).encode() + b"\n")


def _message(error: BaseException, order: dict[str, Any]) -> str:
    if isinstance(error, PermissionError) and os.geteuid() != 0 and (order["user"], order["group"]) != (None, None):
        return "cannot switch to its user or group; the worker must run as root for that"
    if isinstance(error, OSError):
        return f"{error.strerror}: {error.filename or order['argv'][0]}"
    return str(error)


def _status(script: int, options: int = os.WNOHANG) -> int | None:
    """Its exit code, negative for the signal that killed it; `None` while it runs. It is not reaped, so that no other process
    or group can get its pid."""
    if not hasattr(os, "waitid"):
        return _reaped(script, options)
    seen = os.waitid(os.P_PID, script, os.WEXITED | os.WNOWAIT | options)
    if seen is None:
        return None
    return seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status


def _reaped(script: int, options: int) -> int | None:
    """For macOS before Python 3.13, which cannot read the status without reaping."""
    if script not in _ended:
        process, status = os.waitpid(script, options)
        if process == script:
            _ended[script] = os.waitstatus_to_exitcode(status)
    return _ended.get(script)


def _reap_orphans(script: int) -> None:
    """Reaps descendants of the script whose parent did not wait for them."""
    for child in _children() - {script}:
        with suppress(ChildProcessError):
            os.waitpid(child, os.WNOHANG)


def _end_all(script: int) -> None:
    """Returns when the group and the processes that left it have ended, except those the keeper may not signal."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(script, signal.SIGKILL)
    _status(script, 0)
    beyond_us = {script}
    while others := _children() - beyond_us:  # when one dies, its children become children of the keeper
        for child in others:
            try:
                os.kill(child, signal.SIGKILL)
            except PermissionError:  # a program that switched to another user
                beyond_us.add(child)
            else:
                with suppress(ChildProcessError):
                    os.waitpid(child, 0)


def _children() -> set[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return {int(number) for number in file.read().split()}
    except OSError:
        return {int(name) for name in _listed("/proc") if name.isdigit() and _parent_of(name) == os.getpid()}


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _parent_of(process: str) -> int | None:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return None


if __name__ == "__main__":
    main()
