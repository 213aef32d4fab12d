-- Decides which of the runs that a claim has picked and locked may start under their limits, and with which slots.
-- Promises: no more runs start than the limit of a key, the rate of a key or `running_max` of a tenant allows
-- (rule "slots, not counts"). A run that the limit of its key keeps back is parked. A run that its tenant keeps back stays ready, and the claim
-- passes over the tenant until it has room. A suspect that is kept back stays quarantined. `admitted` null means that all runs may start.
-- `picked_keys` and `held` are what pick_runs saw: the keys of the limits, and the slots that the first in line of ordered keys
-- already hold. `waits`: see take_tokens.
-- Called by: claim_runs, claim_suspects. Locks: rows of `slots` (take_slots) and `limits` (take_tokens); the runs are locked by the caller.
CREATE OR REPLACE FUNCTION sexton.admit_runs(
  ids uuid[], picked_keys text[], held int[], has_limited_tenant boolean, waits boolean, moment timestamptz, OUT admitted boolean[], OUT slots int[], OUT tenant_slots int[], OUT parked int)
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  keys text[];
  maxes int[];
  tenant_keys text[];
  tenant_maxes int[];
  rated text[];
  granted boolean[];
  refused int[];
BEGIN
  SELECT array_agg(a.key), array_agg(a.max), array_agg(a.rated) INTO keys, maxes, rated FROM (
    SELECT CASE WHEN l.running IS NOT NULL AND p.slot IS NULL THEN l.key END AS key, l.running AS max,
      CASE WHEN l.count IS NOT NULL THEN l.key END AS rated
    FROM unnest(picked_keys, held) WITH ORDINALITY AS p(key, slot, ord)
    LEFT JOIN LATERAL (SELECT o.key, o.running, o.count FROM limits o WHERE o.key = p.key LIMIT 1) l ON true
    ORDER BY p.ord) a;
  IF has_limited_tenant THEN
    SELECT array_agg(a.key), array_agg(a.max) INTO tenant_keys, tenant_maxes FROM (
      SELECT CASE WHEN t.running_max IS NOT NULL THEN '@tenant:' || t.name END AS key, t.running_max AS max
      FROM unnest(ids) WITH ORDINALITY AS p(id, ord)
      CROSS JOIN LATERAL (SELECT o.tenant FROM runs o WHERE o.id = p.id LIMIT 1) r
      LEFT JOIN LATERAL (SELECT o.name, o.running_max FROM tenants o WHERE o.name = r.tenant LIMIT 1) t ON true
      ORDER BY p.ord) a;
  END IF;

  IF array_remove(tenant_keys, NULL) <> '{}' THEN
    tenant_slots := sexton.take_slots(tenant_keys, tenant_maxes, ids);
    SELECT array_agg(CASE WHEN tenant_keys[n] IS NULL OR tenant_slots[n] IS NOT NULL THEN keys[n] END ORDER BY n),
      array_agg(CASE WHEN tenant_keys[n] IS NULL OR tenant_slots[n] IS NOT NULL THEN rated[n] END ORDER BY n)
    INTO keys, rated FROM generate_subscripts(ids, 1) AS n;
  END IF;
  IF array_remove(keys, NULL) <> '{}' THEN
    slots := sexton.take_slots(keys, maxes, ids);
    SELECT array_agg(CASE WHEN keys[n] IS NULL OR slots[n] IS NOT NULL THEN rated[n] END ORDER BY n)
    INTO rated FROM generate_subscripts(ids, 1) AS n;
  END IF;
  IF cardinality(array_remove(slots, NULL)) = cardinality(ids) AND tenant_slots IS NULL AND array_remove(rated, NULL) = '{}' THEN
    RETURN;  -- all of them: no decision is needed
  END IF;
  IF array_remove(rated, NULL) <> '{}' THEN
    granted := sexton.take_tokens(rated, moment, waits);
  END IF;

  SELECT array_agg((tenant_keys[n] IS NULL OR tenant_slots[n] IS NOT NULL) AND (keys[n] IS NULL OR slots[n] IS NOT NULL)
                   AND (rated[n] IS NULL OR granted[n]) ORDER BY n)
  INTO admitted FROM generate_subscripts(ids, 1) AS n;
  SELECT array_agg(n) INTO refused FROM generate_subscripts(ids, 1) AS n WHERE NOT admitted[n];
  IF refused IS NOT NULL THEN
    PERFORM sexton.give_back(array_agg(keys[n]) || array_agg(tenant_keys[n]), array_agg(slots[n]) || array_agg(tenant_slots[n]),
                             array_agg(ids[n]) || array_agg(ids[n])) FROM unnest(refused) AS n;
    UPDATE runs r SET state = 'parked'
    WHERE r.id = ANY (ARRAY(SELECT ids[n] FROM unnest(refused) AS n WHERE tenant_keys[n] IS NULL OR tenant_slots[n] IS NOT NULL))
      AND r.state <> 'quarantined';
    GET DIAGNOSTICS parked = ROW_COUNT;
  END IF;
  SELECT array_agg(coalesce(held[n], slots[n]) ORDER BY n) INTO slots FROM generate_subscripts(ids, 1) AS n;
END
$$;
