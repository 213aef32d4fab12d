-- phase: expand
-- transactional: yes
-- locks: none
-- undo: yes

-- What an app's code declared last, by schedule: a sync leaves an edit by hand alone until the declaration changes.
CREATE TABLE sexton.declarations (
  job_id uuid PRIMARY KEY,
  digest text NOT NULL
);
