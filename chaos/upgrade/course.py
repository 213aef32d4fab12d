"""The course of an upgrade under load, as an operator does it. The previous release works. `sexton migrate` of this tree runs.
Services of this tree join. Both releases work, and one worker of each is killed; the one of the previous release restarts on
the new schema. The services of the previous release stop.

Each phase ends after a number of executed jobs, not after a time, so that a slow machine does not change it."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias
from uuid import UUID

import asyncpg
import httpx

from chaos.fires import FireFindings, judge
from chaos.ledger import promised, recorded
from tests.migration.previous_release import ROOT, Release
from tests.process import checker, journal
from tests.process.cluster import SHORT, Cluster

from .locks import Seen, migrating_role, watched
from .submitter import SHARED
from .verdict import Verdict

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Say: TypeAlias = Callable[[str], None]

APP = "chaos.upgrade.app:app"
PATIENCE_S = 120.0
OLD, NEW = "previous", "current"
API_BATCH = 50
PHASES = 6  # how many times each release executes that many jobs
LONGER_S = 10  # the schedules of the previous release fire before, during and after the migration

_EXECUTED = "SELECT count(*) FROM sexton.executions WHERE worker_id = ANY ($1) AND status = 'succeeded'"
_LOST = "SELECT run_id FROM sexton.executions WHERE status IN ('lost', 'released')"
_OVER = "SELECT NOT EXISTS (SELECT FROM sexton.runs) AND NOT EXISTS (SELECT FROM sexton.jobs_recurring WHERE over_at IS NULL)"


class Plan(NamedTuple):
    jobs: int = 400  # executed by each release in each phase
    seconds: int = 5  # how long schedules of the current release fire; those of the previous release fire longer


class Course:
    def __init__(self, release: Release, cluster: Cluster, connection: Conn, url: str, plan: Plan, say: Say) -> None:
        self._release, self._cluster, self._connection, self._url = release, cluster, connection, url
        self._plan, self._say = plan, say
        self._workers: dict[str, set[UUID]] = {OLD: set(), NEW: set()}
        self._submitters: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}
        self._by_api: list[UUID] = []

    async def run(self) -> Verdict:
        """When it returns, everything that it started has ended, or ends with the cluster."""
        try:
            await self._previous_works()
            locks = await self._migrate()
            await self._both_work()
            await self._current_works_alone()
            return await self._judge(locks)
        finally:
            for process, _ in self._submitters.values():
                process.kill()
                process.wait()

    async def _previous_works(self) -> None:
        await asyncio.to_thread(self._command, self._release.python, self._url)
        self._cluster.scheduler("previous-scheduler", python=self._release.python)
        for name in ("previous-worker-1", "previous-worker-2"):
            self._cluster.worker(name, app=APP, python=self._release.python)
        await self._until_joined("previous-scheduler", "previous-worker-1", "previous-worker-2")
        self._submit(OLD, self._release.python, self._plan.seconds + LONGER_S)
        await self._until_executed(OLD)

    async def _migrate(self) -> Seen:
        async with migrating_role(self._connection, self._url) as (role, url), watched(self._url, role) as seen:
            before = await self._executed(OLD)
            await asyncio.to_thread(self._command, Path(sys.executable), url)
            await self._until_executed(OLD, since=before)
        self._say(f"migrated: longest lock {1000 * seen.held_s:.0f} ms, seen in {seen.samples} samples")
        return seen

    async def _both_work(self) -> None:
        self._cluster.scheduler("current-scheduler")
        for name in ("current-worker-1", "current-worker-2"):
            self._cluster.worker(name, app=APP)
        self._cluster.api("api")
        await self._until_joined("current-scheduler", "current-worker-1", "current-worker-2")
        self._submit(NEW, Path(sys.executable), self._plan.seconds)
        await self._submit_over_http()
        old = await self._executed(OLD)
        for victim in ("previous-worker-1", "current-worker-1"):  # the sweeper of either release may take its runs back
            await self._until_executed(NEW, since=await self._executed(NEW))
            self._cluster.kill(victim)
        self._cluster.restart("previous-worker-1")
        await self._until_joined("previous-worker-1")
        await self._until_executed(OLD, since=old)

    async def _current_works_alone(self) -> None:
        self._stop_submitting(OLD)
        for name in ("previous-scheduler", "previous-worker-1", "previous-worker-2"):
            self._cluster.terminate(name)
            code = await self._cluster.exit_code(name, within_s=PATIENCE_S)
            assert code == 0, f"{name} ended with {code}\n{self._cluster.logs()}"
        self._say("the previous release has stopped")
        await self._until_executed(NEW, since=await self._executed(NEW))
        self._stop_submitting(NEW)
        await self._cluster.until(lambda: self._connection.fetchval(_OVER), "the last job to end", within_s=PATIENCE_S)
        self._say("all have ended")

    async def _judge(self, locks: Seen) -> Verdict:
        kinds = [self._acknowledged(name) for name in self._submitters]
        once = {job_id for kind in kinds for job_id in (*kind["once"], *kind["shared"])} | set(self._by_api)
        schedules = {job_id for kind in kinds for job_id in kind["schedule"]}
        folder = self._cluster.journal_directory
        return Verdict(
            await checker.check(self._connection, folder, once),
            await self._fires(schedules),
            locks,
            {job_id for kind in kinds for job_id in kind["shared"]},
            SHARED,
            {release: await self._executed(release) for release in (OLD, NEW)},
        )

    async def _fires(self, schedules: set[UUID]) -> FireFindings:
        """A run that lost its worker may end twice: that is one fire, not two."""
        ends = Counter(line.run_id for line in journal.read(self._cluster.journal_directory) if line.what == "end")
        lost = {row["run_id"] for row in await self._connection.fetch(_LOST)}
        return judge(
            await promised(self._connection, schedules),
            await recorded(self._connection, schedules),
            worked_twice={run_id for run_id, count in ends.items() if count > 1} - lost,
        )

    def _command(self, python: Path, url: str) -> None:
        environment = {**os.environ, "SEXTON_DATABASE_URL": url}
        done = subprocess.run([python, "-m", "sexton", "migrate"], cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{python} -m sexton migrate ended with {done.returncode}: {done.stderr}"

    async def _until_joined(self, *names: str) -> None:
        """Read from the tables: the two releases may log it in different words."""
        for name in names:
            kind = "worker" if "worker" in name else "node"
            release, pid = name.partition("-")[0], self._cluster[name].pid

            async def joined(kind: str = kind, pid: int = pid) -> object:
                return await self._connection.fetchval(f"SELECT id FROM sexton.{kind}s WHERE name LIKE '%:{pid}'")

            await self._cluster.until(joined, f"{name} to join", within_s=PATIENCE_S)
            if kind == "worker":
                self._workers[release].add(UUID(str(await joined())))

    def _submit(self, release: str, python: Path, seconds: int) -> None:
        output_path = self._cluster.journal_directory.parent / f"{release}.submitted"
        environment = {**os.environ, "SEXTON_DATABASE_URL": self._url}
        command: list[str | Path] = [
            python,
            "-m",
            "chaos.upgrade.submitter",
            release,
            str(seconds),
            str(PHASES * self._plan.jobs),
        ]
        with output_path.open("wb") as output, output_path.with_suffix(".log").open("wb") as errors:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=errors)
        self._submitters[release] = process, output_path

    def _stop_submitting(self, release: str) -> None:
        process, output_path = self._submitters[release]
        process.terminate()
        assert process.wait(PATIENCE_S) == 0, output_path.with_suffix(".log").read_text()

    def _acknowledged(self, release: str) -> dict[str, list[UUID]]:
        kinds: dict[str, list[UUID]] = {"once": [], "shared": [], "schedule": []}
        for line in self._submitters[release][1].read_text().splitlines():
            kind, _, job_id = line.partition(" ")
            kinds[kind].append(UUID(job_id))
        return kinds

    async def _submit_over_http(self) -> None:
        log, found = self._cluster["api"], re.compile(r"http://127\.0\.0\.1:(\d+)")
        await self._cluster.until(lambda: found.search(log.log), "the API to listen", within_s=PATIENCE_S)
        (address,) = {match[0] for match in found.finditer(log.log)}
        jobs = [{"handler": "nap", "payload": {"seconds": 0.01}} for _ in range(API_BATCH)]
        async with httpx.AsyncClient(base_url=address, timeout=PATIENCE_S) as client:
            answer = (await client.post("/v1/jobs/batch", json=jobs)).raise_for_status()
        self._by_api = [UUID(item["id"]) for item in answer.json()["items"]]

    async def _executed(self, release: str) -> int:
        count: int = await self._connection.fetchval(_EXECUTED, list(self._workers[release]))
        return count

    async def _until_executed(self, release: str, *, since: int = 0) -> None:
        wanted = since + self._plan.jobs

        async def executed() -> bool:
            for name, (process, output_path) in self._submitters.items():
                assert not process.poll(), f"the submitter of {name} failed: {output_path.with_suffix('.log').read_text()}"
            return await self._executed(release) >= wanted

        await self._cluster.until(executed, f"the {release} release to execute {wanted} jobs", within_s=PATIENCE_S)
        self._say(f"the {release} release has executed {wanted} jobs")


def settings() -> dict[str, object]:
    return {**SHORT, "worker_concurrency": 50}
