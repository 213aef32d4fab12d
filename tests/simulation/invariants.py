"""What must hold after every step, whatever has happened, and what must have come true at the end. Each has a name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests import transitions

if TYPE_CHECKING:
    from .world import World

# Each answers with the ids that break it.
MORE = {
    "an idempotency key gives one job": """
        SELECT min(id::text) AS id FROM sexton.jobs WHERE idempotency_key IS NOT NULL
        GROUP BY tenant, idempotency_key HAVING count(*) > 1""",
    "the effect of ctx.transaction() happens exactly once per completed job": """
        SELECT j.id FROM sexton.jobs j LEFT JOIN sexton.endings e ON e.job_id = j.id
        WHERE j.task = 'effect' AND (e.status IS NOT DISTINCT FROM 'completed')
          <> ((SELECT count(*) FROM public.effects f WHERE f.job_id = j.id) = 1)""",
    "an effect without its job's completion never shows": """
        SELECT f.job_id AS id FROM public.effects f
        WHERE NOT EXISTS (SELECT FROM sexton.endings e WHERE e.job_id = f.job_id AND e.status = 'completed')""",
    "a run that is leased has a worker that was enlisted": """
        SELECT r.id FROM sexton.runs r WHERE r.state = 'running'
        AND NOT EXISTS (SELECT FROM sexton.workers w WHERE w.id = r.worker_id)""",
    "a letter is dead for every job that failed": """
        SELECT e.job_id AS id FROM sexton.endings e WHERE e.status = 'failed'
        AND NOT EXISTS (SELECT FROM sexton.dead_letters d WHERE d.job_id = e.job_id)""",
    "a report that was accepted stands in history under its own lease": """
        -- Or as a success: that of ctx.transaction(), though its reply was lost.
        SELECT a.run_id AS id
        FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[]) AS a (run_id, worker_id, token, status)
        WHERE NOT EXISTS (
          SELECT FROM sexton.executions x
          WHERE x.run_id = a.run_id AND x.worker_id = a.worker_id AND x.token = a.token
            AND x.status IN (a.status, 'succeeded'))""",
    "a result that stands in history was not counted as lost": """
        SELECT l.run_id AS id FROM unnest($5::uuid[], $6::uuid[], $7::bigint[]) AS l (run_id, worker_id, token)
        JOIN sexton.executions x ON x.run_id = l.run_id AND x.worker_id = l.worker_id AND x.token = l.token
        WHERE x.status IN ('succeeded', 'failed', 'snoozed')""",
}
LIVE = "live runs"  # not an invariant: comes along
_ALL = "\nUNION ALL\n".join(
    [f"SELECT $${name}$$ AS name, id::text FROM ({query}) q" for name, query in {**transitions.INVARIANTS, **MORE}.items()]
    + [f"SELECT $${LIVE}$$, count(*)::text FROM sexton.runs"]
)


class Violation(AssertionError):
    """An invariant is broken; the message names it."""


async def check(world: World) -> int:
    """After every step, in one round trip; answers with how many runs are live."""
    journal = world.journal
    journal.look_at_the_silent()
    if journal.violations:
        raise Violation("; ".join(journal.violations))
    if world.statement_count == world.checked_statement_count:
        return world.live_count  # nothing was sent, so nothing has changed
    world.checked_statement_count = world.statement_count
    accepted, refused = journal.accepted, journal.refused
    journal.accepted, journal.refused = [], []
    columns = [[row[n] for row in accepted] for n in range(4)] + [[row[n] for row in refused] for n in range(3)]
    rows = await world.observer.fetch(_ALL, *columns)
    broken = {f"{row['name']}: {row['id']}" for row in rows if row["name"] != LIVE}
    if broken:
        raise Violation("; ".join(sorted(broken)))
    world.live_count = int(rows[-1]["id"])
    return world.live_count


async def check_end(world: World) -> None:
    """Once the faults are over and time has passed: nothing is lost."""
    rows = await world.observer.fetch("SELECT id, state, job_id, worker_id, due_at FROM sexton.runs")
    if rows:
        raise Violation(f"every job ends: {len(rows)} did not, such as {dict(rows[0])}")
    known = {row["id"] for row in await world.observer.fetch("SELECT id FROM sexton.jobs")}
    lost = world.journal.acknowledged - known
    if lost:
        raise Violation(f"an acknowledged job is there: {lost} are not")
