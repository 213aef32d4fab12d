-- phase: expand
-- transactional: yes
-- locks: none
-- undo: yes

-- What an app's code declared last, by schedule: a sync leaves an edit by hand alone until the declaration changes.
CREATE TABLE sexton.declarations (
  job_id uuid PRIMARY KEY,
  name text, -- as declared; a person may have renamed the schedule
  digest text NOT NULL
);
