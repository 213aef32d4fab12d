"""What a scenario uses: the server, the record, the processes it starts, and a meter for CPU, WAL and statements."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sexton import App
from sexton.settings import Settings

from . import machine, record, submitter
from .app import PAD, doze, fatal, nap, note
from .quota import Quota
from .server import Server, fresh_server

if TYPE_CHECKING:
    from sexton.client.request import Request
    from sexton.client.task import Task

ROOT = Path(__file__).parent.parent
STOP_S = 15.0
READY_S = 30.0


class Process:
    """One service, started as a user would; or a submitter."""

    def __init__(
        self, role: str, arguments: Sequence[str], environment: dict[str, str], log: Path, *, module: str = "sexton"
    ) -> None:
        self.role = role
        self._log = log
        with log.open("ab") as sink:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", module, *arguments], env=environment, cwd=ROOT, stdout=sink, stderr=sink
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def cpu_s(self) -> float:
        return machine.tree_cpu_s(self.pid)

    def rss_mib(self) -> float:
        return machine.rss_mib(self.pid)

    def has_ended(self) -> bool:
        """Waits for a normal end; any other end is an error."""
        if self._popen.poll() is not None and self._popen.returncode:
            self.check()
        return self._popen.returncode is not None

    @property
    def is_over(self) -> bool:
        return self._popen.poll() is not None

    def check(self) -> None:
        if self._popen.poll() is not None:
            tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
            raise RuntimeError(f"the {self.role} ended with code {self._popen.returncode}:\n{tail}")

    def stop(self) -> None:
        self._popen.send_signal(signal.SIGTERM)
        try:
            self._popen.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds by process, and of the whole machine, during a measurement."""

    wall_s: float
    worker_s: float
    scheduler_s: float
    api_s: float
    client_s: float
    server_s: float | None
    steal_pct: float
    elsewhere_pct: float  # percent of the machine that other programs used


@dataclass(frozen=True, slots=True)
class _Reading:
    at: float
    worker_s: float
    scheduler_s: float
    api_s: float
    client_s: float
    server_s: float | None
    ours_s: float  # CPU of this process and of all processes it started, also ended ones; without the server
    steal_s: float
    busy_s: float


class Testbed:
    def __init__(self, server: Server, folder: Path, concurrency: int | None, say: Callable[[str], None]) -> None:
        self.server = server
        self.say = say
        self.record = record.Record(folder / "record")
        self.app = App(server.url)
        self.note: Task[..., Any] = self.app.task(note)
        self.nap: Task[..., Any] = self.app.task(timeout=0)(nap)
        self.doze: Task[..., Any] = self.app.task(doze)
        self.fatal: Task[..., Any] = self.app.task(fatal)
        self._folder = folder
        self._environment = {**os.environ, "SEXTON_DATABASE_URL": server.url, record.VARIABLE: str(self.record.path)}
        self.concurrency = concurrency or Settings().worker_concurrency
        if concurrency is not None:
            self._environment["SEXTON_WORKER_CONCURRENCY"] = str(concurrency)
        self.processes: list[Process] = []
        self.quotas: dict[str, Quota] = {}  # by role: processes that start later are held to it
        self._metered: list[Usage] = []
        self._usage_since_the_start = self.meter()

    def start_worker(self, environment: Mapping[str, str] | None = None) -> Process:
        return self._start("worker", "worker", "bench.app:app", environment=environment)

    def start_scheduler(self) -> Process:
        return self._start("scheduler", "scheduler")

    def start_api(self, port: int) -> Process:
        return self._start("api", "api", "--host", "127.0.0.1", "--port", str(port))

    @asynccontextmanager
    async def submitting(self, orders: submitter.Orders) -> AsyncIterator[submitter.Submission]:
        """A separate process submits at the same time, so that it does not wait for this one."""
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        process = Process(
            "submitter",
            [orders.written_to(folder)],
            self._environment,
            self._folder / "submitter.log",
            module="bench.submitter",
        )
        self._hold(process)
        try:
            yield submitter.Submission(folder, process)
            process.has_ended()  # checks that the process has not failed
        finally:
            process.stop()

    async def until_ready(self) -> None:
        """Waits until every started process is registered in the database."""
        workers = sum(process.role == "worker" for process in self.processes)
        schedulers = sum(process.role == "scheduler" for process in self.processes)
        ready = """SELECT (SELECT count(*) FROM sexton.workers WHERE lost_at IS NULL AND beat > 0) >= $1
                     AND (SELECT count(*) FROM sexton.nodes WHERE cardinality(partitions) > 0) >= $2"""
        await self.until(lambda: self.server.monitor.fetchval(ready, workers, schedulers), within_s=READY_S, every_s=0.05)

    async def until(self, true: Callable[[], Any], *, within_s: float, every_s: float) -> None:
        ends_at = time.monotonic() + within_s
        while not await true():
            self.check()
            if time.monotonic() > ends_at:
                raise TimeoutError(f"the condition did not hold within {within_s:.0f} s")
            await asyncio.sleep(every_s)

    async def until_empty(self, *, within_s: float = 60.0, every_s: float = 0.005) -> None:
        """Waits until no run is live except those due in a year. Each part is one index lookup, whatever the number of runs."""
        empty = """SELECT NOT EXISTS (SELECT FROM sexton.runs WHERE state = 'ready')
                     AND NOT EXISTS (SELECT FROM sexton.runs WHERE state = 'running')
                     AND NOT EXISTS (SELECT FROM sexton.runs WHERE state = 'waiting' AND due_at < now() + interval '1 day')"""
        await self.until(lambda: self.server.monitor.fetchval(empty), within_s=within_s, every_s=every_s)

    async def until_started(self, count: int, *, within_s: float) -> None:
        try:
            await self.record.until(count, within_s)
        except TimeoutError:
            self.check()
            raise

    async def warm_up(self, count: int = 20) -> None:
        """Opens connections and prepares statements in every process."""
        for _ in range(count):
            await self.note.submit(-1, PAD)
            await asyncio.sleep(0.02)
        await self.until_started(count, within_s=READY_S)
        await asyncio.sleep(1.0)

    def notes(self, numbers: range, run_at: Callable[[int], datetime] | None = None) -> list[Request]:
        if run_at is None:
            return [self.note.request(number, PAD) for number in numbers]
        return [self.note.request(number, PAD, run_at=run_at(number)) for number in numbers]

    async def submit(self, requests: Sequence[Request], batch: int = 2000) -> None:
        for start in range(0, len(requests), batch):
            await self.app.submit_many(requests[start : start + batch])

    def check(self) -> None:
        for process in self.processes:
            process.check()

    def kill(self, process: Process) -> None:
        self.processes.remove(process)
        process.kill()

    def stop(self) -> None:
        while self.processes:
            self.processes.pop().stop()

    def stop_one(self, process: Process) -> None:
        self.processes.remove(process)
        process.stop()

    def own_cpu_s(self) -> float:
        own = os.times()
        return own.user + own.system

    def cpu_s(self, role: str) -> float:
        return sum(process.cpu_s() for process in self.processes if process.role == role)

    def meter(self) -> Callable[[], Usage]:
        """Starts to measure. The returned function gives the usage since then."""
        before = self._read()

        def usage() -> Usage:
            after = self._read()
            wall_s = after.at - before.at
            machine_s = wall_s * (os.cpu_count() or 1)
            server_s = None if after.server_s is None or before.server_s is None else after.server_s - before.server_s
            used = Usage(
                wall_s,
                after.worker_s - before.worker_s,
                after.scheduler_s - before.scheduler_s,
                after.api_s - before.api_s,
                after.client_s - before.client_s,
                server_s,
                100 * (after.steal_s - before.steal_s) / machine_s,
                100 * max(0.0, after.busy_s - before.busy_s - (after.ours_s - before.ours_s) - (server_s or 0.0)) / machine_s,
            )
            self._metered.append(used)
            return used

        return usage

    def conditions(self) -> dict[str, float]:
        """The other load of the machine during all metered parts; during the whole run if none was metered."""
        metered = list(self._metered) or [self._usage_since_the_start()]
        wall_s = sum(usage.wall_s for usage in metered)
        return {
            "steal_pct": sum(usage.steal_pct * usage.wall_s for usage in metered) / wall_s,
            "elsewhere_pct": sum(usage.elsewhere_pct * usage.wall_s for usage in metered) / wall_s,
        }

    def _read(self) -> _Reading:
        return _Reading(
            time.monotonic(),
            self.cpu_s("worker"),
            self.cpu_s("scheduler"),
            self.cpu_s("api"),
            self.own_cpu_s(),
            self.server.cpu_s(),
            machine.tree_cpu_s(os.getpid()),
            machine.steal_s(),
            machine.busy_s(),
        )

    def _start(self, role: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Process:
        process = Process(role, arguments, {**self._environment, **(environment or {})}, self._folder / f"{role}.log")
        self._hold(process)
        self.processes.append(process)
        return process

    def _hold(self, process: Process) -> None:
        if quota := self.quotas.get(process.role):
            quota.hold([process.pid])


@asynccontextmanager
async def fresh_testbed(
    *, external_url: str | None, bin_dir: Path | None, concurrency: int | None, say: Callable[[str], None]
) -> AsyncIterator[Testbed]:
    folder = Path(tempfile.mkdtemp(prefix="sexton-bench-"))
    try:
        async with fresh_server(folder, external_url, bin_dir) as server:
            testbed = Testbed(server, folder, concurrency, say)
            try:
                yield testbed
            finally:
                while testbed.processes:
                    testbed.kill(testbed.processes[-1])
                await testbed.app.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def machine_to_ourselves(say: Callable[[str], None]) -> Iterator[None]:
    """Only one benchmark at a time on this machine; the peers' harness holds the same lock."""
    descriptor = os.open(Path(tempfile.gettempdir(), "bench.lock"), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another benchmark to end")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
