"""A recurring job through the real planner, promoter and guardian. The test controls time, and how long runs take."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from sexton.domain import partition, run
from sexton.domain.outcome import Cancelled, Outcome, Succeeded
from sexton.domain.run import Claimed
from sexton.operations.caller import Caller
from sexton.operations.recurring import recurring_jobs
from sexton.operations.versions import AtVersion
from sexton.scheduler.guardian import Guardian
from sexton.scheduler.planner import Planner
from sexton.scheduler.promoter import Promoter
from sexton.store.database import Database
from sexton.store.work import jobs, runs
from sexton.store.work.jobs import JobView
from tests.callers import TESTER
from tests.rig import Rig
from tests.store.support import claim, enlist

LIMIT = 1000


class Start(NamedTuple):
    at: datetime
    fire_at: datetime


@dataclass(frozen=True)
class Told:
    """A row of the ledger: fires that did not run, and why."""

    status: str
    first_at: datetime
    last_at: datetime
    count: int
    reason: str


class Timetable:
    def __init__(self, rig: Rig, *, takes_s: float = 0.0, database: Database | None = None) -> None:
        self.rig, self.takes_s = rig, takes_s
        self.began_at = rig.clock.database_now()
        self.starts: list[Start] = []
        self.held: list[tuple[datetime, Claimed]] = []  # until when
        self.planner, self.promoter = self.node(database=database)
        self.guardian = Guardian(database or rig.database, clock=rig.clock, emit=rig.heard)
        self.ended_count = 0
        self._worker_id: UUID | None = None

    def node(
        self, led: Collection[int] = partition.ALL, *, limit: int = LIMIT, database: Database | None = None
    ) -> tuple[Planner, Promoter]:
        rig, way = self.rig, database or self.rig.database
        return (
            Planner(way, lambda: led, limit=limit, clock=rig.clock, emit=rig.heard),
            Promoter(way, lambda: led, limit=limit, clock=rig.clock, emit=rig.heard),
        )

    @property
    def now(self) -> datetime:
        return self.rig.clock.database_now()

    # What people do

    async def write(self, **fields: Any) -> UUID:
        async with self.rig.database.transaction() as connection:
            (written,) = await recurring_jobs.submit(connection, TESTER, [document(**fields)], now=self.now)
        return written.id

    async def edit(self, job_id: UUID, **fields: Any) -> JobView:
        async with self.rig.database.transaction() as connection:
            return await recurring_jobs.edit(connection, TESTER, AtVersion(job_id), document(**fields), now=self.now)

    async def pause(self, job_id: UUID, *, by: str = "test", **options: Any) -> JobView:
        async with self.rig.database.transaction() as connection:
            return await recurring_jobs.pause(connection, Caller(by), job_id, recurring_jobs.Pause(**options), now=self.now)

    async def resume(self, job_id: UUID) -> JobView:
        async with self.rig.database.transaction() as connection:
            return await recurring_jobs.resume(connection, TESTER, job_id, now=self.now)

    async def fire(self, job_id: UUID) -> JobView:
        async with self.rig.database.transaction() as connection:
            return await recurring_jobs.fire(connection, TESTER, job_id, now=self.now)

    async def show(self, job_id: UUID) -> JobView:
        async with self.rig.database.connection() as connection:
            return await jobs.show(connection, job_id)

    # What the cluster does

    async def schedule(self) -> None:
        """One pass of planner and promoter at this instant."""
        while await self.planner.run_once() == 0.0:
            pass
        while await self.promoter.run_once() == 0.0:
            pass

    async def work(self, outcome: Outcome | None = None) -> list[Claimed]:
        """A worker claims what is ready, ends runs whose time is over, and stops runs that are cancelled."""
        await self._end(outcome or Succeeded())
        async with self.rig.database.connection() as connection:
            if self._worker_id is None:
                self._worker_id = await enlist(connection, now=self.now)
            claimed = await claim(connection, self._worker_id, limit=LIMIT, now=self.now)
        self.starts += [Start(self.now, one.fire_at) for one in claimed]
        self.held += [(self.now + timedelta(seconds=self.takes_s), one) for one in claimed]
        if claimed and self.takes_s == 0.0:
            await self._end(outcome or Succeeded())
        return claimed

    async def turn(self) -> None:
        """All passes at this instant."""
        await self._end(Succeeded())
        for _ in range(10):
            ended = self.ended_count
            await self.schedule()
            if not await self.work() and self.ended_count == ended:
                return

    async def until(self, minute: float, *, step_s: float = 60.0) -> None:
        """Continues in steps until the given minutes after the start; the last step is at that minute."""
        end = self.began_at + timedelta(minutes=minute)
        while self.now < end:
            self.rig.move(min(step_s, (end - self.now).total_seconds()))
            await self.turn()

    async def _end(self, outcome: Outcome) -> None:
        asked = (
            {row["id"] for row in await self.rig.execute("SELECT id FROM sexton.runs WHERE cancel_requested_at IS NOT NULL")}
            if self.held
            else set()
        )
        over = [
            (one, Cancelled("asked") if one.lease.run_id in asked else outcome)
            for until, one in self.held
            if until <= self.now or one.lease.run_id in asked
        ]
        if over:
            reports = [run.report(one.lease, how, Random(1)) for one, how in over]
            async with self.rig.database.connection() as connection:
                await runs.finish(connection, reports, now=self.now)
            ended = {one.lease.run_id for one, _ in over}
            self.held = [(until, one) for until, one in self.held if one.lease.run_id not in ended]
        self.ended_count += len(over)

    # What a test sees

    async def waiting(self, job_id: UUID) -> list[datetime]:
        rows = await self.rig.execute(
            "SELECT fire_at FROM sexton.runs WHERE job_id = $1 AND state = 'waiting' AND token = 0 ORDER BY fire_at", job_id
        )
        return [row["fire_at"] for row in rows]

    async def live(self, job_id: UUID) -> list[tuple[str, datetime]]:
        rows = await self.rig.execute("SELECT state, fire_at FROM sexton.runs WHERE job_id = $1 ORDER BY fire_at", job_id)
        return [(row["state"], row["fire_at"]) for row in rows]

    async def ledger(self, job_id: UUID) -> list[Told]:
        rows = await self.rig.execute(
            """SELECT status, fire_at, result, reason FROM sexton.executions
               WHERE job_id = $1 AND status IN ('skipped', 'missed', 'paused') ORDER BY fire_at""",
            job_id,
        )
        return [_told(row) for row in rows]

    def minutes(self, instants: Sequence[datetime]) -> list[float]:
        return [(at - self.began_at).total_seconds() / 60 for at in instants]

    def start_minutes(self) -> list[float]:
        return self.minutes([start.at for start in self.starts])

    def fire_minutes(self) -> list[float]:
        return self.minutes([start.fire_at for start in self.starts])


def document(**fields: Any) -> dict[str, Any]:
    return {"task": "a", "timeout_s": 0, "schedule": {"cron": "*/15 * * * *"}, **fields}


def _told(row: Any) -> Told:
    gap = json.loads(row["result"]) if row["result"] is not None else None
    first, last, count = (
        (row["fire_at"],) * 2 + (1,)
        if gap is None
        else (datetime.fromisoformat(gap["first"]), datetime.fromisoformat(gap["last"]), gap["count"])
    )
    return Told(row["status"], first, last, count, row["reason"])
