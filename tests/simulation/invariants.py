"""What must hold after every step, and what must be true at the end. Each invariant has a name."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from sexton.domain.schedule import fires
from sexton.domain.schedule.rule import Schedule
from tests import transitions

from . import zone_update
from .schedule_client import MAX_PARALLEL

if TYPE_CHECKING:
    from .schedule_client import Kept
    from .world import World

LEDGER = "every fire and every run that is over has one last row in the ledger"
GAPS = "a fire that is told as missed or paused has no run"
ORDINARY_DEATHS = 2  # by one poison; the second death puts it into quarantine
HALVINGS = 5  # from 40 jobs down to a group of one, after the second ordinary worker
# Each query returns the ids that break the invariant.
MORE = {
    "an idempotency key gives one job": """
        SELECT min(id::text) AS id FROM sexton.jobs WHERE idempotency_key IS NOT NULL
        GROUP BY tenant, idempotency_key HAVING count(*) > 1""",
    "the effect of ctx.transaction() happens exactly once per completed job": """
        SELECT j.id FROM sexton.jobs j LEFT JOIN sexton.endings e ON e.job_id = j.id
        WHERE j.task = 'effect' AND (e.status IS NOT DISTINCT FROM 'completed')
          <> ((SELECT count(*) FROM public.effects f WHERE f.job_id = j.id) = 1)""",
    "an effect exists only with its job's completion": """
        SELECT f.job_id AS id FROM public.effects f
        WHERE NOT EXISTS (SELECT FROM sexton.endings e WHERE e.job_id = f.job_id AND e.status = 'completed')""",
    "a leased run has a registered worker": """
        SELECT r.id FROM sexton.runs r WHERE r.state = 'running'
        AND NOT EXISTS (SELECT FROM sexton.workers w WHERE w.id = r.worker_id)""",
    "every failed job has a dead letter": """
        SELECT e.job_id AS id FROM sexton.endings e WHERE e.status = 'failed'
        AND NOT EXISTS (SELECT FROM sexton.dead_letters d WHERE d.job_id = e.job_id)""",
    "an accepted report is in the history under its own lease": """
        -- Or as a success: that of ctx.transaction(), though its reply was lost.
        SELECT a.run_id AS id
        FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[]) AS a (run_id, worker_id, token, status)
        WHERE NOT EXISTS (
          SELECT FROM sexton.executions x
          WHERE x.run_id = a.run_id AND x.worker_id = a.worker_id AND x.token = a.token
            AND x.status IN (a.status, 'succeeded'))""",
    "a fire of a schedule is one run": """
        SELECT job_id AS id FROM (
          SELECT job_id, fire_at, id AS run_id FROM sexton.runs WHERE origin = 'schedule'
          UNION SELECT job_id, fire_at, run_id FROM sexton.executions
          WHERE origin = 'schedule' AND job_id >= '80000000-0000-0000-0000-000000000000' AND result->'first' IS NULL) f
        GROUP BY job_id, fire_at HAVING count(*) > 1""",
    GAPS: """
        SELECT g.job_id AS id FROM sexton.executions g JOIN (
          SELECT job_id, fire_at FROM sexton.runs WHERE origin = 'schedule'
          UNION ALL SELECT job_id, fire_at FROM sexton.executions WHERE origin = 'schedule' AND result->'first' IS NULL) f
          ON f.job_id = g.job_id AND f.fire_at BETWEEN (g.result->>'first')::timestamptz AND (g.result->>'last')::timestamptz
        WHERE g.status IN ('missed', 'paused') AND g.result->'first' IS NOT NULL""",
    "no run of a paused or cancelled schedule is still to begin": """
        SELECT j.id FROM sexton.jobs_recurring j JOIN sexton.runs r ON r.job_id = j.id
        WHERE (j.paused_at IS NOT NULL OR j.over_as = 'cancelled') AND r.token = 0 AND r.origin = 'schedule'""",
    "a run that has not begun is of the current version": """
        SELECT r.id FROM sexton.runs r JOIN sexton.jobs_recurring j ON j.id = r.job_id
        WHERE r.token = 0 AND r.origin <> 'replay' AND r.job_version <> j.version""",
    "what waits is kept apart as its job says now": """
        SELECT r.id FROM sexton.runs r JOIN sexton.jobs_recurring j ON j.id = r.job_id
        WHERE r.token = 0 AND r.state = 'waiting' AND r.origin = 'schedule'
          AND r.overlap <> sexton.overlap_of(j.recurrence)""",
    "no more runs of a job are live than its overlap policy allows": f"""
        SELECT r.job_id AS id FROM sexton.runs r
        WHERE r.overlap = 2 AND (r.state IN ('ready', 'parked', 'running') OR r.token > 0)
        GROUP BY r.job_id HAVING count(*) > {MAX_PARALLEL}""",
    "a result in the history was not counted as lost": """
        SELECT l.run_id AS id FROM unnest($5::uuid[], $6::uuid[], $7::bigint[]) AS l (run_id, worker_id, token)
        JOIN sexton.executions x ON x.run_id = l.run_id AND x.worker_id = l.worker_id AND x.token = l.token
        WHERE x.status IN ('succeeded', 'failed', 'snoozed')""",
    LEDGER: f"""
        -- Of its last try, or of what ended it between two tries or before the first. A fire that was taken back before it
        -- began was not due when its schedule ended, or is still to be decided, or was decided otherwise. What a pause took
        -- back, and what another zone moves, is decided by the rule and the zone of later.
        SELECT g.run_id AS id FROM public.gone g LEFT JOIN sexton.executions x ON x.run_id = g.run_id AND x.token = g.token
        GROUP BY g.run_id, g.job_id, g.token, g.origin, g.fire_at, g.due_at, g.job_version
        HAVING count(x.run_id) = 0 AND NOT (g.token = 0 AND g.origin = 'schedule' AND EXISTS (
            SELECT FROM sexton.jobs_recurring j WHERE j.id = g.job_id AND (
              g.due_at > j.over_at OR (j.over_at IS NULL AND g.fire_at > j.plan_cursor_at)
              OR j.schedule->>'timezone' = '{zone_update.ZONE}'
              OR EXISTS (SELECT FROM sexton.job_versions v
                         WHERE v.job_id = j.id AND v.version >= g.job_version AND NOT sexton.same_rule(v.schedule, j.schedule))
              OR EXISTS (SELECT FROM sexton.runs r WHERE r.job_id = j.id AND r.fire_at = g.fire_at AND r.origin = 'schedule')
              OR EXISTS (
                SELECT FROM sexton.executions e WHERE e.job_id = j.id AND e.origin = 'schedule' AND (
                  e.fire_at = g.fire_at OR g.fire_at
                    BETWEEN (e.result->>'first')::timestamptz AND (e.result->>'last')::timestamptz)))))
          OR count(x.run_id) FILTER (WHERE x.worker_id IS NULL) > 1 OR count(x.worker_id) > 1""",
    "every active recurring job has a next fire": """
        -- It is planned again before its last one; two seconds after that it may be over. Not where the clock is set back.
        SELECT j.id FROM sexton.jobs_recurring j
        WHERE j.over_at IS NULL AND j.paused_at IS NULL AND j.plan_at > $9::timestamptz + interval '2 seconds' AND NOT EXISTS (
          SELECT FROM sexton.runs r WHERE r.job_id = j.id AND r.origin = 'schedule' AND r.state = 'waiting' AND r.token = 0)""",
    "no job takes down more workers than it may": """
        SELECT x.run_id AS id FROM sexton.executions x
        JOIN sexton.jobs j ON j.id = x.job_id JOIN sexton.workers w ON w.id = x.worker_id
        WHERE x.status = 'lost' AND w.held_at_loss = 1 AND NOT w.lost_with_parent
        GROUP BY x.run_id, j.policy HAVING count(*) > coalesce((j.policy->>'max_lost')::int, 3)""",
    "a loss is charged only to a run that was alone": """
        SELECT c.run_id AS id FROM (
          SELECT r.id AS run_id, r.lost_count FROM sexton.runs r
          UNION ALL SELECT d.run_id, d.lost_count FROM sexton.dead_letters d WHERE d.reason LIKE 'it took down%') c
        WHERE c.lost_count > (
          SELECT count(*) FROM sexton.executions x WHERE x.run_id = c.run_id AND x.status = 'lost' AND NOT EXISTS (
            -- An at-most-once run whose claim had no reply was lost before, while the worker lived.
            SELECT FROM sexton.executions o WHERE o.worker_id = x.worker_id AND o.run_id <> x.run_id AND o.status = 'lost'
              AND o.reason NOT LIKE '%the reply of its claim was lost')
          AND NOT EXISTS (SELECT FROM sexton.runs o WHERE o.worker_id = x.worker_id AND o.state = 'running'))""",
    f"no poison takes down more than {ORDINARY_DEATHS} ordinary workers": f"""
        SELECT x.run_id AS id FROM sexton.executions x JOIN sexton.workers w ON w.id = x.worker_id
        WHERE x.task = 'poison' AND x.status = 'lost' AND NOT w.quarantine
        GROUP BY x.run_id HAVING count(*) > {ORDINARY_DEATHS}""",
    "poison is found in a bounded number of deaths": f"""
        SELECT x.run_id AS id FROM sexton.executions x
        JOIN sexton.jobs j ON j.id = x.job_id JOIN sexton.workers w ON w.id = x.worker_id
        WHERE x.task = 'poison' AND x.status = 'lost' AND w.quarantine AND NOT w.lost_with_parent
        GROUP BY x.run_id, j.policy HAVING count(*) > {HALVINGS} + coalesce((j.policy->>'max_lost')::int, 3)""",
    "suspects are executed in no larger company than each allows": """
        SELECT r.worker_id AS id FROM sexton.runs r WHERE r.state = 'running' AND r.worker_id IN (
          SELECT s.worker_id FROM sexton.runs s WHERE s.state = 'running' AND s.company > 0)
        GROUP BY r.worker_id HAVING count(*) > min(r.company) OR bool_or(coalesce(r.company, 0) = 0)""",
    "suspects and others are executed apart": """
        SELECT r.id FROM sexton.runs r JOIN sexton.workers w ON w.id = r.worker_id
        WHERE r.state = 'running' AND w.quarantine <> (coalesce(r.company, 0) > 0)""",
    "a slot is held by a live run that knows of it": """
        SELECT s.run_id AS id FROM sexton.slots s WHERE s.run_id IS NOT NULL AND NOT EXISTS (
          SELECT FROM sexton.runs r WHERE r.id = s.run_id AND (
            (s.key = r.limit_key AND r.slot = s.n) OR (s.key = '@tenant:' || r.tenant AND r.tenant_slot = s.n)))""",
    "a run that has a slot holds it": """
        SELECT r.id FROM sexton.runs r
        WHERE r.slot IS NOT NULL AND NOT EXISTS (
            SELECT FROM sexton.slots s WHERE s.key = r.limit_key AND s.n = r.slot AND s.run_id = r.id)
          OR r.tenant_slot IS NOT NULL AND NOT EXISTS (
            SELECT FROM sexton.slots s WHERE s.key = '@tenant:' || r.tenant AND s.n = r.tenant_slot AND s.run_id = r.id)""",
    "a run that is paused holds no slot": """
        SELECT r.id FROM sexton.runs r WHERE r.state = 'paused' AND (r.slot IS NOT NULL OR r.tenant_slot IS NOT NULL)""",
}
CALM_STRIDE = 4  # check every fourth step that executes a statement
# Not invariants: values that the same query reads.
ZONE = "decided by the clock of the simulated zone"
TOLD = "told by the claim monitor"
SUSPECTS = "suspects that wait"
LIVE = "live runs and schedules"
_ALL = "\nUNION ALL\n".join(
    [f"SELECT $${name}$$ AS name, id::text FROM ({query}) q" for name, query in {**transitions.INVARIANTS, **MORE}.items()]
    + [
        f"""SELECT $${ZONE}$$, concat_ws('|', r.id, r.job_id, r.fire_at, coalesce(j.tzdata, ''), r.token > 0)
            FROM sexton.runs r JOIN sexton.jobs_recurring j ON j.id = r.job_id
            WHERE j.schedule->>'timezone' = '{zone_update.ZONE}' AND r.origin = 'schedule'
              AND (r.state <> 'waiting' OR r.token > 0)"""
    ]
    + [f"SELECT $${TOLD}$$, concat_ws('|', t.n, t.what, t.told) FROM public.told t WHERE t.n > $8"]
    + [f"SELECT $${SUSPECTS}$$, (SELECT count(*) FROM sexton.runs WHERE state = 'quarantined')::text"]
    + [
        f"""SELECT $${LIVE}$$, ((SELECT count(*) FROM sexton.runs)
              + (SELECT count(*) FROM sexton.jobs_recurring WHERE over_at IS NULL))::text"""
    ]
)


class Violation(AssertionError):
    """An invariant is broken; the message names it."""


async def check(world: World) -> int:
    """Checks after every step. Returns the number of live runs."""
    journal = world.journal
    journal.look_at_the_silent()
    if journal.violations:
        raise Violation("; ".join(journal.violations))
    if await _is_time(world):
        await _look(world)
    return world.live_count


async def live_count(world: World) -> int:
    """The current state."""
    await _look(world)
    return world.live_count


async def _look(world: World) -> None:
    """In one round trip."""
    journal = world.journal
    accepted, refused = journal.accepted, journal.refused
    journal.accepted, journal.refused = [], []
    columns = [[row[n] for row in accepted] for n in range(4)] + [[row[n] for row in refused] for n in range(3)]
    now = None if world.fault_profile.clock_is_set else world.clock.database_now()
    rows = await world.observer.fetch(_ALL, *columns, world.claim_monitor.last_n, now)
    _hear(world, [row["id"] for row in rows if row["name"] == TOLD])
    told = [(row["name"], row["id"]) for row in rows if row["name"] not in (LIVE, ZONE, TOLD, SUSPECTS)]
    broken = {f"{name}: {what}" for name, what in told if not (name == GAPS and _is_of_another_rule(world, UUID(what)))}
    broken |= {wrong for row in rows if row["name"] == ZONE and (wrong := _by_the_clock(world, row["id"]))}
    broken |= set(journal.violations)
    if broken:
        raise Violation("; ".join(sorted(broken)))
    world.live_count = int(rows[-1]["id"])
    world.suspects_wait = any(row["name"] == SUSPECTS and row["id"] != "0" for row in rows)


async def _is_time(world: World) -> bool:
    """While there are faults, the invariants are checked after every step that has written, which means that it took a
    transaction id. Autovacuum and other databases of the server take some too. So after the faults, when the last check decides
    how long the simulation runs, steps are counted."""
    if world.statement_count == world.checked[0]:
        return False
    (row,) = await world.observer.fetch("SELECT pg_snapshot_xmax(pg_current_snapshot())::text AS next_id")
    before, world.checked = world.checked, (world.statement_count, row["next_id"])
    has_written = row["next_id"] != before[1] or bool(world.journal.accepted or world.journal.refused)
    world.unchecked_count += has_written or not world.faults_on
    if world.unchecked_count < (1 if world.faults_on else CALM_STRIDE):
        return False
    world.unchecked_count = 0
    return True


def _hear(world: World, rows: list[str]) -> None:
    told = [(int(n), what, document) for n, what, document in (row.split("|", 2) for row in rows)]
    for n, what, document in sorted(told):
        world.claim_monitor.hear(n, what, document, world.acting if world.faults_on else "any actor")


def _is_of_another_rule(world: World, job_id: UUID) -> bool:
    """If the clock is set back, a rule that was changed since then may fire between two instants that the earlier planning had
    skipped."""
    return world.fault_profile.clock_is_set and _has_changed_rule(world, job_id)


def _has_changed_rule(world: World, job_id: UUID) -> bool:
    return any(kept.has_changed_rule for kept in world.schedule_client.kept if kept.id == job_id)


def _by_the_clock(world: World, told: str) -> str | None:
    run_id, job_id, fire_at, version, begun = told.split("|")
    if not version or _has_changed_rule(world, UUID(job_id)):
        return None  # another rule has fired there too
    return world.wall_times.saw(UUID(run_id), UUID(job_id), datetime.fromisoformat(fire_at), version, begun=begun == "t")


async def check_end(world: World) -> None:
    """After the faults, when enough time has passed: no job is lost."""
    await _look(world)
    rows = await world.observer.fetch("SELECT id, state, job_id, worker_id, due_at FROM sexton.runs")
    if rows:
        raise Violation(f"every job ends: {len(rows)} did not, such as {dict(rows[0])}")
    known = {row["id"] for row in await world.observer.fetch("SELECT id FROM sexton.jobs")}
    lost = world.journal.acknowledged - known
    if lost:
        raise Violation(f"an acknowledged job exists: {lost} are not")
    endings = {row["job_id"]: row["status"] for row in await world.observer.fetch("SELECT job_id, status FROM sexton.endings")}
    disagreements = world.model.disagreements(endings)
    if disagreements:
        raise Violation(f"every job has an allowed outcome: {'; '.join(disagreements)}")
    for kept in world.schedule_client.kept:
        await _check_fires(world, kept)


async def _check_fires(world: World, kept: Kept) -> None:
    """As in Jepsen's test of Chronos: every expected fire is a run, or a gap that the ledger records."""
    (job,) = await world.observer.fetch("SELECT * FROM sexton.jobs_recurring WHERE id = $1", kept.id)
    if job["over_as"] is None:
        raise Violation(f"every schedule ends: {kept.id} did not")
    if kept.is_cancelled or kept.has_changed_rule or job["schedule"].find(zone_update.ZONE) >= 0:
        return  # what is expected of the simulated zone depends on when the new data came
    rule = msgspec.json.decode(job["schedule"], type=Schedule)
    rows = await world.observer.fetch(
        "SELECT fire_at, result, reason FROM sexton.executions WHERE job_id = $1 AND origin = 'schedule'", kept.id
    )
    told = [msgspec.json.decode(row["result"]) if row["result"] else {} for row in rows]
    ran = {row["fire_at"] for row, gap in zip(rows, told, strict=True) if "first" not in gap}
    gaps = [(datetime.fromisoformat(gap["first"]), datetime.fromisoformat(gap["last"])) for gap in told if "first" in gap]
    if rule.max_fires is not None:
        back = {row["fire_at"] for row in rows if (row["reason"] or "").startswith("taken back")}  # recorded, and not counted
        if len(ran - back) > rule.max_fires:
            raise Violation(f"no schedule fires more often than it may: {kept.id} fired {len(ran - back)} times")
        return
    for fire_at in fires(rule, after=job["submitted_at"], seed=f"{job['tenant']}/{job['name']}"):
        if fire_at not in ran and not any(first <= fire_at <= last for first, last in gaps):
            raise Violation(f"every fire is a run or recorded in a gap: {kept.id} has none for {fire_at}")
    world.journal.seen["schedule matched fire by fire"] += 1
