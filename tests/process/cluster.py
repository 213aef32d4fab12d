"""Workers and schedulers as real, named processes, and everything that can happen to a process.

No process outlives the test: each leads a session of its own, is killed when the cluster closes, and by the kernel if pytest
itself is killed."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from . import journal
from .fork_server import ForkedProcess, ForkServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

ROOT = Path(__file__).parents[2]
APP = "tests.process.apps:app"
SEXTON = [sys.executable, "-m", "sexton"]
POLL_S = 0.02
PATIENCE_S = 30.0

# All times of leases are shorter than by default, so that a test can wait until one expires.
SHORT = {"lease_s": 3.0, "beat_s": 0.4, "loop_stall_s": 1.2, "sweep_s": 0.25}


class StartCluster(Protocol):
    def __call__(self, url: str = ..., /, **settings: object) -> Cluster: ...


@dataclass
class Member:
    name: str
    command: list[str]
    environment: dict[str, str]
    log_path: Path
    process: subprocess.Popen[bytes] | ForkedProcess

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_path.read_text()


class Cluster:
    def __init__(
        self,
        directory: Path,
        database_url: str,
        settings: Mapping[str, object] | None = None,
        *,
        fork_server: ForkServer | None = None,
    ) -> None:
        """`settings` by the names of `Settings`; each member may get more when it starts. Without a fork server, members are
        started by exec."""
        self._fork_server = fork_server
        self.journal_directory = directory / "journal"
        self._log_directory = directory / "log"
        for made in (self.journal_directory, self._log_directory):
            made.mkdir(parents=True)
        self._settings: dict[str, object] = {"database_url": database_url, **(settings or {})}
        self._members: dict[str, Member] = {}

    def close(self) -> None:
        for member in self._members.values():
            if member.process.poll() is None:
                os.killpg(member.pid, signal.SIGKILL)
            member.process.wait()

    def __getitem__(self, name: str) -> Member:
        return self._members[name]

    def worker(
        self, name: str, *arguments: str, app: str = APP, python: str | Path = sys.executable, **settings: object
    ) -> Member:
        """`python`: the interpreter of another release, instead of this tree's."""
        return self._start(name, ["worker", app, *arguments], settings, python)

    def scheduler(self, name: str, *arguments: str, python: str | Path = sys.executable, **settings: object) -> Member:
        return self._start(name, ["scheduler", *arguments], settings, python)

    def api(self, name: str, *arguments: str, **settings: object) -> Member:
        """On any free port."""
        return self._start(name, ["api", "--port", "0", *arguments], settings)

    def kill(self, name: str) -> None:
        """Sends SIGKILL and waits for the end of the process."""
        os.kill(self[name].pid, signal.SIGKILL)
        self[name].process.wait()

    def restart(self, name: str) -> Member:
        """Starts a new process under the old name and log, as a supervisor would."""
        member = self[name]
        assert member.process.poll() is not None, f"{name} still runs"
        return self._launch(name, member.command, member.environment, member.log_path)

    def pause(self, name: str) -> None:
        os.kill(self[name].pid, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        os.kill(self[name].pid, signal.SIGCONT)

    def terminate(self, name: str) -> None:
        os.kill(self[name].pid, signal.SIGTERM)

    async def exit_code(self, name: str, *, within_s: float = PATIENCE_S) -> int:
        await self.until(lambda: self[name].process.poll() is not None, f"{name} to exit", within_s=within_s)
        return self[name].process.wait()

    async def until(self, holds: Callable[[], Any | Awaitable[Any]], what: str, *, within_s: float = PATIENCE_S) -> float:
        """Waits for a condition and returns how long that took. On a timeout, the error contains the logs."""
        began = time.monotonic()
        while True:
            answer = holds()
            if inspect.isawaitable(answer):
                answer = await answer
            if answer:
                return time.monotonic() - began
            if time.monotonic() - began > within_s:
                raise AssertionError(f"waited {within_s:g} s in vain for {what}\n{self.logs()}")
            await asyncio.sleep(POLL_S)

    async def until_ready(self, *names: str) -> None:
        """Waits until each of them (all, if none is named) has logged that it has joined."""
        for name in names or self._members:
            word = "worker joined" if self[name].command[3] == "worker" else "leadership changed"
            await self.until(lambda name=name, word=word: word in self[name].log, f"{name} to join")  # type: ignore[misc]

    def lines(self, what: str) -> list[journal.Line]:
        return [line for line in journal.read(self.journal_directory) if line.what == what]

    def logs(self) -> str:
        """The last log lines of every member."""
        return "\n".join(f"--- {name}\n{member.log[-2500:]}" for name, member in self._members.items())

    def _start(
        self, name: str, arguments: list[str], settings: Mapping[str, object], python: str | Path = sys.executable
    ) -> Member:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("SEXTON_")}
        environment |= {f"SEXTON_{key.upper()}": str(value) for key, value in {**self._settings, **settings}.items()}
        environment[journal.DIRECTORY_VARIABLE] = str(self.journal_directory)
        command = [str(python), "-m", "sexton", *arguments]
        return self._launch(name, command, environment, self._log_directory / f"{name}.log")

    def _launch(self, name: str, command: list[str], environment: dict[str, str], log_path: Path) -> Member:
        running = self._members.get(name)
        assert running is None or running.process.poll() is not None, f"{name} still runs"
        if self._fork_server is not None and command[:3] == SEXTON:
            process: subprocess.Popen[bytes] | ForkedProcess = self._fork_server.start(command[3:], environment, log_path)
        else:
            process = _exec(command, environment, log_path)
        member = Member(name, command, environment, log_path, process)
        self._members[name] = member
        return member


def _exec(command: list[str], environment: dict[str, str], log_path: Path) -> subprocess.Popen[bytes]:
    with log_path.open("ab") as log:
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
