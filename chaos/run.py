"""One run of chaos, from the first process to the verdict."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import asyncpg

from tests.process.cluster import Cluster

from . import evidence, judgement, recovery, report
from .app import make
from .database_server import ROLE, DatabaseServer, fresh_server
from .fault_context import FaultContext
from .faults import CLIENT
from .judgement import Verdict
from .load import Load
from .members import Members
from .nemesis import Nemesis
from .network import proxied
from .plan import Plan
from .stalls import read as read_stalls
from .stalls import watched
from .submissions import Submissions

OVER = """SELECT NOT EXISTS (SELECT FROM sexton.runs)
            AND NOT EXISTS (SELECT FROM sexton.jobs_recurring WHERE over_at IS NULL)"""
BEGIN_S, TAIL_S = 2.0, 2.0  # the schedules begin this long after the load and end this long before it


@dataclass(frozen=True)
class Outcome:
    verdict: Verdict
    facts: dict[str, Any]
    logs: str  # the last log lines of every member


async def run(plan: Plan, folder: Path, say: Callable[[str], None] = lambda _: None) -> Outcome:
    """Writes the report to `folder`."""
    say("starting PostgreSQL, the proxy and the members")
    with tempfile.TemporaryDirectory(prefix="sexton-chaos-work-") as work:
        async with (
            fresh_server(disk_mib=plan.disk_mib, connections=plan.connections) as database_server,
            proxied(database_server.socket_path, (*plan.members, CLIENT), ROLE) as network,
        ):
            cluster = Cluster(Path(work) / "cluster", network.url(CLIENT), plan.settings)
            submissions = Submissions(Path(work) / "submissions.jsonl")
            is_sound = False
            try:
                context = FaultContext(plan, database_server, network, Members(plan, cluster, network, Path(work)))
                outcome = await _act(context, submissions, folder, say)
                is_sound = outcome.verdict.is_sound
                return outcome
            finally:
                submissions.close()
                cluster.close()
                if not is_sound:
                    shutil.copytree(work, folder / "evidence", dirs_exist_ok=True)


async def _act(context: FaultContext, submissions: Submissions, folder: Path, say: Callable[[str], None]) -> Outcome:
    plan, members = context.plan, context.members
    await members.start()
    nemesis = Nemesis(context, say)
    for name, why in nemesis.not_done.items():
        say(f"NOT DONE: {name} ({why})")
    with watched() as stalls:
        async with _supervised(members):
            began_at = await _play(context, submissions, nemesis)
            say("the load has ended; waiting for the remaining runs")
            drained_s = await _drain(context.database_server, plan.drain_s)
    say("all runs have ended; collecting the evidence")
    connection = await context.database_server.connect()
    try:
        found = await evidence.gather(
            connection, members, submissions, nemesis.log, began_at=began_at, ended_at=time.monotonic()
        )
        postgres = str(await connection.fetchval("SHOW server_version"))
    finally:
        await connection.close()
    found.stalls = [*stalls, *read_stalls(members.cluster.journal_directory, members.all_pids())]
    verdict = judgement.judge(found, lease_s=plan.lease_s)
    verdict.broken += recovery.broken_promises(found, verdict, slots=plan.slots)
    facts = report.write(folder, plan, found, verdict, not_done=nemesis.not_done, drained_s=drained_s, postgres=postgres)
    return Outcome(verdict, facts, members.cluster.logs())


@asynccontextmanager
async def _supervised(members: Members) -> AsyncIterator[None]:
    supervising = asyncio.create_task(members.supervise(), name="supervisor")
    try:
        yield
    finally:
        supervising.cancel()
        with suppress(asyncio.CancelledError):
            await supervising


async def _play(context: FaultContext, submissions: Submissions, nemesis: Nemesis) -> float:
    """Runs load and faults at the same time. Returns when they began."""
    plan = context.plan
    async with make(context.network.url(CLIENT)) as app:
        load = Load(app, context.members.api_url, submissions, rate=plan.rate, rng=Random(plan.seed))
        try:
            began_at = time.monotonic()
            until = began_at + plan.seconds
            await load.schedule(plan.schedules, begin_s=BEGIN_S, seconds=plan.seconds - BEGIN_S - TAIL_S)
            load.end_at(until + plan.overtime_s)
            async with asyncio.TaskGroup() as both:
                both.create_task(load.run(), name="load")
                await nemesis.run(until + plan.overtime_s)
                load.end_at(until)
        finally:
            await load.close()
    return began_at


async def _drain(database_server: DatabaseServer, within_s: float) -> float:
    """Waits until no run is live. Returns how long that took; the verdict reports runs that are still live."""
    began = time.monotonic()
    while time.monotonic() - began < within_s:
        try:
            connection = await database_server.connect()
            try:
                while time.monotonic() - began < within_s:
                    if await connection.fetchval(OVER):
                        return time.monotonic() - began
                    await asyncio.sleep(0.1)
            finally:
                connection.terminate()
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            await asyncio.sleep(0.5)
    return time.monotonic() - began
