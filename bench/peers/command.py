"""`python -m bench peers [--json]`: every installed peer, one after the other, phase by phase, so that a busy stretch of the
machine affects them all."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import machine
from bench.arguments import positive
from bench.scenario import Figures
from bench.testbed import machine_to_ourselves

from . import catalogue, install, phases, report
from .catalogue import Peer
from .stores import Postgres, Redis
from .testbed import PeerTestbed

Say = Callable[[str], None]
WIDTH = 200  # of a table that is written to a file, where a reader cannot widen the window


def main(words: Sequence[str]) -> None:
    arguments = _parser().parse_args(words)
    progress = Console(stderr=True)
    if arguments.install:
        sys.exit(0 if install.install(progress.print) else 1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that SIGTERM also ends servers and workers
    with progress.status("peers") if progress.is_terminal else nullcontext() as status:

        def say(what: str) -> None:
            if status is not None:
                status.update(f"peers: {what}")

        outcome = asyncio.run(Run(arguments, say).all())
    rows = report.rows([catalogue.ALL[name] for name in arguments.peers], outcome.measured, outcome.missing)
    if arguments.json:
        print(json.dumps(outcome.conclusion()), flush=True)
    console = Console(stderr=arguments.json, width=None if progress.is_terminal else WIDTH)
    if arguments.markdown:
        console.print(report.markdown(rows), soft_wrap=True, markup=False)
    else:
        console.print(report.table(rows, caption=outcome.conditions()))
    for failure in report.failures(outcome.measured):
        progress.print(failure, style="red", markup=False)


class Run:
    """One run over all peers, and its results."""

    def __init__(self, arguments: argparse.Namespace, say: Say) -> None:
        self._arguments = arguments
        self._say = say
        self.missing: dict[str, str] = {}
        self.measured: dict[str, dict[str, list[Figures]]] = defaultdict(lambda: defaultdict(list))
        self._servers: dict[str, dict[str, Any]] = {}

    async def all(self) -> Run:
        folder = Path(tempfile.mkdtemp(prefix="sexton-peers-"))
        try:
            await self._measure(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return self

    async def _measure(self, folder: Path) -> None:
        peers = self._present()
        async with AsyncExitStack() as stack:
            postgres = await stack.enter_async_context(Postgres.start(folder, self._arguments.postgres_bin))
            self._servers["postgres"] = await postgres.description()
            servers: dict[str, Postgres | Redis] = {"postgres": postgres}
            if any(peer.store == "redis" for peer in peers):
                redis = servers["redis"] = await stack.enter_async_context(Redis.start(folder))
                self._servers["redis"] = await redis.description()
            with self._alone():
                paces = await self._trials(peers, servers, folder)
            for repetition in range(1, self._arguments.repeat + 1):
                for phase in self._arguments.phases:
                    with self._alone():  # for a whole phase: no other benchmark runs between the peers that are compared
                        for peer in peers:
                            if peer.name in paces:
                                await self._one(phase, peer, paces[peer.name], servers, folder, repetition)

    def _present(self) -> list[Peer]:
        present = []
        for name in self._arguments.peers:
            why = install.missing(catalogue.ALL[name])
            if why is None:
                present.append(catalogue.ALL[name])
            else:
                self.missing[name] = why
                self._tell({"peer": name, "missing": why})
        return present

    async def _trials(
        self, peers: Sequence[Peer], servers: dict[str, Postgres | Redis], folder: Path
    ) -> dict[str, phases.Pace]:
        paces = {}
        for peer in peers:
            self._say(f"{peer.title}: a short trial")
            try:
                async with self._bout(peer, servers, folder) as testbed:
                    paces[peer.name] = await phases.trial(testbed, min(phases.TRIAL_JOBS, self._arguments.jobs))
            except Exception as error:
                for phase in self._arguments.phases:
                    self._found(peer, phase, 0, {"error": f"trial: {error}"})
        return paces

    async def _one(
        self, phase: str, peer: Peer, pace: phases.Pace, servers: dict[str, Postgres | Redis], folder: Path, repetition: int
    ) -> None:
        self._say(f"{peer.title}: {phase}, {repetition} of {self._arguments.repeat}")
        try:
            async with self._bout(peer, servers, folder) as testbed:
                figures = await phases.run(phase, testbed, pace, self._arguments.jobs)
        except Exception as error:  # the table shows that this peer failed, and the others go on
            figures = {"error": str(error) or type(error).__name__}
        self._found(peer, phase, repetition, figures)

    @asynccontextmanager
    async def _bout(self, peer: Peer, servers: dict[str, Postgres | Redis], folder: Path) -> AsyncIterator[PeerTestbed]:
        async with servers[peer.store].fresh() as store:
            testbed = PeerTestbed(peer, store, Path(tempfile.mkdtemp(prefix="testbed-", dir=folder)))
            try:
                yield testbed
            finally:
                testbed.stop()

    def _alone(self) -> AbstractContextManager[None]:
        return nullcontext() if self._arguments.shared else machine_to_ourselves(self._say)

    def _found(self, peer: Peer, phase: str, repetition: int, figures: Figures) -> None:
        rounded = {key: float(f"{value:.6g}") if isinstance(value, float) else value for key, value in figures.items()}
        self.measured[peer.name][phase].append(rounded)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        self._tell({"peer": peer.name, "phase": phase, "repetition": repetition, **rounded, "measured_at": at})

    def _tell(self, line: dict[str, Any]) -> None:
        if self._arguments.json:
            print(json.dumps({"scenario": "peers", **line}), flush=True)

    def conclusion(self) -> dict[str, Any]:
        """The last line: the best results, and the conditions of the measurement."""
        present = [catalogue.ALL[name] for name in self._arguments.peers if name not in self.missing]
        return {
            "scenario": "peers",
            "best": report.summary(self.measured),
            "missing": self.missing,
            "peers": {
                peer.name: {"versions": install.versions(peer), "settings": dict(peer.settings), "remark": peer.remark}
                for peer in present
            },
            "repetitions": self._arguments.repeat,
            "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine.description(),
            **self._servers,
        }

    def conditions(self) -> str:
        under = machine.description()
        servers = ", ".join(f"{name} {told['version']}" for name, told in self._servers.items())
        return f"{under['cores']} x {under['cpu']}, {servers}, best of {self._arguments.repeat}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench peers", description="Measures Sexton and other job queues on one server."
    )
    parser.add_argument(
        "--install", action="store_true", help=f"install the peers into {install.FOLDER.name}, and measure nothing"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per measurement, and one at the end")
    parser.add_argument("--markdown", action="store_true", help="the table as Markdown")
    parser.add_argument("--peers", type=_some(catalogue.ALL), default=list(catalogue.ALL), help=", ".join(catalogue.ALL))
    parser.add_argument("--phases", type=_some(phases.ALL), default=list(phases.ALL), help=", ".join(phases.ALL))
    parser.add_argument(
        "--jobs", type=positive, default=phases.DRAIN_JOBS, help="number of jobs to drain; a slow peer gets fewer"
    )
    parser.add_argument("--repeat", type=positive, default=1, help="repetitions; the table has the best of them")
    parser.add_argument("--postgres-bin", type=Path, help="folder with the programs of another PostgreSQL")
    parser.add_argument("--shared", action="store_true", help="do not wait for other benchmarks on this machine")
    return parser


def _some(known: Sequence[str] | dict[str, Any]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)} is not one of {', '.join(known)}")
        return names

    return parse
