-- The whole schema of this release, as the catalogue of a migrated database shows it. Made by `make schema`: do not edit it,
-- and do not run it; `sexton migrate` makes the schema from migrations/ and functions/.

CREATE TYPE sexton.schedule_document AS (
  ord integer, task text, name text, tenant text, queue text, lane smallint, payload jsonb, policy jsonb, timeout_s real,
  at_most_once boolean, tags text[], submitted_by text, trace text, schedule jsonb, recurrence jsonb, on_name text
);

CREATE TABLE sexton.cluster (
  one_row boolean DEFAULT true NOT NULL, id uuid NOT NULL, system_identifier bigint NOT NULL, database_oid oid NOT NULL,
  adopted_at timestamp with time zone NOT NULL,
  CONSTRAINT cluster_pkey PRIMARY KEY (one_row),
  CONSTRAINT cluster_one_row_check CHECK (one_row)
);

CREATE TABLE sexton.dead_letters (
  id uuid NOT NULL, job_id uuid NOT NULL, run_id uuid NOT NULL, fire_at timestamp with time zone NOT NULL,
  buried_at timestamp with time zone NOT NULL, replay_at timestamp with time zone, job_version integer NOT NULL,
  seq integer NOT NULL, attempts smallint NOT NULL, lost_count smallint NOT NULL, lane smallint NOT NULL,
  permanent boolean NOT NULL, origin text NOT NULL, status text NOT NULL, queue text NOT NULL, tenant text NOT NULL,
  task text NOT NULL, reason text NOT NULL, name text, error jsonb, payload jsonb NOT NULL,
  CONSTRAINT dead_letters_pkey PRIMARY KEY (id)
);
CREATE INDEX dead_letters_by_job ON sexton.dead_letters USING btree (job_id);
CREATE INDEX dead_letters_by_queue ON sexton.dead_letters USING btree (queue, id);
CREATE INDEX dead_letters_by_task ON sexton.dead_letters USING btree (task, id);
CREATE INDEX dead_letters_by_tenant ON sexton.dead_letters USING btree (tenant, id);
CREATE INDEX dead_letters_to_replay ON sexton.dead_letters USING btree (replay_at) WHERE (replay_at IS NOT NULL);
CREATE TRIGGER bury_recurring BEFORE INSERT ON sexton.dead_letters FOR EACH ROW WHEN ((new.job_id >= '80000000-0000-0000-0000-000000000000'::uuid)) EXECUTE FUNCTION sexton.bury_recurring();

CREATE TABLE sexton.declarations (
  job_id uuid NOT NULL, name text, digest text NOT NULL,
  CONSTRAINT declarations_pkey PRIMARY KEY (job_id)
);

CREATE TABLE sexton.endings (
  job_id uuid NOT NULL, execution_id uuid NOT NULL, ended_at timestamp with time zone NOT NULL, status text NOT NULL,
  CONSTRAINT endings_pkey PRIMARY KEY (job_id),
  CONSTRAINT status_is_final CHECK ((status = ANY (ARRAY['completed'::text, 'failed'::text, 'cancelled'::text])))
) PARTITION BY RANGE (job_id);
CREATE INDEX endings_not_completed ON ONLY sexton.endings USING btree (status, job_id) WHERE (status <> 'completed'::text);

CREATE TABLE sexton.executions (
  id uuid NOT NULL, job_id uuid NOT NULL, run_id uuid NOT NULL, worker_id uuid, fire_at timestamp with time zone NOT NULL,
  due_at timestamp with time zone NOT NULL, started_at timestamp with time zone,
  ended_at timestamp with time zone NOT NULL, token bigint NOT NULL, job_version integer NOT NULL, seq integer NOT NULL,
  attempt smallint NOT NULL, lane smallint NOT NULL, origin text NOT NULL, status text NOT NULL, queue text NOT NULL,
  tenant text NOT NULL, task text NOT NULL, reason text, error jsonb, result jsonb, progress jsonb, output text,
  CONSTRAINT executions_pkey PRIMARY KEY (id),
  CONSTRAINT status_is_known CHECK ((status = ANY (ARRAY['succeeded'::text, 'failed'::text, 'timed_out'::text, 'cancelled'::text, 'lost'::text, 'snoozed'::text, 'released'::text, 'skipped'::text, 'missed'::text, 'paused'::text])))
) PARTITION BY RANGE (id);
CREATE INDEX executions_by_job ON ONLY sexton.executions USING btree (job_id, id);
CREATE INDEX executions_ran ON ONLY sexton.executions USING btree (job_id, fire_at) WHERE ((status = 'succeeded'::text) AND (origin <> 'now'::text));
CREATE TRIGGER raise_events AFTER INSERT ON sexton.executions REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION sexton.raise_events();

CREATE TABLE sexton.failures (
  job_id uuid NOT NULL, id uuid NOT NULL, said text NOT NULL,
  CONSTRAINT failures_pkey PRIMARY KEY (job_id, id)
);

CREATE TABLE sexton.held_deliveries (
  id bigint GENERATED ALWAYS AS IDENTITY NOT NULL, held_at timestamp with time zone NOT NULL, said text NOT NULL,
  delivery jsonb NOT NULL,
  CONSTRAINT held_deliveries_pkey PRIMARY KEY (id)
);

CREATE TABLE sexton.idempotency_keys (
  tenant text NOT NULL, key text NOT NULL, job_id uuid NOT NULL, body bytea NOT NULL,
  expires_at timestamp with time zone NOT NULL, completed_at timestamp with time zone, execution_id uuid,
  CONSTRAINT idempotency_keys_pkey PRIMARY KEY (tenant, key)
);
CREATE INDEX idempotency_keys_expiring ON sexton.idempotency_keys USING btree (expires_at);

CREATE TABLE sexton.job_tags (
  tag text NOT NULL, job_id uuid NOT NULL,
  CONSTRAINT job_tags_pkey PRIMARY KEY (tag, job_id)
) PARTITION BY RANGE (job_id);

CREATE TABLE sexton.job_tags_recurring PARTITION OF sexton.job_tags FOR VALUES FROM ('80000000-0000-0000-0000-000000000000') TO (MAXVALUE);

CREATE TABLE sexton.job_versions (
  job_id uuid NOT NULL, version integer NOT NULL, queue text NOT NULL, lane smallint NOT NULL, name text,
  payload jsonb NOT NULL, policy jsonb, timeout_s real, tags text[], fire_at timestamp with time zone NOT NULL,
  replaced_at timestamp with time zone NOT NULL, replaced_by text, schedule jsonb, recurrence jsonb,
  CONSTRAINT job_versions_pkey PRIMARY KEY (job_id, version)
) PARTITION BY RANGE (job_id);

CREATE TABLE sexton.job_versions_recurring PARTITION OF sexton.job_versions FOR VALUES FROM ('80000000-0000-0000-0000-000000000000') TO (MAXVALUE);

CREATE TABLE sexton.jobs (
  id uuid NOT NULL, version integer DEFAULT 1 NOT NULL, task text NOT NULL, tenant text NOT NULL, queue text NOT NULL,
  lane smallint NOT NULL, name text, payload jsonb NOT NULL, policy jsonb, timeout_s real, at_most_once boolean NOT NULL,
  idempotency_key text, tags text[], submitted_at timestamp with time zone NOT NULL, submitted_by text, trace text,
  plan_cursor_at timestamp with time zone, paused_at timestamp with time zone, paused_by text, note text, schedule jsonb,
  recurrence jsonb, plan_at timestamp with time zone, fire_count bigint DEFAULT 0 NOT NULL,
  over_at timestamp with time zone, over_as text, over_reason text, resume_at timestamp with time zone,
  tzdata text COLLATE "C",
  CONSTRAINT jobs_pkey PRIMARY KEY (id),
  CONSTRAINT lane_is_known CHECK (((lane >= 0) AND (lane <= 3))),
  CONSTRAINT payload_is_at_most_256_kib CHECK (((pg_column_size(payload) <= 131072) OR (octet_length((payload)::text) <= 393216))),
  CONSTRAINT task_is_named CHECK ((task <> ''::text))
) PARTITION BY RANGE (id);
CREATE INDEX jobs_by_name ON ONLY sexton.jobs USING btree (name, id) WHERE (name IS NOT NULL);
CREATE INDEX jobs_by_queue ON ONLY sexton.jobs USING btree (queue, id);
CREATE INDEX jobs_by_task ON ONLY sexton.jobs USING btree (task, id);
CREATE INDEX jobs_by_tenant ON ONLY sexton.jobs USING btree (tenant, id);

CREATE TABLE sexton.jobs_recurring PARTITION OF sexton.jobs (
  CONSTRAINT a_recurring_job_has_a_schedule CHECK ((schedule IS NOT NULL)),
  CONSTRAINT nothing_is_planned_when_over CHECK (((over_at IS NULL) OR (plan_at IS NULL))),
  CONSTRAINT over_is_said CHECK (((over_at IS NULL) = (over_as IS NULL)))
) FOR VALUES FROM ('80000000-0000-0000-0000-000000000000') TO (MAXVALUE);
CREATE INDEX jobs_forgotten ON sexton.jobs_recurring USING btree (id) WHERE ((plan_at IS NULL) AND (over_at IS NULL) AND (paused_at IS NULL));
CREATE INDEX jobs_to_plan ON sexton.jobs_recurring USING btree (plan_at, id) WHERE (plan_at IS NOT NULL);
CREATE INDEX jobs_to_resume ON sexton.jobs_recurring USING btree (resume_at) WHERE (resume_at IS NOT NULL);
CREATE UNIQUE INDEX schedule_names ON sexton.jobs_recurring USING btree (tenant, name) WHERE ((name IS NOT NULL) AND (over_at IS NULL));
CREATE TRIGGER make_limits_of_schedule AFTER INSERT OR UPDATE OF policy, payload ON sexton.jobs_recurring FOR EACH ROW WHEN ((new.policy ? 'limit'::text)) EXECUTE FUNCTION sexton.make_limits_of_schedule();
CREATE TRIGGER rule_changed BEFORE UPDATE OF schedule ON sexton.jobs_recurring FOR EACH ROW WHEN (((old.schedule IS DISTINCT FROM new.schedule) AND (NOT (old.tzdata IS DISTINCT FROM new.tzdata)))) EXECUTE FUNCTION sexton.rule_changed();

CREATE TABLE sexton.lease_key (
  one_row boolean DEFAULT true NOT NULL, key bytea NOT NULL,
  CONSTRAINT lease_key_pkey PRIMARY KEY (one_row),
  CONSTRAINT lease_key_key_check CHECK ((octet_length(key) = 32)),
  CONSTRAINT lease_key_one_row_check CHECK (one_row)
);

CREATE TABLE sexton.limits (
  key text NOT NULL, running integer, count integer, per_s double precision, burst integer,
  ordered boolean DEFAULT false NOT NULL, served_tenant text DEFAULT ''::text NOT NULL, made_by text,
  updated_at timestamp with time zone NOT NULL,
  bucket_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
  CONSTRAINT limits_pkey PRIMARY KEY (key),
  CONSTRAINT limit_says_something CHECK (((running IS NOT NULL) OR (count IS NOT NULL))),
  CONSTRAINT limits_are_positive CHECK (((running > 0) AND (count > 0) AND (per_s > (0)::double precision) AND (burst > 0))),
  CONSTRAINT ordered_is_one_at_a_time CHECK (((NOT ordered) OR (running = 1))),
  CONSTRAINT rate_is_whole CHECK ((((count IS NULL) = (per_s IS NULL)) AND ((count IS NULL) = (burst IS NULL))))
) WITH (fillfactor=50);

CREATE TABLE sexton.live_output (
  run_id uuid NOT NULL, token bigint NOT NULL, updated_at timestamp with time zone NOT NULL, progress jsonb, output text,
  CONSTRAINT live_output_pkey PRIMARY KEY (run_id)
) WITH (fillfactor=50);

CREATE TABLE sexton.locks (
  what text NOT NULL, n smallint NOT NULL,
  CONSTRAINT locks_pkey PRIMARY KEY (what, n)
);

CREATE TABLE sexton.migrations (
  number integer NOT NULL, name text NOT NULL, checksum text NOT NULL,
  applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
  CONSTRAINT migrations_pkey PRIMARY KEY (number)
);

CREATE TABLE sexton.nodes (
  id uuid NOT NULL, name text NOT NULL, started_at timestamp with time zone NOT NULL,
  beat_at timestamp with time zone NOT NULL, partitions smallint[] DEFAULT '{}'::smallint[] NOT NULL, session integer,
  CONSTRAINT nodes_pkey PRIMARY KEY (id)
) WITH (fillfactor=50);

CREATE TABLE sexton.queues (
  name text NOT NULL, release_rate real, release_burst integer, ageing_s real, timeout_s real, jitter_s real,
  policy jsonb, paused_at timestamp with time zone, paused_by text, note text,
  updated_at timestamp with time zone NOT NULL,
  bucket_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
  CONSTRAINT queues_pkey PRIMARY KEY (name),
  CONSTRAINT queue_limits_are_positive CHECK (((release_rate > (0)::double precision) AND (release_burst > 0) AND (ageing_s > (0)::double precision) AND (timeout_s >= (0)::double precision) AND (jitter_s >= (0)::double precision)))
) WITH (fillfactor=50);

CREATE TABLE sexton.run_payloads (
  run_id uuid NOT NULL, job_id uuid NOT NULL, payload jsonb NOT NULL,
  CONSTRAINT run_payloads_pkey PRIMARY KEY (run_id),
  CONSTRAINT payload_is_at_most_256_kib CHECK (((pg_column_size(payload) <= 131072) OR (octet_length((payload)::text) <= 393216)))
);

CREATE TABLE sexton.runs (
  id uuid NOT NULL, job_id uuid NOT NULL, fire_at timestamp with time zone NOT NULL,
  due_at timestamp with time zone NOT NULL, claimed_at timestamp with time zone, must_end_at timestamp with time zone,
  start_by timestamp with time zone, deadline_at timestamp with time zone, cancel_requested_at timestamp with time zone,
  worker_id uuid, token bigint DEFAULT 0 NOT NULL, job_version integer DEFAULT 1 NOT NULL, seq integer DEFAULT 0 NOT NULL,
  timeout_s real, lease_s real, attempt smallint DEFAULT 0 NOT NULL, lost_count smallint DEFAULT 0 NOT NULL,
  lane smallint NOT NULL, partition smallint NOT NULL, at_most_once boolean NOT NULL, state text NOT NULL,
  origin text NOT NULL, queue text NOT NULL, tenant text NOT NULL, task text NOT NULL, limit_key text,
  overlap smallint DEFAULT 0 NOT NULL, slot integer, tenant_slot integer, aged smallint DEFAULT 0 NOT NULL,
  counted boolean DEFAULT false NOT NULL, company smallint, batch_limit smallint,
  CONSTRAINT run_fires_once UNIQUE (job_id, fire_at, origin, seq),
  CONSTRAINT runs_pkey PRIMARY KEY (id),
  CONSTRAINT origin_is_known CHECK ((origin = ANY (ARRAY['schedule'::text, 'now'::text, 'backfill'::text, 'replay'::text]))),
  CONSTRAINT running_has_claim CHECK (((state = 'running'::text) = (claimed_at IS NOT NULL))),
  CONSTRAINT running_has_lease CHECK (((state = 'running'::text) = (worker_id IS NOT NULL))),
  CONSTRAINT state_is_known CHECK ((state = ANY (ARRAY['waiting'::text, 'ready'::text, 'running'::text, 'paused'::text, 'blocked'::text, 'parked'::text, 'quarantined'::text]))) NOT VALID
) WITH (fillfactor=90, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_insert_scale_factor=0.1);
CREATE UNIQUE INDEX one_live_run ON sexton.runs USING btree (job_id) WHERE ((overlap = 1) AND ((state = ANY (ARRAY['ready'::text, 'parked'::text, 'running'::text])) OR (token > 0)));
CREATE INDEX runs_admitted ON sexton.runs USING btree (limit_key) WHERE ((state = 'ready'::text) AND (limit_key IS NOT NULL));
CREATE INDEX runs_blocked ON sexton.runs USING btree (job_id, due_at) WHERE (state = 'blocked'::text);
CREATE INDEX runs_counted ON sexton.runs USING btree (tenant) WHERE (counted AND (state <> 'running'::text));
CREATE INDEX runs_due ON sexton.runs USING btree (due_at, partition, id) WHERE (state = 'waiting'::text);
CREATE INDEX runs_due_beside ON sexton.runs USING btree (due_at, partition, id) WHERE ((state = 'waiting'::text) AND (overlap > 0) AND (token = 0));
CREATE INDEX runs_expiring ON sexton.runs USING btree (LEAST(start_by, deadline_at)) WHERE ((state <> 'running'::text) AND ((start_by IS NOT NULL) OR (deadline_at IS NOT NULL)));
CREATE INDEX runs_in_order ON sexton.runs USING btree (limit_key, due_at, id) WHERE (state = 'parked'::text);
CREATE INDEX runs_leased ON sexton.runs USING btree (worker_id) WHERE (state = 'running'::text);
CREATE INDEX runs_parked ON sexton.runs USING btree (limit_key, lane, tenant, due_at, id) WHERE (state = 'parked'::text);
CREATE INDEX runs_parked_by_task ON sexton.runs USING btree (limit_key, queue, task, lane, tenant, due_at, id) WHERE (state = 'parked'::text);
CREATE INDEX runs_paused ON sexton.runs USING btree (uuid_send(job_id)) WHERE (state = 'paused'::text);
CREATE INDEX runs_quarantined ON sexton.runs USING btree (queue, company DESC, due_at, id) WHERE (state = 'quarantined'::text);
CREATE INDEX runs_ready ON sexton.runs USING btree (queue, lane, tenant, due_at, id) WHERE (state = 'ready'::text);
CREATE INDEX runs_to_come ON sexton.runs USING btree (limit_key, due_at, id) WHERE ((state = ANY (ARRAY['waiting'::text, 'blocked'::text])) AND (limit_key IS NOT NULL));
CREATE TRIGGER cede_slot BEFORE UPDATE OF state ON sexton.runs FOR EACH ROW WHEN (((old.slot > 1) AND (old.state = 'running'::text) AND (new.state <> 'running'::text) AND (new.slot IS NOT NULL))) EXECUTE FUNCTION sexton.step_out();
CREATE TRIGGER hold_back BEFORE INSERT OR UPDATE OF state ON sexton.runs FOR EACH ROW WHEN (((new.limit_key IS NOT NULL) AND (new.state = 'ready'::text) AND (new.slot IS NULL))) EXECUTE FUNCTION sexton.hold_back();
CREATE TRIGGER release_blocked AFTER DELETE ON sexton.runs FOR EACH ROW WHEN ((old.overlap > 0)) EXECUTE FUNCTION sexton.release_blocked();
CREATE TRIGGER step_out BEFORE UPDATE OF state ON sexton.runs FOR EACH ROW WHEN (((old.slot IS NOT NULL) AND (old.state = 'ready'::text) AND ((new.state = ANY (ARRAY['paused'::text, 'waiting'::text])) OR (new.slot IS NULL)))) EXECUTE FUNCTION sexton.step_out();
CREATE TRIGGER step_out_for_good AFTER DELETE ON sexton.runs FOR EACH ROW WHEN (((old.slot IS NOT NULL) AND (old.state = 'ready'::text))) EXECUTE FUNCTION sexton.step_out();

CREATE TABLE sexton.schema_functions (
  name text NOT NULL, checksum text NOT NULL, release text NOT NULL,
  applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
  CONSTRAINT schema_functions_pkey PRIMARY KEY (name, checksum)
);

CREATE TABLE sexton.schema_steps (
  name text NOT NULL, checksum text NOT NULL, state text NOT NULL, runs_from text NOT NULL, release text NOT NULL,
  cursor text, done_count bigint DEFAULT 0 NOT NULL,
  started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL, done_at timestamp with time zone,
  CONSTRAINT schema_steps_pkey PRIMARY KEY (name),
  CONSTRAINT schema_step_is_done_at CHECK (((state = 'running'::text) = (done_at IS NULL))),
  CONSTRAINT schema_step_state_is_known CHECK ((state = ANY (ARRAY['running'::text, 'done'::text, 'adopted'::text])))
);

CREATE TABLE sexton.slots (
  key text NOT NULL, n integer NOT NULL, run_id uuid,
  CONSTRAINT slots_pkey PRIMARY KEY (key, n)
) WITH (fillfactor=50);

CREATE TABLE sexton.subscriptions (
  name text NOT NULL, kinds text[] NOT NULL, tenant text, queue text, job_id uuid, delivery jsonb NOT NULL,
  paused_at timestamp with time zone, created_at timestamp with time zone NOT NULL,
  updated_at timestamp with time zone NOT NULL,
  anchor text GENERATED ALWAYS AS (
CASE
    WHEN (job_id IS NOT NULL) THEN ('job '::text || (job_id)::text)
    WHEN (tenant IS NOT NULL) THEN ('tenant '::text || tenant)
    WHEN (queue IS NOT NULL) THEN ('queue '::text || queue)
    ELSE ''::text
END) STORED NOT NULL,
  CONSTRAINT subscriptions_pkey PRIMARY KEY (name),
  CONSTRAINT kinds_are_known CHECK (((cardinality(kinds) > 0) AND (kinds <@ '{completed,failed,dead_lettered,missed}'::text[])))
);
CREATE INDEX subscriptions_active ON sexton.subscriptions USING btree (anchor) WHERE (paused_at IS NULL);

CREATE TABLE sexton.tasks (
  name text NOT NULL, options jsonb NOT NULL, seen_at timestamp with time zone NOT NULL,
  CONSTRAINT tasks_pkey PRIMARY KEY (name)
);

CREATE TABLE sexton.tenants (
  name text NOT NULL, weight integer DEFAULT 1 NOT NULL, running_max integer, waiting_max integer, submit_rate real,
  submit_burst integer, jitter_s real, paused_at timestamp with time zone, paused_by text, note text,
  updated_at timestamp with time zone NOT NULL,
  bucket_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
  waiting_count integer DEFAULT 0 NOT NULL,
  counted_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
  CONSTRAINT tenants_pkey PRIMARY KEY (name),
  CONSTRAINT tenant_limits_are_positive CHECK (((running_max > 0) AND (waiting_max > 0) AND (submit_rate > (0)::double precision) AND (submit_burst > 0))),
  CONSTRAINT weight_is_a_share CHECK (((weight >= 1) AND (weight <= 1000)))
) WITH (fillfactor=50);
CREATE INDEX tenants_that_may_refuse ON sexton.tenants USING btree (name) WHERE ((waiting_max IS NOT NULL) OR (submit_rate IS NOT NULL));

CREATE TABLE sexton.tzdata (
  version text COLLATE "C" NOT NULL, taken_at timestamp with time zone NOT NULL,
  CONSTRAINT tzdata_pkey PRIMARY KEY (version),
  CONSTRAINT tzdata_version_check CHECK ((version ~ '^[0-9]{4}[a-z]+$'::text))
);

CREATE TABLE sexton.unique_keys (
  tenant text NOT NULL, key bytea NOT NULL, job_id uuid NOT NULL, holds_until timestamp with time zone,
  CONSTRAINT unique_keys_pkey PRIMARY KEY (tenant, key)
);
CREATE INDEX unique_keys_by_job ON sexton.unique_keys USING btree (job_id);

CREATE TABLE sexton.workers (
  id uuid NOT NULL, name text NOT NULL, queues text[] NOT NULL, tasks text[] NOT NULL, concurrency integer NOT NULL,
  started_at timestamp with time zone NOT NULL, beat_at timestamp with time zone NOT NULL, beat bigint DEFAULT 0 NOT NULL,
  lost_at timestamp with time zone, draining boolean DEFAULT false NOT NULL, running_count integer DEFAULT 0 NOT NULL,
  refused_count bigint DEFAULT 0 NOT NULL, lease_s real, quarantine boolean DEFAULT false NOT NULL, parent_id uuid,
  held_at_loss integer, lost_with_parent boolean DEFAULT false NOT NULL, lost_reason text, beat_within_s real,
  process_tasks text[], process_slots integer DEFAULT 0 NOT NULL, process_running_count integer DEFAULT 0 NOT NULL,
  lacks text[], session text, lease_left_s real, batch_tasks text[], batch_slots integer DEFAULT 0 NOT NULL,
  batch_running_count integer DEFAULT 0 NOT NULL,
  CONSTRAINT workers_pkey PRIMARY KEY (id)
) WITH (fillfactor=50);

CREATE TABLE sexton.zones (
  tzdata text COLLATE "C" NOT NULL, name text NOT NULL, rules bytea NOT NULL,
  CONSTRAINT zones_pkey PRIMARY KEY (tzdata, name)
);

FUNCTION sexton.admit_runs(ids uuid[], picked_keys text[], held integer[], has_limited_tenant boolean, waits boolean, moment timestamp with time zone, OUT admitted boolean[], OUT slots integer[], OUT tenant_slots integer[], OUT parked integer)
  RETURNS record LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp
  BODY md5 3fe3bc6c7b8daa3d06bf84a2465fc018;

FUNCTION sexton.announce(ready_queues text[], due_soon boolean)
  RETURNS void LANGUAGE plpgsql VOLATILE
  BODY md5 15a4c580116fbcd92461b27a4ac9c59a;

FUNCTION sexton.bury_recurring()
  RETURNS trigger LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp
  BODY md5 070b59e3c0d50c59dc5b6b8da7bc9990;

FUNCTION sexton.callback_ends_at(claimed_at timestamp with time zone, timeout_s real, deadline_at timestamp with time zone, cancel_requested_at timestamp with time zone, job uuid, moment timestamp with time zone)
  RETURNS timestamp with time zone LANGUAGE sql STABLE
  BODY md5 99c95ee18a5c340ed46dabc88ec86c8a;

FUNCTION sexton.callback_ends_at(claimed_at timestamp with time zone, timeout_s real, deadline_at timestamp with time zone, cancel_requested_at timestamp with time zone, job uuid, version integer, moment timestamp with time zone)
  RETURNS timestamp with time zone LANGUAGE sql STABLE
  BODY md5 4c18fa4f4928e735f2b5e58405c0d3d2;

FUNCTION sexton.callbacks()
  RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
  BODY md5 0ab509d3f1f1d1cf70358aad37764039;

FUNCTION sexton.check_count(argument text, value integer, most integer)
  RETURNS void LANGUAGE plpgsql IMMUTABLE
  BODY md5 16c2261579043f04eac3995f1f09ddce;

FUNCTION sexton.check_span(argument text, value interval)
  RETURNS void LANGUAGE plpgsql IMMUTABLE
  BODY md5 f7c90a064102718d83fd4332bad9a106;

FUNCTION sexton.check_submissions(names text[], counts integer[], moment timestamp with time zone)
  RETURNS text[] LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET lock_timeout=50ms
  BODY md5 d730ad059b66849d219f58ee3735bfdb;

FUNCTION sexton.check_tags(tags text[])
  RETURNS void LANGUAGE plpgsql IMMUTABLE
  BODY md5 a44d29fd5d17b1a47dd85d369964baec;

FUNCTION sexton.check_text(argument text, value text)
  RETURNS void LANGUAGE plpgsql IMMUTABLE
  BODY md5 f28b46f4e9e7f49fb204d10fd4eccee4;

FUNCTION sexton.claim_keys(jobs jsonb, chosen uuid[], moment timestamp with time zone)
  RETURNS uuid[] LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp
  BODY md5 0a2ca6256cd31225daa6ebeb2bb0b883;

FUNCTION sexton.claim_runs(worker uuid, queues text[], tasks text[], wanted integer, grace_s double precision, ahead boolean, turns jsonb, at timestamp with time zone DEFAULT NULL::timestamp with time zone)
  RETURNS TABLE(id uuid, job_id uuid, worker_id uuid, token bigint, attempt smallint, lost_count smallint, at_most_once boolean, seq integer, origin text, deadline_left_s double precision, policy jsonb, job_version integer, fire_at timestamp with time zone, due_at timestamp with time zone, claimed_at timestamp with time zone, timeout_s double precision, queue text, tenant text, lane smallint, task text, name text, payload jsonb, idempotency_key text, completed_by uuid, trace text, turn integer, is_limited boolean) LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET enable_seqscan=off SET enable_bitmapscan=off SET enable_sort=off SET jit=off SET enable_material=off SET plan_cache_mode=force_generic_plan
  BODY md5 80bcaa75e1f2f776e0acfb9f562c88c1;

FUNCTION sexton.claim_suspects(worker uuid, wanted_queues text[], tasks text[], wanted integer, grace_s double precision, at timestamp with time zone DEFAULT NULL::timestamp with time zone)
  RETURNS SETOF sexton.runs LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET enable_seqscan=off SET jit=off SET plan_cache_mode=force_generic_plan
  BODY md5 fdb9af0b4bb71b9d2ac4192bb79254ac;

FUNCTION sexton.claim_unique(jobs jsonb, fresh uuid[], chosen uuid[], moment timestamp with time zone)
  RETURNS uuid[] LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp
  BODY md5 9a6c2425cfce5f931af7d35090ebb18e;

FUNCTION sexton.count_suspects(wanted_queues text[], tasks text[], most integer, moment timestamp with time zone)
  RETURNS integer LANGUAGE sql STABLE
  BODY md5 1bef47be1297d220a4a289e20aa4df6b;

FUNCTION sexton.dealt(count integer, weight integer, had integer, before bigint, first_before bigint, total bigint, had_total bigint)
  RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE
  BODY md5 2b92501caadef5b37dbc2534eb3efe61;

FUNCTION sexton.dice()
  RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE
  BODY md5 78b3391496e8a24897b5be843d694f4f;

FUNCTION sexton.drawn(bucket_at timestamp with time zone, rate double precision, burst integer, moment timestamp with time zone, taken integer)
  RETURNS timestamp with time zone LANGUAGE sql IMMUTABLE PARALLEL SAFE
  BODY md5 266d967b5abbc14a6273316db4cac69c;

FUNCTION sexton.drop_partition(parent text, child text)
  RETURNS void LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET lock_timeout=1s
  BODY md5 86b1e218b08281eb8f2e7db28997c8df;

FUNCTION sexton.end_fires(over uuid, why text, moment timestamp with time zone, states text[] DEFAULT '{waiting,ready,parked,blocked}'::text[])
  RETURNS integer LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET enable_seqscan=off SET jit=off SET plan_cache_mode=force_generic_plan
  BODY md5 44d5c05c087f93fdabb0f83d9459a0a5;

FUNCTION sexton.ensure_partitions(at timestamp with time zone)
  RETURNS void LANGUAGE plpgsql VOLATILE
  BODY md5 3326e3490a2c60ba96b17f3819a05982;

FUNCTION sexton.event_data(kind text, e sexton.executions, job_name text)
  RETURNS jsonb LANGUAGE sql STABLE
  BODY md5 c39726d0bdc3f11a21cf3b8ed3a0f35e;

FUNCTION sexton.finish_batch(run_ids uuid[], worker_ids uuid[], tokens bigint[], started_s double precision[], took_s double precision[], results jsonb, others jsonb, at timestamp with time zone DEFAULT NULL::timestamp with time zone)
  RETURNS TABLE(run_id uuid, execution_id uuid, state text) LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET enable_seqscan=off SET jit=off SET plan_cache_mode=force_generic_plan
  BODY md5 b739841316bedb8c9e407f726637d1eb;

FUNCTION sexton.finish_each(reports jsonb, at timestamp with time zone DEFAULT NULL::timestamp with time zone)
  RETURNS TABLE(run_id uuid, execution_id uuid, state text, is_locked boolean) LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET lock_timeout=5ms
  BODY md5 f2ea5584ca0f57292220bf4c3cd50c1d;

FUNCTION sexton.finish_runs(reports jsonb, at timestamp with time zone DEFAULT NULL::timestamp with time zone)
  RETURNS TABLE(run_id uuid, execution_id uuid, state text) LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET enable_seqscan=off SET jit=off SET plan_cache_mode=force_generic_plan
  BODY md5 fd16e06fde0157ea5cce7d05f41fb636;

FUNCTION sexton.give_back(slot_keys text[], numbers integer[], run_ids uuid[])
  RETURNS void LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp
  BODY md5 165d34f69de5226fb6cb8780f5925925;

FUNCTION sexton.has_ended(session text)
  RETURNS boolean LANGUAGE sql STABLE
  BODY md5 490839361f2e0633efb62acdca1f6af5;

FUNCTION sexton.has_takers(run_queue text, run_task text, moment timestamp with time zone)
  RETURNS boolean LANGUAGE sql STABLE
  BODY md5 ca8486818d875377a76c5698cf85a808;

FUNCTION sexton.held_by_service(class integer, key integer)
  RETURNS boolean LANGUAGE sql STABLE SET search_path=sexton, pg_temp
  BODY md5 f638a0ef1380c932b517fcd9bcb0f04d;

FUNCTION sexton.hold_back()
  RETURNS trigger LANGUAGE plpgsql VOLATILE
  BODY md5 7dfd5136738d2af7733d628ee0786170;

FUNCTION sexton.hold_runs(job_ids uuid[], states text[])
  RETURNS uuid[] LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET enable_seqscan=off SET jit=off SET plan_cache_mode=force_generic_plan
  BODY md5 e70bdf8fa6afeb528148f9edb2149930;

FUNCTION sexton.instant_of(id uuid)
  RETURNS timestamp with time zone LANGUAGE sql IMMUTABLE PARALLEL SAFE
  BODY md5 00ed431242b16c7947c2b42891d4c0c8;

FUNCTION sexton.is_alive(beat_at timestamp with time zone, lost_at timestamp with time zone, lease_s double precision, moment timestamp with time zone)
  RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
  BODY md5 5430a331580850f68b3cef81fda1d7cb;

FUNCTION sexton.is_for(run sexton.runs, tasks text[], ahead boolean, moment timestamp with time zone)
  RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
  BODY md5 900371e68721596f2ff4b614f6f3c90b;

FUNCTION sexton.keeps_rule(known sexton.jobs_recurring, given sexton.schedule_document)
  RETURNS boolean LANGUAGE sql IMMUTABLE SET search_path=sexton, pg_temp
  BODY md5 cbbc63cd290c61cd83b840c658ad2890;

FUNCTION sexton.kept_s(own_lease_s real, at_most_once boolean, lease_s double precision, left_s real)
  RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE
  BODY md5 63f3506541eecb52153980361158a9f9;

FUNCTION sexton.limit_document(limit_key text, limit_running integer, limit_count integer, limit_per interval, limit_burst integer, limit_ordered boolean)
  RETURNS jsonb LANGUAGE plpgsql IMMUTABLE SET search_path=sexton, pg_temp
  BODY md5 a0ff1603eae4443098a6e298bee6ce64;

FUNCTION sexton.limit_key_of(policy jsonb, payload jsonb)
  RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
  BODY md5 1d56e8560c26ae5f1a20b8bd02126552;

FUNCTION sexton.lock_limits(keys text[])
  RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET lock_timeout=50ms
  BODY md5 07681c5f8af0a2cd69e5e90af84db23d;

FUNCTION sexton.lock_named(schedules jsonb)
  RETURNS TABLE(id uuid, keeps_rule boolean) LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET enable_seqscan=off SET jit=off SET lock_timeout=2s
  BODY md5 0743ba39b33350df46fdff661cb3ef48;

FUNCTION sexton.lock_queue(wanted text)
  RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET lock_timeout=50ms
  BODY md5 5bd22267a2c8adb9528ba298271c47b1;

FUNCTION sexton.lockers(row_xmax xid)
  RETURNS text[] LANGUAGE sql STABLE
  BODY md5 244393aad254bc6ee5e878fb7b206c09;

FUNCTION sexton.make_limits(named jsonb, moment timestamp with time zone, maker text DEFAULT NULL::text)
  RETURNS void LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp
  BODY md5 d5fc3c71c54809972b5e9bb01feaa598;

FUNCTION sexton.make_limits_of_schedule()
  RETURNS trigger LANGUAGE plpgsql VOLATILE
  BODY md5 20dfd7f1d58d0372f1c29420761a549b;

FUNCTION sexton.make_partition(parent text, suffix text, low timestamp with time zone, high timestamp with time zone)
  RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp
  BODY md5 b8fbc5368363828248f693a047f6dffa;

FUNCTION sexton.make_partitions(first timestamp with time zone, last timestamp with time zone)
  RETURNS integer LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET TimeZone=UTC
  BODY md5 2fcb33090c16b7e369ec229f87adbd97;

FUNCTION sexton.may_serve(role oid)
  RETURNS boolean LANGUAGE sql STABLE SET search_path=sexton, pg_temp
  BODY md5 4b63d1364ff1f0a49a2b73ca5693f537;

FUNCTION sexton.may_wait()
  RETURNS boolean LANGUAGE sql STABLE
  BODY md5 05c23c076d6bdc747bf0d844a2036358;

FUNCTION sexton.mend_slots()
  RETURNS integer LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET enable_hashjoin=off SET enable_mergejoin=off
  BODY md5 c2082ed6b9cbe694d0e0cef3b37093d7;

FUNCTION sexton.node_lease_s()
  RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE
  BODY md5 1cf71c49ec5b7806a095c7a61c7a5c79;

FUNCTION sexton.oldest_ready(in_queue text, in_lane smallint, tenants_limit bigint)
  RETURNS timestamp with time zone LANGUAGE sql STABLE
  BODY md5 2de7972dbb495784276eb1fde48eed6f;

FUNCTION sexton.overlap_of(recurrence jsonb)
  RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE
  BODY md5 b984ce636b1412cec56791c019df01a1;

FUNCTION sexton.own_session(address inet, port integer)
  RETURNS text LANGUAGE sql STABLE
  BODY md5 b6210400d14c51f9e151a77a5d4cb6c9;

FUNCTION sexton.partition_of(job_id uuid)
  RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE
  BODY md5 454ffb7159d9895df289c2f14eb16e45;

FUNCTION sexton.patience()
  RETURNS interval LANGUAGE sql IMMUTABLE PARALLEL SAFE
  BODY md5 a53b5fbc2c7bd0cc365777f0a2365080;

FUNCTION sexton.pick_runs(worker_queue text, worker_lane smallint, tasks text[], wanted integer, ahead boolean, last_tenant text, last_turn integer, marks jsonb, moment timestamp with time zone, OUT ids uuid[], OUT turns integer[], OUT keys text[], OUT held integer[], OUT has_limited_tenant boolean, OUT stopped_at text, OUT may_have_more boolean)
  RETURNS record LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp
  BODY md5 39b344ec24aea8342be8dfdc08076131;

FUNCTION sexton.policy_document(max_attempts integer, deadline interval, start_within interval, lease interval, progress_within interval, grace interval, max_lost integer)
  RETURNS jsonb LANGUAGE plpgsql IMMUTABLE SET search_path=sexton, pg_temp
  BODY md5 d816115b163b1c15c067a86ef32a1190;

FUNCTION sexton.policy_of(wanted_job uuid, wanted_version integer)
  RETURNS jsonb LANGUAGE plpgsql STABLE SET search_path=sexton, pg_temp
  BODY md5 433d4599269028025ca05ee67090b2ea;

FUNCTION sexton.raise_events()
  RETURNS trigger LANGUAGE plpgsql VOLATILE
  BODY md5 6e51e6ba4c6d3eff0febb38005924db0;

FUNCTION sexton.read_schedules(schedules jsonb)
  RETURNS SETOF sexton.schedule_document LANGUAGE sql STABLE SET search_path=sexton, pg_temp
  BODY md5 2ff17a5be7812fddb31381c3ea0fe03c;

FUNCTION sexton.ready_flows(at_most integer)
  RETURNS TABLE(queue text, lane smallint) LANGUAGE sql STABLE SET search_path=sexton, pg_temp SET enable_seqscan=off SET jit=off
  BODY md5 33d57ba9575c99d9d6e5df49418f91d7;

FUNCTION sexton.recall(partitions smallint[], at_most integer, at timestamp with time zone DEFAULT NULL::timestamp with time zone)
  RETURNS integer LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET enable_seqscan=off SET jit=off SET plan_cache_mode=force_generic_plan
  BODY md5 2dc0a23656da82e6fcfa5727bddf7c4e;

FUNCTION sexton.recall_late(partitions smallint[], at_most integer, without uuid[], at timestamp with time zone DEFAULT NULL::timestamp with time zone)
  RETURNS TABLE(job_id uuid, is_left boolean) LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET enable_seqscan=off SET jit=off SET plan_cache_mode=force_generic_plan
  BODY md5 5a944b11c409b5462a1aa2a8cac4ef02;

FUNCTION sexton.recurring_id(micros bigint)
  RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE
  BODY md5 f648d53c29fae544c974731fc2321b58;

FUNCTION sexton.release_blocked()
  RETURNS trigger LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp
  BODY md5 dbfe7ef79b76261cde3453365d384fd6;

FUNCTION sexton.release_parked(wanted_keys text[] DEFAULT NULL::text[], at timestamp with time zone DEFAULT NULL::timestamp with time zone, after_key text DEFAULT ''::text, OUT queues text[], OUT released integer, OUT next_s double precision, OUT stopped_at text)
  RETURNS record LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET enable_seqscan=off SET enable_bitmapscan=off SET enable_sort=off SET jit=off SET plan_cache_mode=force_generic_plan
  BODY md5 916373d028a1b7d0c5305b75a8f07468;

FUNCTION sexton.release_startable(wanted_key text, wanted integer, moment timestamp with time zone, INOUT served text, OUT released integer, OUT queues text[])
  RETURNS record LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp
  BODY md5 d31d8524a4643cd9845c505c2900984a;

FUNCTION sexton.render_key(template text, payload jsonb)
  RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
  BODY md5 202ebdbaa569ca1c960f3fb2d8008c9f;

FUNCTION sexton.revise(revised uuid, new sexton.schedule_document, moment timestamp with time zone, OUT removed_count integer, OUT begun_count integer)
  RETURNS record LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET enable_seqscan=off
  BODY md5 11a5ac0ae510bc52898a1a0adda2cddb;

FUNCTION sexton.rule_changed()
  RETURNS trigger LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp
  BODY md5 add73d3d5cadc6859560950c281f1cd9;

FUNCTION sexton.same_rule(known jsonb, given jsonb)
  RETURNS boolean LANGUAGE sql IMMUTABLE
  BODY md5 171deab9e33443b055ea3018201b3b00;

FUNCTION sexton.same_schedule(known sexton.jobs_recurring, given sexton.schedule_document)
  RETURNS boolean LANGUAGE sql IMMUTABLE SET search_path=sexton, pg_temp
  BODY md5 55d84dd40bcaa52f0e28dc9cda5530d4;

FUNCTION sexton.standing(tenant text, ahead boolean)
  RETURNS TABLE(weight integer, room integer, is_served boolean) LANGUAGE sql STABLE
  BODY md5 e28407c05f416331a2cc87a4c5be03ff;

FUNCTION sexton.startable_count(wanted_key text, moment timestamp with time zone)
  RETURNS integer LANGUAGE sql STABLE
  BODY md5 f779e92a0603c7e28449d1d01e09c27a;

FUNCTION sexton.step_out()
  RETURNS trigger LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp
  BODY md5 5f870e9fb95aa59f2bf6d7ad5e3aae07;

FUNCTION sexton.stop_waiting()
  RETURNS void LANGUAGE plpgsql VOLATILE
  BODY md5 6f8c3e58f6fd1f95b50aafdac94d3a03;

FUNCTION sexton.submit(task text, payload jsonb DEFAULT '{}'::jsonb, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, delay interval DEFAULT NULL::interval, queue text DEFAULT NULL::text, priority text DEFAULT NULL::text, tenant text DEFAULT NULL::text, name text DEFAULT NULL::text, key text DEFAULT NULL::text, key_ttl interval DEFAULT NULL::interval, timeout interval DEFAULT NULL::interval, tags text[] DEFAULT NULL::text[], unique_by text[] DEFAULT NULL::text[], unique_for interval DEFAULT NULL::interval, trace text DEFAULT NULL::text, deadline interval DEFAULT NULL::interval, start_within interval DEFAULT NULL::interval, lease interval DEFAULT NULL::interval, progress_within interval DEFAULT NULL::interval, grace interval DEFAULT NULL::interval, max_lost integer DEFAULT NULL::integer, max_attempts integer DEFAULT NULL::integer, delivery text DEFAULT NULL::text, limit_key text DEFAULT NULL::text, limit_running integer DEFAULT NULL::integer, limit_count integer DEFAULT NULL::integer, limit_per interval DEFAULT NULL::interval, limit_burst integer DEFAULT NULL::integer, limit_ordered boolean DEFAULT NULL::boolean)
  RETURNS uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path=sexton, pg_temp SET lock_timeout=2s SET TimeZone=UTC
  BODY md5 df2c4fcfb6059dec296333e9521ee11f;

FUNCTION sexton.submit_and_show(jobs jsonb, notify boolean DEFAULT true, at timestamp with time zone DEFAULT NULL::timestamp with time zone)
  RETURNS TABLE(id uuid, created boolean, version integer, task text, tenant text, queue text, lane smallint, name text, payload jsonb, policy jsonb, timeout_s real, at_most_once boolean, idempotency_key text, tags text[], submitted_at timestamp with time zone, submitted_by text, trace text, due_at timestamp with time zone) LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET enable_seqscan=off SET enable_bitmapscan=off SET jit=off SET plan_cache_mode=force_generic_plan
  BODY md5 c23448debde5ea8707c4df86d7741547;

FUNCTION sexton.submit_each(jobs jsonb, notify boolean DEFAULT true, at timestamp with time zone DEFAULT NULL::timestamp with time zone)
  RETURNS TABLE(id uuid, created boolean, waits_for text) LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp
  BODY md5 2b8b4cb9faf3a87dc551ed451ee24f8f;

FUNCTION sexton.submit_held(at_most integer, at timestamp with time zone DEFAULT NULL::timestamp with time zone, OUT submitted integer, OUT refused integer)
  RETURNS record LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp
  BODY md5 556759a8756085021b7f3fe64400e6b6;

FUNCTION sexton.submit_jobs(jobs jsonb, notify boolean DEFAULT true, at timestamp with time zone DEFAULT NULL::timestamp with time zone)
  RETURNS TABLE(id uuid, created boolean) LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET enable_seqscan=off SET jit=off SET plan_cache_mode=force_generic_plan SET lock_timeout=2s
  BODY md5 8fa2eef635d4a365995ef16e422657dd;

FUNCTION sexton.submit_schedule(task text, payload jsonb DEFAULT '{}'::jsonb, name text DEFAULT NULL::text, cron text DEFAULT NULL::text, rrule text DEFAULT NULL::text, every interval DEFAULT NULL::interval, timezone text DEFAULT NULL::text, jitter interval DEFAULT NULL::interval, start_at timestamp with time zone DEFAULT NULL::timestamp with time zone, end_at timestamp with time zone DEFAULT NULL::timestamp with time zone, max_fires integer DEFAULT NULL::integer, exclude text[] DEFAULT NULL::text[], overlap text DEFAULT NULL::text, catch_up text DEFAULT NULL::text, catch_up_window interval DEFAULT NULL::interval, queue text DEFAULT NULL::text, priority text DEFAULT NULL::text, tenant text DEFAULT NULL::text, timeout interval DEFAULT NULL::interval, tags text[] DEFAULT NULL::text[], trace text DEFAULT NULL::text, deadline interval DEFAULT NULL::interval, start_within interval DEFAULT NULL::interval, lease interval DEFAULT NULL::interval, progress_within interval DEFAULT NULL::interval, grace interval DEFAULT NULL::interval, max_lost integer DEFAULT NULL::integer, max_attempts integer DEFAULT NULL::integer, delivery text DEFAULT NULL::text, limit_key text DEFAULT NULL::text, limit_running integer DEFAULT NULL::integer, limit_count integer DEFAULT NULL::integer, limit_per interval DEFAULT NULL::interval, limit_burst integer DEFAULT NULL::integer, limit_ordered boolean DEFAULT NULL::boolean, on_resume text DEFAULT NULL::text, pause_after integer DEFAULT NULL::integer, dst_gap text DEFAULT NULL::text, dst_overlap text DEFAULT NULL::text, dialect text DEFAULT NULL::text, anchor_at timestamp with time zone DEFAULT NULL::timestamp with time zone)
  RETURNS uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path=sexton, pg_temp SET lock_timeout=2s SET TimeZone=UTC
  BODY md5 d7d4e5eea06089b1f42d899acaee1142;

FUNCTION sexton.submit_schedules(schedules jsonb, at timestamp with time zone DEFAULT NULL::timestamp with time zone)
  RETURNS TABLE(id uuid, created boolean, changed boolean) LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET enable_seqscan=off SET jit=off SET lock_timeout=2s
  BODY md5 b251d340da6eb8b498cbe83d158ee4d9;

FUNCTION sexton.take_slots(keys text[], maxes integer[], run_ids uuid[])
  RETURNS integer[] LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp
  BODY md5 9106f6af12b711d184e6e9d80139640b;

FUNCTION sexton.take_tokens(keys text[], moment timestamp with time zone, waits boolean)
  RETURNS boolean[] LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp
  BODY md5 7a76da8707a60b507d4e0430320bd366;

FUNCTION sexton.tell_subscribers(ids uuid[], names text[])
  RETURNS void LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET TimeZone=UTC SET enable_seqscan=off SET enable_bitmapscan=off SET jit=off SET plan_cache_mode=force_generic_plan
  BODY md5 5e1a38f7986130b17a61776ddaf2fe65;

FUNCTION sexton.tend_queues(at timestamp with time zone DEFAULT NULL::timestamp with time zone, OUT queues text[], OUT aged integer, OUT next_s double precision)
  RETURNS record LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET enable_seqscan=off SET enable_bitmapscan=off SET enable_sort=off SET jit=off SET plan_cache_mode=force_generic_plan
  BODY md5 ea05bf8e8d3c8ee0f52d92247447d0a0;

FUNCTION sexton.tokens(bucket_at timestamp with time zone, rate double precision, burst integer, moment timestamp with time zone)
  RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE
  BODY md5 7cddd172fa9aa6b3da816e686561662c;

FUNCTION sexton.unplan(job_ids uuid[], moment timestamp with time zone, states text[] DEFAULT '{waiting,ready,parked,blocked}'::text[], told text DEFAULT 'skipped'::text)
  RETURNS TABLE(job_id uuid, cursor_at timestamp with time zone, removed_count integer, begun_count integer) LANGUAGE plpgsql VOLATILE SET search_path=sexton, pg_temp SET enable_seqscan=off SET jit=off SET plan_cache_mode=force_generic_plan
  BODY md5 e3f51fe0490532c57e7d92fde5ae7c31;

FUNCTION sexton.uuid7(micros bigint)
  RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE
  BODY md5 dc18eb3259a5f88fc54879d0fff2c403;

FUNCTION sexton.uuid7(micros bigint, bits bigint)
  RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
  BODY md5 6787d45cc70351e32ce7cef197071044;

FUNCTION sexton.uuid7_floor(at timestamp with time zone)
  RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
  BODY md5 351901d8bc433e21f841ca4a998ec7f1;

-- Rights of others than the owner.
GRANT EXECUTE ON FUNCTION sexton.uuid7_floor TO PUBLIC;
