-- Three lifetimes, three tables (docs/adr/001): `jobs` are written once, `runs` hold only live work, `executions` only grow.
-- No foreign keys between hot tables, no GIN on them, no counters in hot rows.

-- A UUIDv7 whose 12 bits after the version are the microseconds (RFC 9562, method 3), so ids made one microsecond apart sort
-- in that order. Takes microseconds since the epoch as a plain column, which lets PostgreSQL inline it.
CREATE FUNCTION sexton.uuid7(micros bigint) RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
  SELECT encode(int8send(((micros / 1000) << 16) | 28672 | ((micros % 1000) * 4096 / 1000))
                || substring(uuid_send(gen_random_uuid()) FROM 9), 'hex')::uuid
$$;

-- The smallest UUIDv7 of an instant: the bound of partitions and of scans by time.
CREATE FUNCTION sexton.uuid7_floor(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT encode(int8send((floor(extract(epoch FROM at) * 1000)::bigint << 16) | 28672) || '\x8000000000000000'::bytea, 'hex')::uuid
$$;

-- One of 64 slices of all jobs: the last six bits of the id, which are random in every id we make.
CREATE FUNCTION sexton.partition_of(job_id uuid) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (get_byte(uuid_send(job_id), 15) & 63)::smallint
$$;

-- Definitions. One-time jobs are partitioned by the week in their UUIDv7 and leave by dropping partitions; ids of recurring
-- jobs have their first bit set (no UUIDv7 before the year 6429 has) and live in a partition that is never dropped.
CREATE TABLE sexton.jobs (
  id                uuid NOT NULL,
  version           int NOT NULL DEFAULT 1,
  task              text NOT NULL,
  tenant            text NOT NULL,
  queue             text NOT NULL,
  lane              smallint NOT NULL,              -- 0 critical, 1 high, 2 normal, 3 low
  name              text,
  payload           jsonb NOT NULL,
  policy            jsonb,                          -- retry, deadline_s, start_within_s, …: only what differs from the default
  timeout_s         real,                           -- of one attempt; null: no limit
  at_most_once      boolean NOT NULL,
  idempotency_key   text,
  tags              text[],
  submitted_at      timestamptz NOT NULL,
  submitted_by      text,
  trace             text,                           -- W3C traceparent of the submitter
  plan_cursor_at    timestamptz,                    -- recurring only: everything up to here is planned
  CONSTRAINT jobs_pkey PRIMARY KEY (id),
  CONSTRAINT task_is_named CHECK (task <> ''),
  CONSTRAINT lane_is_known CHECK (lane BETWEEN 0 AND 3),
  -- As the client writes it; jsonb's text has a space after every comma and colon, so up to half as long again.
  CONSTRAINT payload_is_at_most_256_kib CHECK (pg_column_size(payload) <= 131072 OR octet_length(payload::text) <= 393216)
) PARTITION BY RANGE (id);

CREATE TABLE sexton.jobs_recurring PARTITION OF sexton.jobs FOR VALUES FROM ('80000000-0000-0000-0000-000000000000') TO (MAXVALUE);

-- Live work only; a row leaves when its run ends. The states and who may change them: docs/lifecycle.md.
CREATE TABLE sexton.runs (
  id                uuid NOT NULL,
  job_id            uuid NOT NULL,
  fire_at           timestamptz NOT NULL,           -- nominal
  due_at            timestamptz NOT NULL,           -- may start from here: nominal + jitter, or the time of a retry
  claimed_at        timestamptz,
  must_end_at       timestamptz,                    -- claim + timeout + grace: the sweeper ends it then, whatever its worker says
  start_by          timestamptz,                    -- latest start; null once it has started
  deadline_at       timestamptz,                    -- of all attempts together
  cancel_requested_at timestamptz,
  worker_id         uuid,
  token             bigint NOT NULL DEFAULT 0,      -- the fence: + 1 with every claim, never reset
  job_version       int NOT NULL DEFAULT 1,
  seq               int NOT NULL DEFAULT 0,         -- tells apart replays and backfills of one instant
  timeout_s         real,
  lease_s           real,                           -- silence of its worker that this run outlasts; null: the sweeper's default
  attempt           smallint NOT NULL DEFAULT 0,    -- tries that count against the retry budget
  lost_count        smallint NOT NULL DEFAULT 0,    -- tries that died with their worker: a budget of their own
  lane              smallint NOT NULL,
  partition         smallint NOT NULL,
  at_most_once      boolean NOT NULL,
  state             text NOT NULL,
  origin            text NOT NULL,
  queue             text NOT NULL,
  tenant            text NOT NULL,
  task              text NOT NULL,
  limit_key         text,
  CONSTRAINT runs_pkey PRIMARY KEY (id),
  CONSTRAINT run_fires_once UNIQUE (job_id, fire_at, origin, seq),
  CONSTRAINT state_is_known CHECK (state IN ('waiting', 'ready', 'running', 'blocked', 'parked')),
  CONSTRAINT origin_is_known CHECK (origin IN ('schedule', 'now', 'backfill', 'replay')),
  CONSTRAINT running_has_lease CHECK ((state = 'running') = (worker_id IS NOT NULL)),
  CONSTRAINT running_has_claim CHECK ((state = 'running') = (claimed_at IS NOT NULL))
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_scale_factor = 0.1);

CREATE INDEX runs_due ON sexton.runs (due_at, partition, id) WHERE state = 'waiting';
CREATE INDEX runs_ready ON sexton.runs (queue, lane, due_at, id) WHERE state = 'ready';
CREATE INDEX runs_leased ON sexton.runs (worker_id) WHERE state = 'running';
CREATE INDEX runs_expiring ON sexton.runs ((least(start_by, deadline_at))) WHERE state <> 'running' AND (start_by IS NOT NULL OR deadline_at IS NOT NULL);

-- History: every try, once it has ended, and every fire that did not run. Partitioned by the day in its UUIDv7.
CREATE TABLE sexton.executions (
  id                uuid NOT NULL,
  job_id            uuid NOT NULL,
  run_id            uuid NOT NULL,
  worker_id         uuid,
  fire_at           timestamptz NOT NULL,
  due_at            timestamptz NOT NULL,
  started_at        timestamptz,
  ended_at          timestamptz NOT NULL,
  token             bigint NOT NULL,
  job_version       int NOT NULL,
  seq               int NOT NULL,
  attempt           smallint NOT NULL,
  lane              smallint NOT NULL,
  origin            text NOT NULL,
  status            text NOT NULL,
  queue             text NOT NULL,
  tenant            text NOT NULL,
  task              text NOT NULL,
  reason            text,                           -- why, in one line, where the status does not say it all
  error             jsonb,
  result            jsonb,
  progress          jsonb,
  output            text,
  CONSTRAINT executions_pkey PRIMARY KEY (id),
  CONSTRAINT status_is_known CHECK (status IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'lost', 'snoozed', 'released', 'skipped', 'missed', 'paused'))
) PARTITION BY RANGE (id);

CREATE INDEX executions_by_job ON sexton.executions (job_id, id);

-- How a one-time job ended. It has either a live run or one row here, never both and never two: the primary key is the
-- last guard against ending twice. A row of its own instead of a column of `jobs` keeps the payload's page untouched.
CREATE TABLE sexton.endings (
  job_id            uuid NOT NULL,
  execution_id      uuid NOT NULL,
  ended_at          timestamptz NOT NULL,
  status            text NOT NULL,
  CONSTRAINT endings_pkey PRIMARY KEY (job_id),
  CONSTRAINT status_is_final CHECK (status IN ('completed', 'failed', 'cancelled'))
) PARTITION BY RANGE (job_id);

-- The graveyard: what was buried, as it was.
CREATE TABLE sexton.dead_letters (
  id                uuid PRIMARY KEY,               -- the execution that buried it
  job_id            uuid NOT NULL,
  run_id            uuid NOT NULL,
  fire_at           timestamptz NOT NULL,
  buried_at         timestamptz NOT NULL,
  replay_at         timestamptz,                    -- a transient failure that is to be replayed by itself
  job_version       int NOT NULL,
  seq               int NOT NULL,
  attempts          smallint NOT NULL,
  lost_count        smallint NOT NULL,
  lane              smallint NOT NULL,
  permanent         boolean NOT NULL,
  origin            text NOT NULL,
  status            text NOT NULL,
  queue             text NOT NULL,
  tenant            text NOT NULL,
  task              text NOT NULL,
  reason            text NOT NULL,
  name              text,
  error             jsonb,
  payload           jsonb NOT NULL
);
CREATE INDEX dead_letters_by_job ON sexton.dead_letters (job_id);
CREATE INDEX dead_letters_by_task ON sexton.dead_letters (task, id);
CREATE INDEX dead_letters_by_tenant ON sexton.dead_letters (tenant, id);
CREATE INDEX dead_letters_by_queue ON sexton.dead_letters (queue, id);
CREATE INDEX dead_letters_to_replay ON sexton.dead_letters (replay_at) WHERE replay_at IS NOT NULL;

-- The first answer to a submission, and later the record that its effect has happened.
CREATE TABLE sexton.idempotency_keys (
  tenant            text NOT NULL,
  key               text NOT NULL,
  job_id            uuid NOT NULL,
  body              bytea NOT NULL,                 -- sha256 of the submission
  expires_at        timestamptz NOT NULL,
  completed_at      timestamptz,
  execution_id      uuid,                           -- the execution that completed it
  PRIMARY KEY (tenant, key)
);
CREATE INDEX idempotency_keys_expiring ON sexton.idempotency_keys (expires_at);

-- Uniqueness by content: the job that stands for all equal ones.
CREATE TABLE sexton.unique_keys (
  tenant            text NOT NULL,
  key               bytea NOT NULL,                 -- sha256 of what must be equal
  job_id            uuid NOT NULL,
  holds_until       timestamptz,                    -- null: as long as that job is pending
  PRIMARY KEY (tenant, key)
);
CREATE INDEX unique_keys_by_job ON sexton.unique_keys (job_id);

-- What a running handler has said so far; it moves into the execution when that ends.
CREATE TABLE sexton.live_output (
  run_id            uuid PRIMARY KEY,
  token             bigint NOT NULL,
  updated_at        timestamptz NOT NULL,
  progress          jsonb,
  output            text
) WITH (fillfactor = 50);

CREATE TABLE sexton.workers (
  id                uuid PRIMARY KEY,               -- random per process
  name              text NOT NULL,
  queues            text[] NOT NULL,
  tasks             text[] NOT NULL,
  concurrency       int NOT NULL,
  started_at        timestamptz NOT NULL,
  beat_at           timestamptz NOT NULL,
  beat              bigint NOT NULL DEFAULT 0,
  lost_at           timestamptz,                    -- declared dead: it may claim nothing more
  draining          boolean NOT NULL DEFAULT false,
  running_count     int NOT NULL DEFAULT 0,
  refused_count     bigint NOT NULL DEFAULT 0       -- reports that came after the lease was lost
) WITH (fillfactor = 50);

CREATE TABLE sexton.nodes (
  id                uuid PRIMARY KEY,
  name              text NOT NULL,
  started_at        timestamptz NOT NULL,
  beat_at           timestamptz NOT NULL,
  partitions        smallint[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);

-- Defaults of the tasks that workers know, so that a job submitted in plain SQL gets what its decorator says.
CREATE TABLE sexton.tasks (
  name              text PRIMARY KEY,
  options           jsonb NOT NULL,
  seen_at           timestamptz NOT NULL
);

-- Where this database believes it lives: services refuse to run on a clone or a restore until told to adopt it.
CREATE TABLE sexton.cluster (
  one_row           boolean PRIMARY KEY DEFAULT true CHECK (one_row),
  id                uuid NOT NULL,
  system_identifier bigint NOT NULL,
  database_oid      oid NOT NULL,
  adopted_at        timestamptz NOT NULL
);
