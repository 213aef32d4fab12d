-- phase: expand
-- transactional: yes
-- locks: none, the tables are new
-- undo: no

-- Fair shares, lanes and limits: which run is served next (docs/adr/014). The claim decides all of it (sexton.claim_runs).

-- Settings of tenants; a tenant without a row has the defaults.
CREATE TABLE sexton.tenants (
  name              text PRIMARY KEY,
  weight            int NOT NULL DEFAULT 1,         -- its share of every lane, against the weights of others that have work there
  running_max       int,                            -- runs at once, over the cluster
  waiting_max       int,                            -- runs that have not started; more are rejected
  submit_rate       real,                           -- jobs per second that it may submit; more are rejected
  submit_burst      int,
  jitter_s          real,                           -- of its schedules that set none
  paused_at         timestamptz,
  paused_by         text,
  note              text,
  updated_at        timestamptz NOT NULL,
  bucket_at         timestamptz NOT NULL DEFAULT '-infinity',  -- of `submit_rate`: see sexton.tokens
  waiting_count     int NOT NULL DEFAULT 0,         -- the last count, and the number submitted since then
  counted_at        timestamptz NOT NULL DEFAULT '-infinity',
  CONSTRAINT weight_is_a_share CHECK (weight BETWEEN 1 AND 1000),
  CONSTRAINT tenant_limits_are_positive CHECK (running_max > 0 AND waiting_max > 0 AND submit_rate > 0 AND submit_burst > 0)
) WITH (fillfactor = 50);
-- Submission: does this tenant have a limit that could reject the job?
CREATE INDEX tenants_that_may_refuse ON sexton.tenants (name) WHERE waiting_max IS NOT NULL OR submit_rate IS NOT NULL;

CREATE TABLE sexton.queues (
  name              text PRIMARY KEY,
  release_rate      real,                           -- runs per second that may start, over the cluster
  release_burst     int,
  ageing_s          real,                           -- a run that waited this long moves up one lane; null: never
  timeout_s         real,                           -- of jobs and tasks that set none; 0: no limit
  jitter_s          real,
  policy            jsonb,                          -- retry
  paused_at         timestamptz,
  paused_by         text,
  note              text,
  updated_at        timestamptz NOT NULL,
  bucket_at         timestamptz NOT NULL DEFAULT '-infinity',
  CONSTRAINT queue_limits_are_positive CHECK (release_rate > 0 AND release_burst > 0 AND ageing_s > 0 AND timeout_s >= 0 AND jitter_s >= 0)
) WITH (fillfactor = 50);

-- Limits by key. The job names the key, the numbers are here.
CREATE TABLE sexton.limits (
  key               text PRIMARY KEY,
  running           int,                            -- runs at once
  count             int,                            -- starts per `per_s`
  per_s             float8,
  burst             int,                            -- starts that may come at once after a pause
  ordered           boolean NOT NULL DEFAULT false, -- one at a time, by due time, retries included
  served_tenant     text NOT NULL DEFAULT '',       -- the tenant that had the last turn
  made_by           text,
  updated_at        timestamptz NOT NULL,
  bucket_at         timestamptz NOT NULL DEFAULT '-infinity',
  CONSTRAINT limit_says_something CHECK (running IS NOT NULL OR count IS NOT NULL),
  CONSTRAINT rate_is_whole CHECK ((count IS NULL) = (per_s IS NULL) AND (count IS NULL) = (burst IS NULL)),
  CONSTRAINT limits_are_positive CHECK (running > 0 AND count > 0 AND per_s > 0 AND burst > 0),
  CONSTRAINT ordered_is_one_at_a_time CHECK (NOT ordered OR running = 1)
) WITH (fillfactor = 50);

-- Rule "slots, not counts": a run holds a slot from its claim to its end, and the statement that ends it gives it back. Slots are
-- made when first needed. The slots of a tenant have the key '@tenant:' and its name; no other key begins with '@'.
CREATE TABLE sexton.slots (
  key               text NOT NULL,
  n                 int NOT NULL,
  run_id            uuid,
  CONSTRAINT slots_pkey PRIMARY KEY (key, n)
) WITH (fillfactor = 50);
