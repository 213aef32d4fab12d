-- phase: expand
-- transactional: yes
-- locks: none, the tables are new
-- undo: no

-- Jobs: what is to run, and by which policies.
--
-- Three lifetimes, three tables (docs/adr/001): `jobs` are written once, `runs` hold only live work, `executions` only grow.
-- No foreign keys between hot tables, no GIN on them, no counters in hot rows.

-- Definitions. One-time jobs are partitioned by the week in their UUIDv7 and leave by dropping partitions. Ids of recurring
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
  paused_at         timestamptz,
  paused_by         text,
  note              text,
  schedule          jsonb,                          -- recurring only: the rule, as `domain.schedule` reads it
  recurrence        jsonb,                          -- overlap, catch-up, on_resume, …: only what differs from the default
  plan_at           timestamptz,                    -- when a planner has to look again; null: paused, or the schedule is over
  fire_count        bigint NOT NULL DEFAULT 0,      -- fires of this rule so far, for max_fires
  over_at           timestamptz,                    -- no more fires will be planned
  over_as           text,                           -- completed, cancelled, failed
  over_reason       text,
  resume_at         timestamptz,                    -- a pause that ends by itself
  -- The release of the time zone data that its fires were last planned with; empty if that was before releases were recorded;
  -- null until its rule has been read: a rule written in plain SQL is checked, and put into its lasting form, by its first planning.
  tzdata            text COLLATE "C",
  CONSTRAINT jobs_pkey PRIMARY KEY (id),
  CONSTRAINT task_is_named CHECK (task <> ''),
  CONSTRAINT lane_is_known CHECK (lane BETWEEN 0 AND 3),
  -- As the client writes it; jsonb's text has a space after every comma and colon, so up to half as long again.
  CONSTRAINT payload_is_at_most_256_kib CHECK (pg_column_size(payload) <= 131072 OR octet_length(payload::text) <= 393216)
) PARTITION BY RANGE (id);

CREATE TABLE sexton.jobs_recurring PARTITION OF sexton.jobs FOR VALUES FROM ('80000000-0000-0000-0000-000000000000') TO (MAXVALUE);
ALTER TABLE sexton.jobs_recurring
  ADD CONSTRAINT a_recurring_job_has_a_schedule CHECK (schedule IS NOT NULL),
  ADD CONSTRAINT over_is_said CHECK ((over_at IS NULL) = (over_as IS NULL)),
  ADD CONSTRAINT nothing_is_planned_when_over CHECK (over_at IS NULL OR plan_at IS NULL);

-- One index per filter of a list, each in the order of the list (docs/adr/011).
-- Which jobs does this tenant have, newest first?
CREATE INDEX jobs_by_tenant ON sexton.jobs (tenant, id);
-- Which jobs are in this queue, newest first?
CREATE INDEX jobs_by_queue ON sexton.jobs (queue, id);
-- Which jobs run this task, newest first?
CREATE INDEX jobs_by_task ON sexton.jobs (task, id);
-- Which jobs have this name, newest first?
CREATE INDEX jobs_by_name ON sexton.jobs (name, id) WHERE name IS NOT NULL;

-- Which schedules does a planner have to look at now?
CREATE INDEX jobs_to_plan ON sexton.jobs_recurring (plan_at, id) WHERE plan_at IS NOT NULL;
-- Which pauses end by themselves now?
CREATE INDEX jobs_to_resume ON sexton.jobs_recurring (resume_at) WHERE resume_at IS NOT NULL;
-- For the guardian: which schedules are active and yet no planner will look at them?
CREATE INDEX jobs_forgotten ON sexton.jobs_recurring (id) WHERE plan_at IS NULL AND over_at IS NULL AND paused_at IS NULL;
-- Does an active schedule of this name already exist?
CREATE UNIQUE INDEX schedule_names ON sexton.jobs_recurring (tenant, name) WHERE name IS NOT NULL AND over_at IS NULL;

-- Which jobs have this tag? A B-tree instead of a GIN on the array: a job without tags costs nothing, and a page comes in order.
CREATE TABLE sexton.job_tags (
  tag               text NOT NULL,
  job_id            uuid NOT NULL,
  CONSTRAINT job_tags_pkey PRIMARY KEY (tag, job_id)
) PARTITION BY RANGE (job_id);
CREATE TABLE sexton.job_tags_recurring PARTITION OF sexton.job_tags
  FOR VALUES FROM ('80000000-0000-0000-0000-000000000000') TO (MAXVALUE);

-- The definitions of a job before each edit. Runs, executions and dead letters name the version they belong to.
CREATE TABLE sexton.job_versions (
  job_id            uuid NOT NULL,
  version           int NOT NULL,
  queue             text NOT NULL,
  lane              smallint NOT NULL,
  name              text,
  payload           jsonb NOT NULL,
  policy            jsonb,
  timeout_s         real,
  tags              text[],
  fire_at           timestamptz NOT NULL,
  replaced_at       timestamptz NOT NULL,
  replaced_by       text,
  schedule          jsonb,
  recurrence        jsonb,
  CONSTRAINT job_versions_pkey PRIMARY KEY (job_id, version)
) PARTITION BY RANGE (job_id);
CREATE TABLE sexton.job_versions_recurring PARTITION OF sexton.job_versions
  FOR VALUES FROM ('80000000-0000-0000-0000-000000000000') TO (MAXVALUE);

-- A schedule as it is submitted. Missing fields are filled in from its task's options and from Sexton's defaults.
CREATE TYPE sexton.schedule_document AS (
  ord int, task text, name text, tenant text, queue text, lane smallint, payload jsonb, policy jsonb, timeout_s real, at_most_once boolean,
  tags text[], submitted_by text, trace text, schedule jsonb, recurrence jsonb, on_name text);

-- Fires that failed for good, only of active jobs with `pause_after`, which count them. A planner deletes those before a
-- success.
CREATE TABLE sexton.failures (
  job_id            uuid NOT NULL,
  id                uuid NOT NULL,                  -- the execution that buried it
  said              text NOT NULL,                  -- the error, in one line
  PRIMARY KEY (job_id, id)
);

-- The time zone data that schedules are planned with (rule "one instant, one fire", docs/schedules.md): only newer data replan.
-- One row per release that has planned here; the newest counts. Its zones are stored with it, so that the next release knows
-- which wall times have fired.
CREATE TABLE sexton.tzdata (
  version           text COLLATE "C" PRIMARY KEY CHECK (version ~ '^[0-9]{4}[a-z]+$'),
  taken_at          timestamptz NOT NULL
);
CREATE TABLE sexton.zones (
  tzdata            text COLLATE "C" NOT NULL,
  name              text NOT NULL,
  rules             bytea NOT NULL,                 -- as in RFC 8536
  PRIMARY KEY (tzdata, name)
);
