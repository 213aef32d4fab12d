-- phase: expand
-- transactional: yes
-- locks: none, the tables are new
-- undo: no

-- Events out: subscribers receive the outcome of runs. Each event is delivered by its own job, which the transaction that ended
-- the run submits. So none is lost, and none reports a change that was rolled back (docs/how-to/webhooks.md, docs/adr/023).
CREATE TABLE sexton.subscriptions (
  name              text PRIMARY KEY,
  kinds             text[] NOT NULL,
  tenant            text,                           -- of which runs: tenant, queue and job must all match; null: any
  queue             text,
  job_id            uuid,
  delivery          jsonb NOT NULL,                 -- a document of sexton.submit_jobs: the job that delivers, without the event
  paused_at         timestamptz,                    -- events of that time are not kept
  created_at        timestamptz NOT NULL,
  updated_at        timestamptz NOT NULL,
  -- The narrowest of the filters: with it a run finds its subscribers, however many others there are.
  anchor            text NOT NULL GENERATED ALWAYS AS (CASE
    WHEN job_id IS NOT NULL THEN 'job ' || job_id::text WHEN tenant IS NOT NULL THEN 'tenant ' || tenant
    WHEN queue IS NOT NULL THEN 'queue ' || queue ELSE '' END) STORED,
  CONSTRAINT kinds_are_known CHECK (cardinality(kinds) > 0 AND kinds <@ '{completed,failed,dead_lettered,missed}'::text[])
);
-- Which active subscriptions may match this run?
CREATE INDEX subscriptions_active ON sexton.subscriptions (anchor) WHERE paused_at IS NULL;

-- Deliveries that could not be submitted when their run ended, which must never keep a run from ending. The janitor submits them.
CREATE TABLE sexton.held_deliveries (
  id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  held_at           timestamptz NOT NULL,
  said              text NOT NULL,                  -- the reason, from the database
  delivery          jsonb NOT NULL                  -- as submit_jobs takes it
);
