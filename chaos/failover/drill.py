"""The drill: starts a cluster, services and load, kills the primary several times, then compares what callers, handlers and the
database recorded."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, NamedTuple
from uuid import UUID

from bench import machine
from sexton.store import migrations
from sexton.store.database import Postgres
from sexton.store.fleet import cluster as home
from tests.process import checker
from tests.process.apps import make
from tests.process.cluster import Cluster

from . import configuration, programs
from .configuration import Mode, Way
from .journal_reader import JournalReader
from .load import KEY, Load
from .processes import KEEP, guarded_folder
from .recovery import Recovery, recovery
from .report import Kill, Kind, Report, shortfalls
from .servers import UNREACHABLE, Node, Servers, servers, until

SERVICES = ("worker-1", "worker-2", "scheduler-1")
CALM_S = 5.0  # of load between the moment the cluster is complete and the next kill
DOWN_S = configuration.TTL_S + 5.0  # of a node: long enough for the other nodes to notice
RECOVER_S = 120.0
WHOLE_S = 180.0
DRAIN_S = 180.0


@dataclass(frozen=True, slots=True)
class Options:
    mode: Mode
    way: Way
    kinds: Sequence[Kind]
    kill_count: int
    rate_per_s: float
    standbys: int
    lag_ms: float
    keep: bool
    say: Callable[[str], None]


async def run(found: programs.Programs, options: Options) -> Report:
    asyncio.get_running_loop().set_exception_handler(_hush)
    with guarded_folder() as folder:
        if options.keep:
            (folder / KEEP).touch()
            options.say(f"kept in {folder}")
        options.say(f"starting {options.standbys + 1} nodes, etcd and HAProxy")
        lag_s = options.lag_ms / 1000
        async with servers(found, folder, options.mode, standbys=options.standbys, lag_s=lag_s) as postgres:
            await _prepare(postgres)
            cluster = Cluster(folder / "sexton", postgres.url(options.way))
            try:
                return await Drill(postgres, cluster, options, found.versions()).run()
            finally:
                cluster.close()


def _hush(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ignores the error that the driver leaves behind when a connection is given up while it is being made."""
    if not isinstance(context.get("exception"), OSError):
        loop.default_exception_handler(context)


async def _prepare(postgres: Servers) -> None:
    """Creates the database, its owner and Sexton's schema."""
    connection = await postgres.connect("postgres")
    try:
        await connection.execute(
            await connection.fetchval(
                "SELECT format('CREATE ROLE sexton LOGIN PASSWORD %L', $1::text)", postgres.sexton_password
            )
        )
        await connection.execute("CREATE DATABASE sexton OWNER sexton")
    finally:
        await connection.close()
    database = await Postgres.open(postgres.url("haproxy"))
    await migrations.migrate(database)
    await home.require_home(database)
    await database.close()


async def _return(kind: Kind, node: Node) -> None:
    """Restarts the killed node. With a single standby, strict replication accepts no commit before that."""
    if kind == "postmaster":
        return  # Patroni restarts the postmaster
    await asyncio.sleep(DOWN_S)
    if kind == "node":
        node.restart()
    else:
        node.thaw()


class Identity(NamedTuple):
    here: int
    known: int


class Drill:
    def __init__(self, postgres: Servers, cluster: Cluster, options: Options, versions: dict[str, str]) -> None:
        self._postgres, self._cluster, self._options, self._versions = postgres, cluster, options, versions
        self._witness = JournalReader(cluster.journal_directory)
        self._identities: set[Identity] = set()
        self._killed_at: list[float] = []

    async def run(self) -> Report:
        for name in SERVICES:
            (self._cluster.worker if name.startswith("worker") else self._cluster.scheduler)(name)
        await self._cluster.until_ready()
        async with make(self._postgres.url(self._options.way)) as app:
            load = Load(app, self._options.rate_per_s)
            running, began_at = asyncio.ensure_future(load.run()), time.monotonic()
            kills = [
                await self._kill(load, kind, began_at) for kind in islice(cycle(self._options.kinds), self._options.kill_count)
            ]
            await asyncio.sleep(CALM_S)
            load_s = time.monotonic() - began_at
            load.stop()
            await running
        self._options.say("load stopped; waiting for the last run to end")
        await until(self._is_drained, "the last run to end", DRAIN_S, self._cluster.logs)
        # A service that starts now checks that this is still the same database (rule "a clone does not fire").
        self._cluster.scheduler("scheduler-late")
        await self._cluster.until_ready("scheduler-late")
        return await self._reckon(load, kills, load_s)

    async def _kill(self, load: Load, kind: Kind, began_at: float) -> Kill:
        await self._postgres.until_whole(WHOLE_S)
        await asyncio.sleep(CALM_S)
        await self._postgres.until_whole(WHOLE_S)  # checked again after the pause: Patroni has to confirm a synchronous standby
        self._identities.add(await self._identity())
        primary = await self._postgres.primary()
        self._options.say(f"{kind} of {primary.name}, {len(load.acknowledged):,} jobs acknowledged so far")
        killed_at = time.monotonic()
        {"postmaster": primary.kill_postmaster, "node": primary.kill, "freeze": primary.freeze}[kind]()
        self._killed_at.append(killed_at)
        returning = asyncio.ensure_future(_return(kind, primary))
        took = await self._recovered(load, primary, killed_at)
        successor = await self._postgres.primary()
        self._options.say(f"{took.recovered_s:.1f} s: {successor.name} serves")
        await returning
        await self._postgres.until_whole(WHOLE_S)
        whole_s = time.monotonic() - killed_at
        self._identities.add(await self._identity())
        return Kill(kind, killed_at - began_at, primary.name, successor.name, *took, took.recovered_s, whole_s)

    async def _recovered(self, load: Load, primary: Node, killed_at: float) -> Recovery:
        """Waits until the old primary has a successor, and submissions and runs work again."""
        took: Recovery | None = None
        told_before = len(load.calls)

        async def is_over() -> bool:
            nonlocal took
            self._witness.look()
            view = await self._postgres.view()
            took = recovery(killed_at, time.monotonic(), load.calls[told_before:], self._witness.first_start_at)
            return took is not None and view is not None and view.leader not in (None, primary.name)

        await until(is_over, "work after the kill", RECOVER_S, lambda: self._postgres.logs() + self._cluster.logs())
        assert took is not None
        return took

    async def _identity(self) -> Identity:
        connection = await self._postgres.connect()
        try:
            here = await connection.fetchval("SELECT system_identifier FROM pg_control_system()")
            return Identity(here, await connection.fetchval("SELECT system_identifier FROM sexton.cluster"))
        finally:
            await connection.close()

    async def _is_drained(self) -> bool:
        try:
            connection = await self._postgres.connect()
        except UNREACHABLE:
            return False
        try:
            left: int = await connection.fetchval("SELECT count(*) FROM sexton.runs")
        except UNREACHABLE:
            return False
        finally:
            connection.terminate()
        return left == 0

    async def _reckon(self, load: Load, kills: list[Kill], load_s: float) -> Report:
        self._options.say("comparing the database, the journal and the acknowledged jobs")
        self._witness.look()
        acknowledged = set(load.acknowledged)
        connection = await self._postgres.connect()
        try:
            found = await checker.check(connection, self._cluster.journal_directory, acknowledged)
            present: int = await connection.fetchval("SELECT count(*) FROM sexton.jobs")
            doubled: int = await connection.fetchval(
                """SELECT count(*) FROM (SELECT 1 FROM sexton.jobs WHERE starts_with(idempotency_key, $1)
                   GROUP BY idempotency_key HAVING count(*) > 1) AS doubled""",
                KEY,
            )
        finally:
            await connection.close()
        for kill, lost_count in zip(kills, self._lost_by_kill(load, set(found.lost)), strict=True):
            kill.lost_count = lost_count
        # jobs whose runs have no history either; a one-time job's run has the id of the job
        forgotten = set(map(str, found.lost))
        options, starts = self._options, self._witness.start_count
        logs = {name: self._cluster[name].log.count("Traceback") for name in SERVICES}
        report = Report(
            mode=options.mode,
            way=options.way,
            standbys=options.standbys,
            rate_per_s=options.rate_per_s,
            lag_ms=options.lag_ms,
            load_s=load_s,
            versions=self._versions,
            machine=machine.description(),
            settings={
                "ttl_s": configuration.TTL_S,
                "loop_wait_s": configuration.LOOP_S,
                "retry_timeout_s": configuration.RETRY_S,
                "primary_start_timeout_s": 0,
                "haproxy_check_s": configuration.CHECK_S,
            },
            kills=kills,
            attempted_count=load.attempted_count,
            acknowledged_count=len(acknowledged),
            completed_count=found.completed_count,
            lost_count=len(found.lost),
            lost_after_running_count=len(self._witness.ended.intersection(found.lost)),
            unanswered_count=present - (len(acknowledged) - len(found.lost)),
            found_again_count=load.found_again_count,
            keys_doubled_count=doubled,
            executed_twice_count=sum(starts[job_id] > 1 for job_id in starts),
            repeated_because=dict(found.repeated_because),
            double_leases=found.double_leases,
            unexplained=[each for each in found.unexplained if each.partition(":")[0] not in forgotten],
            failures=dict(load.failures),
            same_identity=len(self._identities) == 1 and all(each.here == each.known for each in self._identities),
            ended_services=[name for name in SERVICES if self._cluster[name].process.poll() is not None],
            tracebacks={name: count for name, count in logs.items() if count},
        )
        report.shortfalls = shortfalls(report)
        return report

    def _lost_by_kill(self, load: Load, lost: set[UUID]) -> list[int]:
        """Each lost job is counted with the first kill after its acknowledgement."""
        by_kill: Counter[int] = Counter()
        for call in load.calls:
            index = sum(killed_at < call.acknowledged_at for killed_at in self._killed_at)
            by_kill[index] += len(lost.intersection(call.job_ids))
        return [by_kill[index] for index in range(len(self._killed_at))]
