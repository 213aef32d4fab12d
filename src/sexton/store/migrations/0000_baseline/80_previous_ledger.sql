-- phase: expand
-- transactional: yes
-- locks: none, the tables are new
-- undo: no

-- The ledger of the releases up to commit 413f5aa, which knew 21 numbered migrations. The baseline is what those 21 left behind.
-- A database of that time has these rows; they stay untouched. A new database gets the same rows, so that both have one catalogue and
-- a service of 413f5aa runs on both: it starts only where it finds exactly its 21 migrations. Release 0.3.0 may drop this table.
-- Since then the ledger is sexton.schema_steps and sexton.schema_functions.
CREATE TABLE sexton.migrations (
  number            int PRIMARY KEY,
  name              text NOT NULL,
  checksum          text NOT NULL,
  applied_at        timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO sexton.migrations (number, name, checksum) VALUES
  (1, 'tables', 'e0d69f3b1f65567f93285afbea9f4a248d571a94aef34dddd6b3ea1389be5d93'),
  (2, 'partitions', '264db2bfdb73b779a806e542ec4690afc6d6915bf84e0a851fd613613e96a6ef'),
  (3, 'finish', '40eb7e9ffca8aa9b9c13ddd15e35bcc42487d493c8f799a496e24ff3d85b3671'),
  (4, 'submit', '096ac0b5df3a80d414a4d067d890ddab845d491d569cf52e7d669eaa7b24c839'),
  (5, 'lists_and_edits', '4f5f493c275259eac79ece767778a1c4873c123fd49aaefc5a4ea71776b59f6a'),
  (6, 'recurring', 'd2cab1a1177d559b8d1b91804dff2640bdc96d9f2db91ebc38252933b5c6176c'),
  (7, 'backfill', '1edb39735b0eeb188ca2a7c32d49b734449d88fc5306dfe56aa37317bd749197'),
  (8, 'tzdata', 'b89b571e064f13e337ef2dddff8660d39b7c94c4bbd43e3609a22a430c3f1afc'),
  (9, 'shares', '78f78b595c31c8cfd5efbc5b4349d33c8cb07ccd60a915ff282071bf200ca4d9'),
  (10, 'speed', 'a6e62ba132d6066c06baeaf3b97f356115da0786f8eb72a98de8d0de68816a3e'),
  (11, 'submit', 'cab270a85fca0a1cbd44fa23a414b05cc6775eab241c5e0c475b9795763f17e9'),
  (12, 'sessions', 'cd6d26d69d38be017265f4ba6eca612acef21f25be0f3d3932fbb95ebc5570f4'),
  (13, 'looks', '19587fb4192a99aa7bffcbeef31ce5af538ef123fed9eafd0f8d215504848723'),
  (14, 'going_back', '9804c04849011a040b9f6160c5b20a461398cf1e90dbf87cbe8bd690b32d737d'),
  (15, 'room', '1d26ef298b1edbaa66b740926b1a999733a4104ea992511d6f7f009eb058330a'),
  (16, 'remote_workers', 'b19bff53553a90a3819503f2233cde3918daa7e23249611f45b6426a204c6493'),
  (17, 'events', '226db2b59e755a94dcfa6de0aa9636b08a9cfa3af24b451de36195f01735454c'),
  (18, 'claim_by_number', '381dbbefd2068bb4082351208d5f6c7cac727471a65fff8fede58acfa86fe9e0'),
  (19, 'cheaper_limits', '678b5433e201e5da3598f7062d340e2f315acb25ae7b7f17d200ee0b571444d5'),
  (20, 'own_way', 'ae54425de8e7d1f85283fb2fa6418e380e870a9a9c4c941896a4397b13290b10'),
  (21, 'one_version', '840600bee67680890e3aedb7680e0a64f8dcf5353526a2746cbb36ce79ef55c8');
