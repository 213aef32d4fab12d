"""The processes under test: the API, the schedulers and the workers, and the supervisor that restarts those that died."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import httpx

from tests.process.cluster import Cluster

from . import skew
from .network import Network
from .plan import Plan

APP = "chaos.app:app"
RESTART_S = 0.5  # a supervisor does not restart at once
LOOK_S = 0.05
READY_S = 60.0
_JOINED = re.compile(r"worker joined\s.*")
_NAME, _ID = re.compile(r"\bname=['\"]?[^\s'\"]*:(\d+)"), re.compile(r"\bworker_id=['\"]?([0-9a-f-]{36})")


class End(NamedTuple):
    """A process that ended although no fault ended it."""

    member: str
    at: float
    code: int
    last_words: str


class Members:
    def __init__(self, plan: Plan, cluster: Cluster, network: Network, folder: Path) -> None:
        self.plan, self.cluster = plan, cluster
        self._network, self._folder = network, folder
        self.deaths: dict[int, float] = {}  # process id: when it ended, on the monotonic clock
        self.pids: dict[int, str] = {}  # every process that was ever started, and its member
        self.own_ends: list[End] = []
        self.skewed: dict[str, Path] = {}  # members whose clock can be moved, and the file that moves it
        self._gone_at: dict[str, float] = {}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.api_url = f"http://127.0.0.1:{port}"

    async def start(self) -> None:
        port = self.api_url.rpartition(":")[2]
        self.cluster.api("api", "--port", port, database_url=self._network.url("api"))
        library = skew.library()
        for name in (*self.plan.scheduler_names, *self.plan.worker_names):
            with self._clock_of(name, library):
                if name in self.plan.worker_names:
                    self.cluster.worker(name, app=APP, database_url=self._network.url(name))
                else:
                    self.cluster.scheduler(name, database_url=self._network.url(name))
        self._remember()
        await self.cluster.until_ready(*self.plan.scheduler_names, *self.plan.worker_names)
        async with httpx.AsyncClient(base_url=self.api_url) as client:
            await self.cluster.until(lambda: _is_ready(client), "the API to be ready", within_s=READY_S)

    def kill(self, name: str) -> bool:
        """Sends SIGKILL and waits for the end of the process; the supervisor restarts it. Returns False if it had already
        ended."""
        member = self.cluster[name]
        if member.process.poll() is not None:
            return False
        self.cluster.kill(name)
        self._gone_at[name] = self.deaths[member.pid] = time.monotonic()
        return True

    async def supervise(self) -> None:
        """Runs until cancelled."""
        while True:
            for name in self.plan.members:
                self._look_after(name)
            await asyncio.sleep(LOOK_S)

    def _look_after(self, name: str) -> None:
        member = self.cluster[name]
        code = member.process.poll()
        if code is None:
            return
        now = time.monotonic()
        if name not in self._gone_at:
            self._gone_at[name] = self.deaths[member.pid] = now
            self.own_ends.append(End(name, now, code, member.log[-1500:]))
        if now >= self._gone_at[name] + RESTART_S:
            del self._gone_at[name]
            self.cluster.restart(name)
            self._remember()

    def _remember(self) -> None:
        self.pids |= {self.cluster[name].pid: name for name in self.plan.members}

    def all_pids(self) -> dict[int, str]:
        """Of every process that was ever started, also in quarantine: those write to the log of their parent."""
        of_workers = {pid: name for name in self.plan.worker_names for pid in joined(self.cluster[name].log).values()}
        return of_workers | self.pids

    def workers_by_id(self) -> dict[UUID, int]:
        """The process of each worker id that was ever used, from the logs of the processes."""
        return {worker_id: pid for name in self.plan.worker_names for worker_id, pid in joined(self.cluster[name].log).items()}

    @contextmanager
    def _clock_of(self, name: str, library: Path | None) -> Iterator[None]:
        """The last worker and the last scheduler get a clock that can be moved, if libfaketime is installed."""
        if library is None or name not in (self.plan.worker_names[-1], self.plan.scheduler_names[-1]):
            yield
            return
        self.skewed[name] = path = self._folder / f"{name}.clock"
        with _environment(skew.environment(library, path)):
            yield


def joined(log: str) -> dict[UUID, int]:
    found = {}
    for line in _JOINED.findall(log):
        name, worker_id = _NAME.search(line), _ID.search(line)
        if name and worker_id:
            found[UUID(worker_id[1])] = int(name[1])
    return found


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    """Members inherit the environment of this process when they start, and keep it through their restarts."""
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


async def _is_ready(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/readyz")).status_code == 200
    except httpx.HTTPError:
        return False
