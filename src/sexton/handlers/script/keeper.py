"""Starts one script, keeps all that comes of it, and ends the last of it: a program between the worker and the script.

`python -I -S keeper.py DESCRIPTOR WORKER`, started by `process` and by nothing else. It imports nothing of ours,
so that it starts fast. The worker sends one line, the order, and closes its side when all shall end; its death does the same.
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
HEARD = (signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    worker = int(sys.argv[2])
    control = socket.socket(fileno=int(sys.argv[1]))
    bell = _bell()
    _outlive_nobody()
    order = _order(control)
    if order is None or os.getppid() != worker:
        return
    try:
        script = _start(order, control)
    except (OSError, LookupError, ValueError, subprocess.SubprocessError) as error:
        _say(control, {"refused": _words(error, order), "errno": getattr(error, "errno", None)})
        return
    finally:
        _let_go_of_standard_streams()
    while _status(script) is None and _is_wanted(control, bell, worker):
        _reap_orphans(script)
    _end_all(script)
    _say(control, {"ended": _status(script)})
    while _is_wanted(control, bell, worker):  # until the worker knows, nobody else may get the number: it signals by it
        pass
    with suppress(ChildProcessError):
        os.waitpid(script, 0)


def _bell() -> socket.socket:
    """Readable after a signal. Those that end a worker leave us alone: it decides when the script ends."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.detach(), warn_on_full_buffer=False)
    for number in HEARD:
        signal.signal(number, lambda *_: None)
    return ours


def _outlive_nobody() -> None:
    """Linux only. The death of the worker is heard even where another process still holds its side of the socket; and what the
    script leaves behind becomes our child, also if it has made a session of its own."""
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
    """The number of its process, of its group and of its session. The order of things matters in the child: subprocess changes
    the user before it calls `_prepare`, and a change of user would take the death signal away again."""
    keeper = os.getpid()
    process = subprocess.Popen(
        order["argv"],
        env=order["environment"],
        cwd=order["directory"],
        start_new_session=True,
        preexec_fn=lambda: _prepare(order["limits"], keeper, control),  # safe: we have one thread
        **_identity(order["user"], order["group"]),
    )
    process.returncode = 0  # we wait for it ourselves
    return process.pid


def _prepare(limits: dict[str, int], keeper: int, control: socket.socket) -> None:
    """In the child, just before its program. The worker hears of the group from here: should the script kill its keeper first
    of all, the worker can still end what is left."""
    for number in HEARD:
        signal.signal(number, signal.SIG_DFL)  # else a request to stop would be lost that comes before the program does
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(1)
    _say(control, {"started": os.getpid()})
    wanted = {
        resource.RLIMIT_CORE: (0, 0),  # what it holds in memory is nobody's to find
        resource.RLIMIT_NOFILE: _both(limits.get("files")),
        resource.RLIMIT_NPROC: _both(limits.get("processes")),
        resource.RLIMIT_CPU: (limits["cpu_s"], limits["cpu_s"] + CPU_GRACE_S) if "cpu_s" in limits else None,
        resource.RLIMIT_AS: _both(limits.get("memory_mib"), MIB),  # last: this interpreter may already have more
    }
    for kind, pair in wanted.items():
        if pair is not None:
            resource.setrlimit(kind, _within(resource.getrlimit(kind)[1], pair))


def _both(limit: int | None, unit: int = 1) -> tuple[int, int] | None:
    return None if limit is None else (limit * unit, limit * unit)


def _within(highest: int, pair: tuple[int, int]) -> tuple[int, int]:
    """What the worker itself may not exceed, the script may not either."""
    return pair if highest == resource.RLIM_INFINITY else (min(pair[0], highest), min(pair[1], highest))


def _identity(user: str | int | None, group: str | int | None) -> dict[str, Any]:
    """Who it becomes, wholly: a script that keeps one of the worker's groups keeps what that may read."""
    if user is None and group is None:
        return {}
    account = None if user is None else pwd.getpwnam(user) if isinstance(user, str) else pwd.getpwuid(user)
    uid = os.geteuid() if account is None else account.pw_uid
    if group is not None:
        gid = grp.getgrnam(group).gr_gid if isinstance(group, str) else group
    else:
        gid = os.getegid() if account is None else account.pw_gid
    if (uid, gid) == (os.geteuid(), os.getegid()) and uid != 0:
        return {}  # it is that already, and may not even say so
    extra = [gid] if account is None else os.getgrouplist(account.pw_name, gid)
    return {"user": uid, "group": gid, "extra_groups": extra}


def _let_go_of_standard_streams() -> None:
    """They are the script's; while we hold them, the worker would not see their end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)


def _is_wanted(control: socket.socket, bell: socket.socket, worker: int) -> bool:
    """Waits until something happens; false once the worker has closed its side or is gone."""
    look = select.poll()  # select.select knows only the first 1,024 descriptors
    for one in (control, bell):
        look.register(one, select.POLLIN)
    readable = {descriptor for descriptor, _ in look.poll()}
    if bell.fileno() in readable:
        bell.recv(4096)
    try:
        return not (control.fileno() in readable and control.recv(1) == b"") and os.getppid() == worker
    except OSError:
        return False


def _say(control: socket.socket, message: dict[str, Any]) -> None:
    with suppress(OSError):  # the worker is gone
        control.sendall(json.dumps(message).encode() + b"\n")


def _words(error: BaseException, order: dict[str, Any]) -> str:
    if isinstance(error, PermissionError) and os.geteuid() != 0 and (order["user"], order["group"]) != (None, None):
        return "cannot become its user or group: the worker has to run as root for that"
    if isinstance(error, OSError):
        return f"{error.strerror}: {error.filename or order['argv'][0]}"
    return str(error)


def _status(script: int, options: int = os.WNOHANG) -> int | None:
    """Its exit code, negative for the signal that killed it; none while it runs. It is not reaped, so that its number, which is
    its group's too, stays its own."""
    if not hasattr(os, "waitid"):
        return _reaped(script, options)
    seen = os.waitid(os.P_PID, script, os.WEXITED | os.WNOWAIT | options)
    if seen is None:
        return None
    return seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status


def _reaped(script: int, options: int) -> int | None:
    """For macOS before Python 3.13, which cannot look without reaping."""
    if script not in _ended:
        process, status = os.waitpid(script, options)
        if process == script:
            _ended[script] = os.waitstatus_to_exitcode(status)
    return _ended.get(script)


def _reap_orphans(script: int) -> None:
    """Those of the script's descendants whose own parent did not wait for them."""
    for child in _children() - {script}:
        with suppress(ChildProcessError):
            os.waitpid(child, os.WNOHANG)


def _end_all(script: int) -> None:
    """Returns when nothing is left that we may end: neither the group, nor who left it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(script, signal.SIGKILL)
    _status(script, 0)
    beyond_us = {script}
    while others := _children() - beyond_us:  # as each dies, its own children become ours
        for child in others:
            try:
                os.kill(child, signal.SIGKILL)
            except PermissionError:  # a program that became another user
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
