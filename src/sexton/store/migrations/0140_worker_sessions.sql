-- phase: expand
-- transactional: yes
-- locks: workers ACCESS EXCLUSIVE, instant
-- undo: yes

ALTER TABLE sexton.workers
  ADD COLUMN session text,      -- of its heartbeats: sexton.own_session; null: not announced (remote, behind a pooler or proxy, of a release without)
  ADD COLUMN lease_left_s real; -- it was declared lost because its sessions ended, so long before its lease was over (s)
