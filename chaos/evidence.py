"""Collects all that the checker judges, on one clock: the database's history and log of claims, the handlers' journal, the
harness's submissions and the nemesis's log. It makes no judgement."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from tests.process import journal

from .database_server import Conn
from .fault import Fault
from .ledger import Fire, FireRow, promised, recorded
from .load import RECURRING
from .members import End, Members
from .submissions import Submissions

_FAILURE = re.compile(r"service failed.*|Traceback \(most recent call last\):\n(?:[ \t|+].*\n)*.*")
# libfaketime breaks `time.sleep`; only the thread that ends a process late calls it.
_FAKED = re.compile(r"time\.sleep\(.*\n(?:[ \t].*\n)*OSError: \[Errno 22\]")


class Tried(NamedTuple):
    """One row of `sexton.executions` that was claimed. Times are monotonic, converted from the database's clock."""

    job_id: UUID
    run_id: UUID
    worker_id: UUID
    token: int
    attempt: int
    status: str
    task: str
    due_at: float  # of a fire: its time by the schedule. One that was written late has a later `due_at` in the database
    claimed_at: float
    recorded_at: float
    reason: str | None = None
    tenant: str = "default"


@dataclass
class Evidence:
    began_at: float
    ended_at: float
    submissions: Submissions
    faults: Sequence[Fault]
    lines: Sequence[journal.Line]
    tries: Sequence[Tried] = ()
    one_time: Collection[UUID] = ()  # jobs that the database has
    endings: Mapping[UUID, str] = field(default_factory=dict)
    live: Collection[UUID] = ()
    unrecorded: Sequence[str] = ()  # claims that have no execution
    effects: Counter[UUID] = field(default_factory=Counter)
    doubled_keys: Sequence[str] = ()
    fire_rows: Sequence[FireRow] = ()
    expected_fires: Collection[Fire] = ()
    queueing: Collection[UUID] = ()  # schedules whose fires wait for each other
    workers: Mapping[UUID, int] = field(default_factory=dict)  # worker id: process id
    pids: Mapping[int, str] = field(default_factory=dict)  # process id: member
    main_pids: Collection[int] = ()  # of these, the processes that the harness started; the others are workers in quarantine
    deaths: Mapping[int, float] = field(default_factory=dict)
    own_ends: Sequence[End] = ()
    failures: Mapping[str, int] = field(default_factory=dict)  # unexpected errors in the members' logs
    stalls: Sequence[Fault] = ()  # stalls of the machine or of a process that no fault caused
    wall_offset: float = 0.0  # wall clock minus monotonic

    def member_of(self, worker_id: UUID) -> str | None:
        return self.pids.get(self.workers.get(worker_id, -1))


async def gather(
    connection: Conn, members: Members, submissions: Submissions, faults: Sequence[Fault], *, began_at: float, ended_at: float
) -> Evidence:
    offset = time.time() - time.monotonic()
    lines = [line._replace(wall=line.at + offset) for line in journal.read(members.cluster.journal_directory)]
    found = Evidence(began_at, ended_at, submissions, faults, lines, wall_offset=offset)
    found.tries = await _tries(connection, offset)
    found.one_time = {
        row["id"]
        for row in await connection.fetch("SELECT id FROM sexton.jobs WHERE id < '80000000-0000-0000-0000-000000000000'")
    }
    found.endings = {
        row["job_id"]: row["status"] for row in await connection.fetch("SELECT job_id, status FROM sexton.endings")
    }
    found.live = {row["job_id"] for row in await connection.fetch("SELECT DISTINCT job_id FROM sexton.runs")}
    found.unrecorded = [
        f"{row['run_id']}: token {row['token']} left no execution behind"
        for row in await connection.fetch(
            """SELECT c.run_id, c.token FROM public.claims c
               LEFT JOIN sexton.executions e ON e.run_id = c.run_id AND e.token = c.token
               LEFT JOIN sexton.runs r ON r.id = c.run_id AND r.token = c.token WHERE e.id IS NULL AND r.id IS NULL"""
        )
    ]
    found.effects = Counter(
        {
            row["run_id"]: row["count"]
            for row in await connection.fetch("SELECT run_id, count(*) AS count FROM public.effects GROUP BY run_id")
        }
    )
    found.doubled_keys = [
        str(row["idempotency_key"])
        for row in await connection.fetch(
            "SELECT idempotency_key FROM sexton.jobs WHERE idempotency_key IS NOT NULL GROUP BY 1 HAVING count(*) > 1"
        )
    ]
    recurring = list(submissions.ids(RECURRING))
    found.fire_rows, found.expected_fires = await recorded(connection, recurring), await promised(connection, recurring)
    found.queueing = {
        row["id"]
        for row in await connection.fetch(
            "SELECT id FROM sexton.jobs_recurring WHERE recurrence->'overlap'->>'policy' = 'queue'"
        )
    }
    found.workers, found.pids, found.deaths = members.workers_by_id(), members.all_pids(), members.deaths
    found.main_pids = set(members.pids)
    found.own_ends, found.failures = members.own_ends, _failures(members)
    return found


async def _tries(connection: Conn, offset: float) -> list[Tried]:
    rows = await connection.fetch(
        """SELECT e.id, e.job_id, e.run_id, e.worker_id, e.token, e.attempt, e.status, e.task, e.reason, e.tenant,
             CASE WHEN e.origin = 'schedule' THEN e.fire_at ELSE e.due_at END AS due_at,
             coalesce(c.claimed_at, e.started_at) AS claimed_at
           FROM sexton.executions e LEFT JOIN public.claims c ON c.run_id = e.run_id AND c.token = e.token
           WHERE e.worker_id IS NOT NULL"""
    )
    return [
        Tried(
            row["job_id"],
            row["run_id"],
            row["worker_id"],
            row["token"],
            row["attempt"],
            row["status"],
            row["task"],
            row["due_at"].timestamp() - offset,
            row["claimed_at"].timestamp() - offset,
            made_at(row["id"]) - offset,
            row["reason"],
            row["tenant"],
        )
        for row in rows
    ]


def made_at(uuid7: UUID) -> float:
    """The time in an id that the database generated: milliseconds, plus thousandths of them in the twelve bits after the
    version."""
    return (uuid7.int >> 80) / 1e3 + ((uuid7.int >> 64) & 0xFFF) / 4096 / 1e3


def _failures(members: Members) -> dict[str, int]:
    found: Counter[str] = Counter()
    for name in members.plan.members:
        for text in _FAILURE.findall(members.cluster[name].log):
            if name in members.skewed and _FAKED.search(text):
                continue
            found[f"{name}: {text.splitlines()[0][:120]} … {text.splitlines()[-1][:200]}"] += 1
    return dict(found)
