-- phase: expand
-- transactional: yes
-- locks: workers ACCESS EXCLUSIVE, instant
-- undo: yes

ALTER TABLE sexton.workers
  ADD COLUMN beat_within_s real,                               -- its lease, if it is not remote; null: of a release that did not write it
  ADD COLUMN process_tasks text[],                             -- those of its tasks that run in child processes
  ADD COLUMN process_slots integer NOT NULL DEFAULT 0,         -- of its concurrency
  ADD COLUMN process_running_count integer NOT NULL DEFAULT 0, -- of its running_count
  ADD COLUMN lacks text[];                                     -- settings and secrets that jobs needed and it does not have
