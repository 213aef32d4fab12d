"""Watches `sexton.runs` from inside the database, for tests only: a trigger made from the table of legal transitions, and the
invariants that hold between the tables when no transaction is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sexton.domain.states import TRANSITIONS, Event

if TYPE_CHECKING:
    from sexton.store.database import Connection

REJECTED = "SXT01"  # SQLSTATE of every change that the trigger refuses

_TRIGGER = """
CREATE OR REPLACE FUNCTION sexton.test_only_watch_runs() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  before text := CASE WHEN TG_OP <> 'INSERT' THEN OLD.state END;
  after text := CASE WHEN TG_OP <> 'DELETE' THEN NEW.state END;
  is_claim boolean := false;
  -- The next version of a run that no worker has begun: the only change that may touch what the run is about.
  is_edit boolean := coalesce(
    before <> 'running' AND after <> 'running' AND OLD.token = 0 AND NEW.job_version = OLD.job_version + 1, false);
BEGIN
  IF before IS NOT DISTINCT FROM after AND NOT is_edit THEN
    IF before = 'ready' AND NEW.aged = OLD.aged + 1 AND NEW.lane = OLD.lane - 1  -- it waited long enough to rise
      AND to_jsonb(OLD) - ARRAY['lane', 'aged'] = to_jsonb(NEW) - ARRAY['lane', 'aged'] THEN
      RETURN NEW;
    END IF;
    -- It was handed over to the service that its handler called, or that service sent a heartbeat: the lease continues under
    -- the same token.
    IF before = 'running' AND NEW.worker_id = sexton.callbacks()
      AND to_jsonb(OLD) - ARRAY['worker_id', 'must_end_at', 'cancel_requested_at']
        = to_jsonb(NEW) - ARRAY['worker_id', 'must_end_at', 'cancel_requested_at'] THEN
      RETURN NEW;
    END IF;
    -- The worker that postponed it can serve it now: it is due earlier.
    IF before = 'waiting' AND OLD.token > 0 AND NEW.due_at < OLD.due_at
      AND to_jsonb(OLD) - 'due_at' = to_jsonb(NEW) - 'due_at' THEN
      RETURN NEW;
    END IF;
    -- Its tenant got a limit of what may wait.
    IF before <> 'running' AND NEW.counted AND to_jsonb(OLD) - 'counted' = to_jsonb(NEW) - 'counted' THEN
      RETURN NEW;
    END IF;
    IF to_jsonb(OLD) - 'cancel_requested_at' <> to_jsonb(NEW) - 'cancel_requested_at' OR before <> 'running' THEN
      RAISE EXCEPTION 'run % changed without leaving %', OLD.id, before USING ERRCODE = '{rejected}';
    END IF;
    RETURN NEW;
  END IF;
  IF before IS DISTINCT FROM after AND NOT EXISTS (SELECT FROM (VALUES {pairs}) AS legal (source, target)
                 WHERE source IS NOT DISTINCT FROM before AND target IS NOT DISTINCT FROM after) THEN
    RAISE EXCEPTION 'run % may not go from % to %', coalesce(NEW.id, OLD.id), coalesce(before, 'nothing'),
      coalesce(after, 'nothing') USING ERRCODE = '{rejected}';
  END IF;
  IF TG_OP = 'INSERT' AND (NEW.token <> 0 OR NEW.attempt <> 0 OR NEW.lost_count <> 0) THEN
    RAISE EXCEPTION 'run % is born with a spent budget or a used fence', NEW.id USING ERRCODE = '{rejected}';
  END IF;
  IF TG_OP = 'UPDATE' THEN
    is_claim := (before, after) IN (VALUES {claims});
    IF NEW.token <> OLD.token + is_claim::int THEN
      RAISE EXCEPTION 'the token of run % went from % to %', OLD.id, OLD.token, NEW.token USING ERRCODE = '{rejected}';
    END IF;
    IF NEW.attempt NOT BETWEEN OLD.attempt - (before = 'running')::int AND OLD.attempt + is_claim::int OR NEW.attempt < 0
       OR is_claim AND NEW.attempt <> OLD.attempt + 1 OR NEW.lost_count NOT BETWEEN OLD.lost_count AND OLD.lost_count + 1 THEN
      RAISE EXCEPTION 'the budgets of run % jumped', OLD.id USING ERRCODE = '{rejected}';
    END IF;
    IF OLD.cancel_requested_at IS NOT NULL THEN
      RAISE EXCEPTION 'run % goes on though its cancel was requested', OLD.id USING ERRCODE = '{rejected}';
    END IF;
    IF (NEW.id, NEW.job_id, NEW.origin, NEW.seq, NEW.partition, NEW.tenant) IS DISTINCT FROM
       (OLD.id, OLD.job_id, OLD.origin, OLD.seq, OLD.partition, OLD.tenant)
       -- A recurring job that is written again under its name may name another task.
       OR NOT (is_edit AND OLD.overlap > 0) AND NEW.task IS DISTINCT FROM OLD.task
       OR NOT (is_edit AND OLD.token = 0) AND NEW.at_most_once IS DISTINCT FROM OLD.at_most_once
       OR NOT is_edit AND (NEW.fire_at, NEW.job_version) IS DISTINCT FROM (OLD.fire_at, OLD.job_version) THEN
      RAISE EXCEPTION 'run % became another', OLD.id USING ERRCODE = '{rejected}';
    END IF;
  END IF;
  RETURN coalesce(NEW, OLD);
END
$$;
CREATE OR REPLACE TRIGGER test_only_watch BEFORE INSERT OR UPDATE OR DELETE ON sexton.runs
  FOR EACH ROW EXECUTE FUNCTION sexton.test_only_watch_runs();
"""

# Each query returns the ids that break the invariant.
INVARIANTS = {
    "a one-time job has either a live run or one ending": """
        SELECT j.id FROM sexton.jobs j WHERE j.id < '80000000-0000-0000-0000-000000000000'
        AND (SELECT count(*) FROM sexton.runs r WHERE r.job_id = j.id)
          + (SELECT count(*) FROM sexton.endings e WHERE e.job_id = j.id) <> 1""",
    "an execution belongs to one claim": """
        SELECT run_id AS id FROM sexton.executions WHERE worker_id IS NOT NULL GROUP BY run_id, token HAVING count(*) > 1""",
    "an ending points to the execution that made it": """
        SELECT e.job_id AS id FROM sexton.endings e
        WHERE NOT EXISTS (SELECT FROM sexton.executions x WHERE x.id = e.execution_id AND x.job_id = e.job_id)""",
    "a dead letter belongs to a job that ended as failed": """
        SELECT d.id FROM sexton.dead_letters d
        WHERE d.job_id < '80000000-0000-0000-0000-000000000000' AND NOT EXISTS (
          SELECT FROM sexton.endings e WHERE e.job_id = d.job_id AND e.status = 'failed' AND e.execution_id = d.id)""",
    "a live run has no execution at its present token, unless it went back": """
        SELECT r.id FROM sexton.runs r JOIN sexton.executions x ON x.run_id = r.id AND x.token = r.token
        WHERE r.state = 'running'""",
    "the tags of a job are the ones it is found by": """
        SELECT coalesce(j.id, t.job_id) AS id FROM (SELECT DISTINCT id, unnest(tags) AS tag FROM sexton.jobs) j
        FULL JOIN sexton.job_tags t ON t.job_id = j.id AND t.tag = j.tag WHERE j.id IS NULL OR t.job_id IS NULL""",
    "a live run is of its job's present version, unless it has begun": """
        SELECT r.id FROM sexton.runs r JOIN sexton.jobs j ON j.id = r.job_id
        WHERE r.token = 0 AND r.origin = 'now' AND r.job_version <> j.version""",
    "a recurring job that is neither paused nor over will be planned": """
        SELECT j.id FROM sexton.jobs_recurring j
        WHERE (j.plan_at IS NULL) <> (j.paused_at IS NOT NULL OR j.over_at IS NOT NULL)""",
    "an exclusive job has one live run at most": """
        SELECT r.job_id AS id FROM sexton.runs r WHERE r.overlap = 1 AND (r.state IN ('ready', 'running') OR r.token > 0)
        GROUP BY r.job_id HAVING count(*) > 1""",
    "a completed key names its execution": """
        SELECT k.job_id AS id FROM sexton.idempotency_keys k WHERE (k.completed_at IS NULL) <> (k.execution_id IS NULL)""",
}
# One statement for all: each round trip costs a parse and a plan of its own.
_ALL_INVARIANTS = " UNION ALL ".join(
    f"SELECT '{name.replace(chr(39), chr(39) * 2)}' AS name, broken.id::text AS id FROM ({query}) AS broken"
    for name, query in INVARIANTS.items()
)


def trigger_sql() -> str:
    pairs = sorted({(source or "", target or "") for _, source, target in TRANSITIONS})
    claims = sorted({(source or "", target or "") for event, source, target in TRANSITIONS if event is Event.CLAIMED})
    return _TRIGGER.format(rejected=REJECTED, pairs=_values(pairs), claims=_values(claims))


async def install(connection: Connection) -> None:
    """From now on this database rejects every change of a run that the domain's table does not allow."""
    await connection.execute(trigger_sql())


async def violations(connection: Connection) -> dict[str, list[str]]:
    """The broken invariants with the ids that break them; call it when no transaction is open."""
    found: dict[str, list[str]] = {}
    for row in await connection.fetch(_ALL_INVARIANTS):
        found.setdefault(row["name"], []).append(row["id"])
    return found


def _values(pairs: list[tuple[str, str]]) -> str:
    return ", ".join("(" + ", ".join(f"'{state}'" if state else "NULL::text" for state in pair) + ")" for pair in pairs)
