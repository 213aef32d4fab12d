-- phase: expand
-- transactional: yes
-- locks: none, the tables are new
-- undo: no

-- History: every ended attempt, and every fire that did not run. Partitioned by the day in its UUIDv7.
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
  reason            text,                           -- the reason, in one line, if the status does not say enough
  error             jsonb,
  result            jsonb,
  progress          jsonb,
  output            text,
  CONSTRAINT executions_pkey PRIMARY KEY (id),
  CONSTRAINT status_is_known CHECK (status IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'lost', 'snoozed', 'released', 'skipped', 'missed', 'paused'))
) PARTITION BY RANGE (id);

-- What happened to this job, in order?
CREATE INDEX executions_by_job ON sexton.executions (job_id, id);
-- Which fires of this schedule have run? One row of a range per fire, however often the job fires. One-time jobs (origin now)
-- are not in it.
CREATE INDEX executions_ran ON sexton.executions (job_id, fire_at) WHERE status = 'succeeded' AND origin <> 'now';

-- How a one-time job ended (docs/adr/006). It has either a live run or one row here, never both and never two: the primary key
-- is the last guard against ending twice. A separate row instead of a column of `jobs` leaves the page of the payload
-- unchanged.
CREATE TABLE sexton.endings (
  job_id            uuid NOT NULL,
  execution_id      uuid NOT NULL,
  ended_at          timestamptz NOT NULL,
  status            text NOT NULL,
  CONSTRAINT endings_pkey PRIMARY KEY (job_id),
  CONSTRAINT status_is_final CHECK (status IN ('completed', 'failed', 'cancelled'))
) PARTITION BY RANGE (job_id);

-- Which jobs failed or were cancelled, newest first?
CREATE INDEX endings_not_completed ON sexton.endings (status, job_id) WHERE status <> 'completed';

-- Dead letters: runs that failed for good, as they were.
CREATE TABLE sexton.dead_letters (
  id                uuid PRIMARY KEY,               -- the execution that buried it
  job_id            uuid NOT NULL,
  run_id            uuid NOT NULL,
  fire_at           timestamptz NOT NULL,
  buried_at         timestamptz NOT NULL,
  replay_at         timestamptz,                    -- a transient failure that is replayed automatically
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
-- Which dead letters does this job have?
CREATE INDEX dead_letters_by_job ON sexton.dead_letters (job_id);
-- Which dead letters does this task have, newest first? The same for a tenant and a queue.
CREATE INDEX dead_letters_by_task ON sexton.dead_letters (task, id);
CREATE INDEX dead_letters_by_tenant ON sexton.dead_letters (tenant, id);
CREATE INDEX dead_letters_by_queue ON sexton.dead_letters (queue, id);
-- Which dead letters are due for an automatic replay?
CREATE INDEX dead_letters_to_replay ON sexton.dead_letters (replay_at) WHERE replay_at IS NOT NULL;
