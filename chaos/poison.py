"""A run that ends each worker that executes it, or blocks its event loop, beside innocent runs with the default budget.
The checker judges rule "suspects apart": only that run is buried, after a bounded number of deaths, and the others start in
time."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from uuid import UUID

from .database_server import Conn, session
from .evidence import Evidence, Tried
from .fault import Fault, How, Poison
from .fault_context import Applied, FaultContext

BESIDE = 30  # innocent runs that are submitted together with the culprit
BESIDE_S = 1.0
FOUND_S = 90.0  # until the culprit is buried; the nemesis waits no longer
INNOCENT_LAG_S = 30.0  # at p99, until the try that succeeds
MAX_LOST = 3  # the default
ORDINARY_LIMIT = 2  # ordinary workers that one run may take down
OWN_LOSS = re.compile(r"the worker held no other run|blocked the event loop")

_SUBMIT = """
SELECT n = $1 / 2 AS is_culprit,
  CASE WHEN n = $1 / 2
    THEN sexton.submit('poison', jsonb_build_object('how', $2::text, 'seconds', $3::float8), tenant => 'bad')
    ELSE sexton.submit('nap', jsonb_build_object('seconds', $4::float8), tenant => 'beside')
  END AS id
FROM generate_series(0, $1::int) AS n"""
_ENDED = "SELECT EXISTS (SELECT FROM sexton.endings WHERE job_id = $1)"
_WORKERS = """
SELECT DISTINCT w.name FROM sexton.executions e JOIN sexton.workers w ON w.id = e.worker_id WHERE e.job_id = $1"""


async def poison(context: FaultContext, hold_s: float) -> Applied:
    how: How = context.rng.choice(("exit", "block"))
    began = time.monotonic()
    async with session(context.database_server) as connection:
        rows = await connection.fetch(_SUBMIT, BESIDE, how, context.plan.lease_s + 3.0, BESIDE_S)
        (culprit,) = (row["id"] for row in rows if row["is_culprit"])
        with suppress(TimeoutError):
            async with asyncio.timeout(FOUND_S):
                await _until_ended(connection, culprit)
        names = [row["name"] for row in await connection.fetch(_WORKERS, culprit)]
    pids = context.members.all_pids()
    members = {pids[pid] for name in names if (pid := int(name.rpartition(":")[2])) in pids}
    beside = frozenset(row["id"] for row in rows if not row["is_culprit"])
    does = "ends its worker" if how == "exit" else "blocks its event loop"
    note = f"a run that {does}, searched for {time.monotonic() - began:.1f} s"
    return Applied(tuple(sorted(members)), note, frozenset({culprit}), Poison(culprit, beside, how))


async def _until_ended(connection: Conn, job_id: UUID) -> None:
    while True:
        if await connection.fetchval(_ENDED, job_id):
            return
        await asyncio.sleep(0.1)


def broken_promises(evidence: Evidence, *, slots: int, without: Collection[UUID] = ()) -> list[str]:
    """`without`: jobs whose delay does not count, because they wait for each other."""
    return [
        f"poison ({fault.note}): {words}"
        for fault in evidence.faults
        if fault.poison is not None
        for words in _broken(evidence, fault, fault.poison, slots, without)
    ]


def _broken(evidence: Evidence, fault: Fault, poison: Poison, slots: int, without: Collection[UUID]) -> Iterator[str]:
    tries = sorted((each for each in evidence.tries if each.job_id == poison.culprit), key=lambda each: each.token)
    lost = [each for each in tries if each.status == "lost"]
    if evidence.endings.get(poison.culprit) != "failed" or not tries or not OWN_LOSS.search(tries[-1].reason or ""):
        yield f"the culprit was not buried for its own losses, but {evidence.endings.get(poison.culprit)}"
    if len(lost) > (limit := loss_limit(poison.how, slots)):
        yield f"it was lost {len(lost)} times, and at most {limit} are allowed"
    ordinary = sum(evidence.workers.get(each.worker_id) in evidence.main_pids for each in lost)
    if poison.how == "exit" and ordinary > ORDINARY_LIMIT:
        yield f"it took down {ordinary} ordinary workers, and at most {ORDINARY_LIMIT} are allowed"
    for job in sorted(poison.beside):
        if evidence.endings.get(job) != "completed":
            yield f"the innocent {job} ended as {evidence.endings.get(job)}"
    lag_s = _lag_s(evidence, fault, {*fault.harmed, *without})
    if lag_s > INNOCENT_LAG_S:
        yield f"the lag of all other jobs was {lag_s:.1f} s at p99"


def loss_limit(how: How, slots: int) -> int:
    """Tries of one such run that may be lost. A run that blocks the event loop is named at once."""
    return MAX_LOST if how == "block" else ORDINARY_LIMIT + math.ceil(math.log2(slots)) - 1 + MAX_LOST


def _lag_s(evidence: Evidence, fault: Fault, without: Collection[UUID]) -> float:
    """At p99, of runs that were due during the fault or shortly before it: from the due time until the last claim."""
    last: dict[UUID, Tried] = {}
    due: dict[UUID, float] = {}
    for each in evidence.tries:
        if each.job_id not in without:
            due[each.run_id] = min(each.due_at, due.get(each.run_id, each.due_at))
            if each.run_id not in last or each.token > last[each.run_id].token:
                last[each.run_id] = each
    lags = sorted(
        last[run].claimed_at - at for run, at in due.items() if fault.began_at - INNOCENT_LAG_S <= at <= fault.ended_at
    )
    return lags[int(0.99 * len(lags))] if lags else 0.0
