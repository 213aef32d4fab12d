-- A scheduler that dies takes its session with it: the others need not wait until its beat is old.

ALTER TABLE sexton.nodes ADD COLUMN session int;  -- the server process that holds its locks; null behind a pooler
