-- phase: expand
-- transactional: yes
-- locks: none, the tables are new
-- undo: no

-- Keys: with them, a second submission finds the first.

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
-- Janitor: which keys have expired?
CREATE INDEX idempotency_keys_expiring ON sexton.idempotency_keys (expires_at);

-- Uniqueness by content: the job that represents all equal ones.
CREATE TABLE sexton.unique_keys (
  tenant            text NOT NULL,
  key               bytea NOT NULL,                 -- sha256 of the parts that must be equal
  job_id            uuid NOT NULL,
  holds_until       timestamptz,                    -- null: as long as that job is pending
  PRIMARY KEY (tenant, key)
);
-- Which unique key does this job hold?
CREATE INDEX unique_keys_by_job ON sexton.unique_keys (job_id);
