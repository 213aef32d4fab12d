-- Reads submitted schedules.
-- Promises: what a document leaves out comes from the options of the task, then of the queue (its jitter also from the tenant), then from
-- the product's defaults. `ord` is the place in the array.
-- Called by: lock_named, submit_schedules, store/work/declared.sql, store/work/schedules.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.read_schedules(schedules jsonb) RETURNS SETOF sexton.schedule_document
LANGUAGE sql STABLE SET search_path = sexton, pg_temp AS $$
  SELECT d.ord::int, g.task, g.name, coalesce(g.tenant, 'default'),
    coalesce(g.queue, t.options->>'queue', 'default'),
    coalesce(g.lane, (t.options->>'lane')::smallint, 2::smallint),
    coalesce(d.doc->'payload', '{}'),
    nullif(coalesce(q.policy, '{}') || coalesce(t.options->'policy', '{}') || coalesce(g.policy, '{}')
      || CASE WHEN coalesce(d.doc->'limit', t.options->'limit') IS NULL THEN '{}'
           ELSE jsonb_build_object('limit', coalesce(d.doc->'limit', t.options->'limit')) END, '{}'),
    nullif(coalesce(g.timeout_s, (t.options->>'timeout_s')::real, q.timeout_s, 30), 0),
    coalesce(g.at_most_once, (t.options->>'at_most_once')::boolean, false),
    g.tags, coalesce(g.submitted_by, session_user), g.trace,
    CASE WHEN g.schedule ? 'jitter' OR coalesce(q.jitter_s, n.jitter_s, 0) = 0 THEN g.schedule
      ELSE g.schedule || jsonb_build_object('jitter', jsonb_build_object('max', coalesce(q.jitter_s, n.jitter_s))) END,
    g.recurrence, coalesce(g.on_name, 'update')
  FROM jsonb_array_elements(schedules) WITH ORDINALITY AS d(doc, ord)
  CROSS JOIN LATERAL jsonb_populate_record(NULL::sexton.schedule_document, d.doc) AS g
  LEFT JOIN tasks t ON t.name = g.task
  LEFT JOIN queues q ON q.name = coalesce(g.queue, t.options->>'queue', 'default')
  LEFT JOIN tenants n ON n.name = coalesce(g.tenant, 'default')
$$;
