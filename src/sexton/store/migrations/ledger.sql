-- The ledger of the schema: what was applied, by which release. `sexton migrate` creates it before anything else.
CREATE SCHEMA IF NOT EXISTS sexton;

-- One row per step of store/migrations/.
CREATE TABLE IF NOT EXISTS sexton.schema_steps (
  name              text PRIMARY KEY,
  checksum          text NOT NULL,                  -- of the SQL without comments
  state             text NOT NULL,                  -- running; done; adopted: it was in the database when this ledger was created
  runs_from         text NOT NULL,                  -- the oldest release that can run on the schema once this step is done
  release           text NOT NULL,                  -- the release that applied it
  cursor            text,                           -- of a backfill: all rows up to here are done
  done_count        bigint NOT NULL DEFAULT 0,      -- of a backfill: rows so far
  started_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
  done_at           timestamptz,
  CONSTRAINT schema_step_state_is_known CHECK (state IN ('running', 'done', 'adopted')),
  CONSTRAINT schema_step_is_done_at CHECK ((state = 'running') = (done_at IS NULL))
);

-- Every body that a function has had, so that an older release recognises its own among them. The newest row of a name is the
-- current body.
CREATE TABLE IF NOT EXISTS sexton.schema_functions (
  name              text NOT NULL,                  -- of the file in store/functions/
  checksum          text NOT NULL,                  -- of the file without its header; empty: dropped
  release           text NOT NULL,                  -- the release that applied it
  applied_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT schema_functions_pkey PRIMARY KEY (name, checksum)
);
