-- phase: expand
-- transactional: yes
-- locks: none, the tables are new
-- undo: no

-- Runs: live work only. A row leaves when its run ends. The states, and which service may change them: docs/lifecycle.md.
CREATE TABLE sexton.runs (
  id                uuid NOT NULL,
  job_id            uuid NOT NULL,
  fire_at           timestamptz NOT NULL,           -- nominal
  due_at            timestamptz NOT NULL,           -- may start from here: nominal + jitter, or the time of a retry
  claimed_at        timestamptz,
  must_end_at       timestamptz,                    -- claim + timeout + grace: the sweeper ends it then, even if its worker is alive
  start_by          timestamptz,                    -- latest start; null once it has started
  deadline_at       timestamptz,                    -- of all attempts together
  cancel_requested_at timestamptz,
  worker_id         uuid,
  token             bigint NOT NULL DEFAULT 0,      -- the fence: + 1 with every claim, never reset
  job_version       int NOT NULL DEFAULT 1,
  seq               int NOT NULL DEFAULT 0,         -- distinguishes replays and backfills of one instant
  timeout_s         real,
  lease_s           real,                           -- how long its worker may send no heartbeat; null: the sweeper's default
  attempt           smallint NOT NULL DEFAULT 0,    -- attempts that count against the retry budget
  lost_count        smallint NOT NULL DEFAULT 0,    -- attempts lost with their worker: they have their own budget
  lane              smallint NOT NULL,
  partition         smallint NOT NULL,              -- sexton.partition_of(job_id)
  at_most_once      boolean NOT NULL,
  state             text NOT NULL,
  origin            text NOT NULL,
  queue             text NOT NULL,
  tenant            text NOT NULL,
  task              text NOT NULL,
  limit_key         text,
  overlap           smallint NOT NULL DEFAULT 0,    -- 0: other runs of the job do not matter; 1: one live run of the job at a time; 2: a limited number
  slot              int,                            -- of its limit key
  tenant_slot       int,
  aged              smallint NOT NULL DEFAULT 0,    -- lanes it has moved up by waiting
  counted           boolean NOT NULL DEFAULT false, -- its tenant has a limit of waiting runs
  CONSTRAINT runs_pkey PRIMARY KEY (id),
  CONSTRAINT run_fires_once UNIQUE (job_id, fire_at, origin, seq),
  -- Paused: by a person, outside claim and promotion. Its latest start and its deadline still count.
  CONSTRAINT state_is_known CHECK (state IN ('waiting', 'ready', 'running', 'paused', 'blocked', 'parked')),
  CONSTRAINT origin_is_known CHECK (origin IN ('schedule', 'now', 'backfill', 'replay')),
  CONSTRAINT running_has_lease CHECK ((state = 'running') = (worker_id IS NOT NULL)),
  CONSTRAINT running_has_claim CHECK ((state = 'running') = (claimed_at IS NOT NULL))
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_scale_factor = 0.1);

-- Promotion: which waiting runs are due?
CREATE INDEX runs_due ON sexton.runs (due_at, partition, id) WHERE state = 'waiting';
-- Promotion: which of them have an overlap policy and have not started, so that other runs of the job must be looked at?
CREATE INDEX runs_due_beside ON sexton.runs (due_at, partition, id) WHERE state = 'waiting' AND overlap > 0 AND token = 0;
-- Promotion: which runs of this job wait for another run of it to end?
CREATE INDEX runs_blocked ON sexton.runs (job_id, due_at) WHERE state = 'blocked';
-- Claim: which ready runs of this queue and lane come first, tenant by tenant?
CREATE INDEX runs_ready ON sexton.runs (queue, lane, tenant, due_at, id) WHERE state = 'ready';
-- The last guard of rule "lock, then decide": is another run of this job live? Live is from promotion to the end, while it is
-- parked, waits for a retry or is snoozed, too.
CREATE UNIQUE INDEX one_live_run ON sexton.runs (job_id) WHERE overlap = 1 AND (state IN ('ready', 'parked', 'running') OR token > 0);
-- Sweeper: which runs does this worker hold?
CREATE INDEX runs_leased ON sexton.runs (worker_id) WHERE state = 'running';
-- Sweeper: which runs have passed their latest start or their deadline before they started?
CREATE INDEX runs_expiring ON sexton.runs ((least(start_by, deadline_at))) WHERE state <> 'running' AND (start_by IS NOT NULL OR deadline_at IS NOT NULL);
-- Lists: which jobs are paused? By the bytes of the id, which sort as it does: an order that no other index of `runs` has, so that
-- no plan made on an empty table can prefer the walk through all of them.
CREATE INDEX runs_paused ON sexton.runs (uuid_send(job_id)) WHERE state = 'paused';

-- Limits: how many runs were let through under this key and have not been claimed?
CREATE INDEX runs_admitted ON sexton.runs (limit_key) WHERE state = 'ready' AND limit_key IS NOT NULL;
-- Limits: which parked runs of this key come next, by lane and tenant?
CREATE INDEX runs_parked ON sexton.runs (limit_key, lane, tenant, due_at, id) WHERE state = 'parked';
-- Limits: which parked runs of this key can start, past those that cannot? By queue and task.
CREATE INDEX runs_parked_by_task ON sexton.runs (limit_key, queue, task, lane, tenant, due_at, id) WHERE state = 'parked';
-- Limits: which parked run of this ordered key is the first by due time?
CREATE INDEX runs_in_order ON sexton.runs (limit_key, due_at, id) WHERE state = 'parked';
-- Limits: is a run of this ordered key due earlier and not yet promoted?
CREATE INDEX runs_to_come ON sexton.runs (limit_key, due_at, id) WHERE state IN ('waiting', 'blocked') AND limit_key IS NOT NULL;
-- Limits: how many runs of this tenant wait?
CREATE INDEX runs_counted ON sexton.runs (tenant) WHERE counted AND state <> 'running';

-- The payload of a run that a person fired with its own payload. It stays as long as the history of that run.
CREATE TABLE sexton.run_payloads (
  run_id            uuid PRIMARY KEY,
  job_id            uuid NOT NULL,
  payload           jsonb NOT NULL,
  CONSTRAINT payload_is_at_most_256_kib CHECK (pg_column_size(payload) <= 131072 OR octet_length(payload::text) <= 393216)
);

-- The output of a running handler so far; it moves into the execution when that ends.
CREATE TABLE sexton.live_output (
  run_id            uuid PRIMARY KEY,
  token             bigint NOT NULL,
  updated_at        timestamptz NOT NULL,
  progress          jsonb,
  output            text
) WITH (fillfactor = 50);
