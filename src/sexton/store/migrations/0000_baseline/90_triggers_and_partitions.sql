-- phase: migrate
-- transactional: yes
-- locks: none, the tables are new
-- undo: no

-- Triggers. They run after the functions exist.

-- A run with a limit is parked when it becomes ready.
CREATE TRIGGER hold_back BEFORE INSERT OR UPDATE OF state ON sexton.runs FOR EACH ROW
WHEN (NEW.limit_key IS NOT NULL AND NEW.state = 'ready' AND NEW.slot IS NULL) EXECUTE FUNCTION sexton.hold_back();

-- The first in line of an ordered key leaves the line by a pause, an edit, or its end.
CREATE TRIGGER step_out BEFORE UPDATE OF state ON sexton.runs FOR EACH ROW
WHEN (OLD.slot IS NOT NULL AND OLD.state = 'ready' AND (NEW.state IN ('paused', 'waiting') OR NEW.slot IS NULL)) EXECUTE FUNCTION sexton.step_out();
CREATE TRIGGER step_out_for_good AFTER DELETE ON sexton.runs FOR EACH ROW
WHEN (OLD.slot IS NOT NULL AND OLD.state = 'ready') EXECUTE FUNCTION sexton.step_out();

-- A key that allowed several at once and is now ordered: of the runs that hold its slots, one keeps the first slot between its
-- attempts, and the others join the line. The name sorts before `hold_back`, which has to see that the slot is free.
CREATE TRIGGER cede_slot BEFORE UPDATE OF state ON sexton.runs FOR EACH ROW
WHEN (OLD.slot > 1 AND OLD.state = 'running' AND NEW.state <> 'running' AND NEW.slot IS NOT NULL) EXECUTE FUNCTION sexton.step_out();

-- A run that ended may unblock another run of its job.
CREATE TRIGGER release_blocked AFTER DELETE ON sexton.runs FOR EACH ROW WHEN (OLD.overlap > 0) EXECUTE FUNCTION sexton.release_blocked();

-- A dead letter of a recurring job.
CREATE TRIGGER bury_recurring BEFORE INSERT ON sexton.dead_letters FOR EACH ROW
  WHEN (NEW.job_id >= '80000000-0000-0000-0000-000000000000') EXECUTE FUNCTION sexton.bury_recurring();

-- A schedule whose rule was not changed by the planner that read it.
CREATE TRIGGER rule_changed BEFORE UPDATE OF schedule ON sexton.jobs_recurring FOR EACH ROW
  WHEN (OLD.schedule IS DISTINCT FROM NEW.schedule AND OLD.tzdata IS NOT DISTINCT FROM NEW.tzdata) EXECUTE FUNCTION sexton.rule_changed();

-- A schedule that names a limit.
CREATE TRIGGER make_limits_of_schedule AFTER INSERT OR UPDATE OF policy, payload ON sexton.jobs_recurring FOR EACH ROW
WHEN (NEW.policy ? 'limit') EXECUTE FUNCTION sexton.make_limits_of_schedule();

-- History raises events.
CREATE TRIGGER raise_events AFTER INSERT ON sexton.executions REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION sexton.raise_events();

-- The first partitions. The janitor creates the next ones ahead, and sexton.ensure_partitions creates a missing one at once.
SELECT sexton.make_partitions(clock_timestamp() - interval '1 day', clock_timestamp() + interval '15 days');
