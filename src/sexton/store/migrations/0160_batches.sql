-- phase: expand
-- transactional: yes
-- locks: runs and workers ACCESS EXCLUSIVE, instant
-- undo: yes

-- Its calls have failed: it is next executed in a call of at most so many runs (docs/adr/032).
ALTER TABLE sexton.runs ADD COLUMN batch_limit smallint;

ALTER TABLE sexton.workers
  ADD COLUMN batch_tasks text[],                             -- those of its tasks of which one call executes several runs
  ADD COLUMN batch_slots integer NOT NULL DEFAULT 0,         -- of its concurrency: runs, not calls
  ADD COLUMN batch_running_count integer NOT NULL DEFAULT 0; -- of its running_count
