-- phase: expand
-- transactional: no
-- kind: index
-- locks: no reader and no writer
-- undo: yes

-- Quarantine: which suspects of this queue wait, the least suspected first?
CREATE INDEX runs_quarantined ON sexton.runs (queue, company DESC, due_at, id) WHERE state = 'quarantined';
