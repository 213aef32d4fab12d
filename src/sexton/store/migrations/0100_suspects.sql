-- phase: expand
-- transactional: yes
-- locks: runs and workers ACCESS EXCLUSIVE, instant
-- undo: no, runs may be quarantined by then

-- Suspects: runs whose worker was lost while it executed them (rule "suspects apart", docs/adr/027).
-- `company`: null: no suspicion. 0: its last worker was lost; it is executed like any other run. n: it was lost again; only a worker in
-- quarantine executes it, together with at most n - 1 other suspects.
ALTER TABLE sexton.runs ADD COLUMN company smallint;
-- Not validated: all rows comply with the narrower constraint that it replaces.
ALTER TABLE sexton.runs DROP CONSTRAINT state_is_known;
ALTER TABLE sexton.runs ADD CONSTRAINT state_is_known
  CHECK (state IN ('waiting', 'ready', 'running', 'paused', 'blocked', 'parked', 'quarantined')) NOT VALID;

-- `quarantine`: it executes only suspects. `parent_id`: the worker that started it. `held_at_loss`: how many runs it held when it was
-- declared lost. `lost_with_parent`: its parent was silent too. `lost_reason`: what its parent saw.
ALTER TABLE sexton.workers ADD COLUMN quarantine boolean NOT NULL DEFAULT false;
ALTER TABLE sexton.workers ADD COLUMN parent_id uuid;
ALTER TABLE sexton.workers ADD COLUMN held_at_loss int;
ALTER TABLE sexton.workers ADD COLUMN lost_with_parent boolean NOT NULL DEFAULT false;
ALTER TABLE sexton.workers ADD COLUMN lost_reason text;
