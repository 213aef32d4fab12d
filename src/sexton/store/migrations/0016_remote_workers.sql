-- Workers that speak HTTP, and runs whose target goes on by itself and calls back (docs/how-to/remote-workers.md, long-http-jobs.md).

ALTER TABLE sexton.workers ADD COLUMN lease_s real;  -- of a remote worker: silence after which it is dead; null: one of ours, the cluster's

-- What leases are signed with before they go over HTTP (sexton.domain.signed_lease). In no answer and in no log.
CREATE TABLE sexton.lease_key (
  one_row           boolean PRIMARY KEY DEFAULT true CHECK (one_row),
  key               bytea NOT NULL CHECK (octet_length(key) = 32)
);
INSERT INTO sexton.lease_key (key)
SELECT sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));

-- Who holds the runs that were handed over: no worker, so none that could fall silent.
CREATE FUNCTION sexton.callbacks() RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT 'ca11bac5-0000-4000-8000-000000000000'::uuid
$$;

-- When a run that was handed over is ended by a sweeper: at its timeout or its deadline, or after a day if it has neither; earlier if
-- it must report progress and did not, or 10 s after its cancel was requested, for nobody but its target could stop it.
CREATE FUNCTION sexton.callback_ends_at(
  claimed_at timestamptz, timeout_s real, deadline_at timestamptz, cancel_requested_at timestamptz, job uuid, moment timestamptz)
RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT least(
    coalesce(least(claimed_at + make_interval(secs => timeout_s), deadline_at), claimed_at + interval '1 day'),
    moment + make_interval(secs => (SELECT (j.policy->>'progress_within_s')::float8 FROM sexton.jobs j WHERE j.id = job LIMIT 1)),
    cancel_requested_at + interval '10 seconds')
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA sexton FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sexton.uuid7_floor(timestamptz) TO PUBLIC;
