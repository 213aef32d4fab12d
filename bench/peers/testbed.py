"""One peer in one measurement: its empty store, the record, its processes, and a meter for CPU and WAL."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench import machine, record
from bench.testbed import ROOT

from . import install
from .catalogue import Peer
from .stores import Store

CALL_S = 300.0


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds used during a measurement, and the other load of the machine."""

    worker_s: float
    server_s: float
    steal_pct: float
    elsewhere_pct: float


@dataclass(frozen=True, slots=True)
class _Reading:
    at: float
    worker_s: float
    server_s: float
    own_s: float
    steal_s: float
    busy_s: float


class PeerTestbed:
    def __init__(self, peer: Peer, store: Store, folder: Path) -> None:
        self.peer = peer
        self.store = store
        self.record = record.Record(folder / "record")
        self._log = folder / "worker.log"
        self._workers: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            record.VARIABLE: str(self.record.path),
            "BENCH_URL": store.url,
            "BENCH_SETTINGS": json.dumps(dict(peer.settings)),
            "BENCH_NODE_PACKAGE": str(install.NODE_PACKAGE),
            "NO_LOG_SUCCESS": "1",  # otherwise Graphile Worker logs a line per job
        }

    async def call(self, *command: object) -> dict[str, Any]:
        """Runs one command of its driver, in a process of its own."""
        process = await asyncio.create_subprocess_exec(
            *install.driver(self.peer), *map(str, command),
            cwd=ROOT, env=self._environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(CALL_S):
                output, complaint = await process.communicate()
        except BaseException:
            process.kill()
            await process.wait()
            raise
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))}: {_tail(complaint.decode(errors='replace'))}")
        answer: dict[str, Any] = json.loads(output.decode().splitlines()[-1])
        return answer

    def start(self, workers: int, *, with_companions: bool) -> None:
        for command in ["work"] * workers + (list(self.peer.companions) if with_companions else []):
            with self._log.open("ab") as log:
                process = subprocess.Popen(
                    [*install.driver(self.peer), command],
                    cwd=ROOT, env=self._environment, stdout=log, stderr=log, start_new_session=True,
                )  # fmt: skip
            self._workers.append(process)

    async def until_started(self, count: int, within_s: float) -> None:
        try:
            await self.record.until(count, within_s)
        except TimeoutError as error:
            raise RuntimeError(f"{error}; its worker says: {self._last_words()}") from error

    async def until_idle(self, within_s: float) -> None:
        ends_at = time.monotonic() + within_s
        while not await self.store.is_idle(self.peer.is_idle):
            if time.monotonic() > ends_at:
                raise RuntimeError(f"jobs were still unfinished {within_s:.0f} s after the last one started")
            await asyncio.sleep(0.005)

    def rss_mib(self) -> float:
        return max(sum(machine.rss_mib(process.pid) for process in _tree(worker.pid)) for worker in self._workers)

    def stop(self) -> None:
        """Kills the processes, as in a crash."""
        for worker in self._workers:
            for process in _tree(worker.pid):
                process.kill()
            worker.wait()
        self._workers.clear()

    def meter(self) -> Callable[[], Usage]:
        """Starts to measure. The returned function gives the usage since then."""
        before = self._read()

        def usage() -> Usage:
            after = self._read()
            machine_s = (after.at - before.at) * (os.cpu_count() or 1)
            worker_s, server_s = after.worker_s - before.worker_s, after.server_s - before.server_s
            ours_s = worker_s + server_s + after.own_s - before.own_s
            return Usage(
                worker_s,
                server_s,
                100 * (after.steal_s - before.steal_s) / machine_s,
                100 * max(0.0, after.busy_s - before.busy_s - ours_s) / machine_s,
            )

        return usage

    def _read(self) -> _Reading:
        own = os.times()  # its children are the drivers
        return _Reading(
            time.monotonic(),
            sum(machine.tree_cpu_s(worker.pid) for worker in self._workers),
            self.store.cpu_s(),
            own.user + own.system + own.children_user + own.children_system,
            machine.steal_s(),
            machine.busy_s(),
        )

    def _last_words(self) -> str:
        return _tail(self._log.read_text(errors="replace")) if self._log.exists() else "nothing"


def _tree(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _tail(text: str) -> str:
    return " | ".join(text.strip().splitlines()[-4:])[-600:] or "nothing"
