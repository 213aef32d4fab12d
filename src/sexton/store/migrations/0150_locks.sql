-- phase: expand
-- transactional: yes
-- locks: none, the table is new
-- undo: yes

-- Rows that services lock where one session at a time may decide (rule "no lock that others may take"). A row lock needs the right to
-- update the table; any role that may connect can take an advisory lock.
CREATE TABLE sexton.locks (
  what text NOT NULL,     -- promote: the overlap of the runs of a partition; declare: a sync of declared schedules
  n smallint NOT NULL,    -- promote: the partition
  PRIMARY KEY (what, n)
);
INSERT INTO sexton.locks (what, n) SELECT 'promote', p FROM generate_series(0, 63) AS p UNION ALL SELECT 'declare', 0;
