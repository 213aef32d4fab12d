-- phase: expand
-- transactional: yes
-- locks: none, the tables are new
-- undo: no

-- The processes of the cluster, and the cluster itself.

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
  refused_count     bigint NOT NULL DEFAULT 0,      -- reports that came after the lease was lost
  lease_s           real                            -- of a remote worker: it is dead after this time without a heartbeat; null: not remote, the cluster's default
) WITH (fillfactor = 50);

-- Schedulers.
CREATE TABLE sexton.nodes (
  id                uuid PRIMARY KEY,
  name              text NOT NULL,
  started_at        timestamptz NOT NULL,
  beat_at           timestamptz NOT NULL,
  partitions        smallint[] NOT NULL DEFAULT '{}',
  -- The server process that holds its locks; null behind a pooler. When a scheduler dies, its session ends, so the others need
  -- not wait until its heartbeat is old.
  session           int
) WITH (fillfactor = 50);

-- Defaults of the tasks that workers know, so that a job submitted in plain SQL gets the options of its decorator.
CREATE TABLE sexton.tasks (
  name              text PRIMARY KEY,
  options           jsonb NOT NULL,
  seen_at           timestamptz NOT NULL
);

-- The server and database that this schema belongs to: services do not start on a clone or a restore until it is adopted (rule
-- "a clone does not fire").
CREATE TABLE sexton.cluster (
  one_row           boolean PRIMARY KEY DEFAULT true CHECK (one_row),
  id                uuid NOT NULL,
  system_identifier bigint NOT NULL,
  database_oid      oid NOT NULL,
  adopted_at        timestamptz NOT NULL
);

-- The key that signs leases before they go over HTTP (sexton.domain.signed_lease). No answer and no log contains it.
CREATE TABLE sexton.lease_key (
  one_row           boolean PRIMARY KEY DEFAULT true CHECK (one_row),
  key               bytea NOT NULL CHECK (octet_length(key) = 32)
);
INSERT INTO sexton.lease_key (key)
SELECT sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
