-- Triggers on runs and limits that record every claim for the claim monitor, for tests only.
CREATE SEQUENCE public.moments;
CREATE TABLE public.told (n bigint PRIMARY KEY DEFAULT nextval('public.moments'), what text NOT NULL, told jsonb NOT NULL);
-- Of every live run: since when it stands where it stands in line, when it was let through, and whether it stepped out of line.
CREATE TABLE public.lives (run_id uuid PRIMARY KEY, born_n bigint NOT NULL, let_n bigint, stepped_out boolean NOT NULL DEFAULT false);
CREATE TABLE public.gone (run_id uuid PRIMARY KEY, job_id uuid NOT NULL, token bigint NOT NULL, origin text NOT NULL,
                          fire_at timestamptz NOT NULL, due_at timestamptz NOT NULL, job_version int NOT NULL);

CREATE FUNCTION public.watch_runs() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  known sexton.limits;
  owner sexton.tenants;
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO public.lives (run_id, born_n) VALUES (NEW.id, nextval('public.moments'));
  ELSIF TG_OP = 'DELETE' THEN
    DELETE FROM public.lives WHERE run_id = OLD.id;
    INSERT INTO public.gone VALUES (OLD.id, OLD.job_id, OLD.token, OLD.origin, OLD.fire_at, OLD.due_at, OLD.job_version);
    IF OLD.slot IS NOT NULL OR OLD.tenant_slot IS NOT NULL THEN
      INSERT INTO public.told (what, told) VALUES ('freed', '{}');
    END IF;
    RETURN NULL;
  ELSE
    IF OLD.state = 'paused' OR (NEW.token = 0 AND (NEW.due_at, NEW.limit_key) IS DISTINCT FROM (OLD.due_at, OLD.limit_key)) THEN
      UPDATE public.lives SET born_n = nextval('public.moments'), let_n = NULL WHERE run_id = NEW.id;
    END IF;
    IF NEW.state = 'paused' THEN
      UPDATE public.lives SET stepped_out = true WHERE run_id = NEW.id;
    END IF;
    IF OLD.state = 'parked' AND NEW.state = 'ready' THEN
      UPDATE public.lives SET let_n = nextval('public.moments') WHERE run_id = NEW.id;
      INSERT INTO public.told (what, told) VALUES ('let through', '{}');
    END IF;
    IF OLD.state = 'running' AND NEW.state <> 'running' AND (OLD.slot IS DISTINCT FROM NEW.slot OR OLD.tenant_slot IS NOT NULL) THEN
      INSERT INTO public.told (what, told) VALUES ('freed', '{}');
    END IF;
  END IF;
  IF NEW.state NOT IN ('parked', 'running') OR (TG_OP = 'UPDATE' AND OLD.state = NEW.state) THEN
    RETURN NULL;
  END IF;
  SELECT * INTO known FROM sexton.limits WHERE key = NEW.limit_key;
  IF NEW.state = 'parked' THEN
    INSERT INTO public.told (what, told) VALUES ('parked', jsonb_build_object('ordered', known.ordered, 'held', (
      SELECT count(*) FROM sexton.slots s WHERE s.key = NEW.limit_key AND s.run_id IS NOT NULL)));
    RETURN NULL;
  END IF;
  SELECT * INTO owner FROM sexton.tenants WHERE name = NEW.tenant;
  INSERT INTO public.told (what, told) VALUES ('claimed', jsonb_strip_nulls(jsonb_build_object(
    'run_id', NEW.id, 'worker_id', NEW.worker_id, 'task', NEW.task, 'at', NEW.claimed_at, 'key', known.key,
    'running', known.running, 'has_slot', NEW.slot IS NOT NULL,
    'count', known.count, 'per_s', known.per_s, 'burst', known.burst, 'ordered', known.ordered,
    'held', CASE WHEN known.key IS NOT NULL THEN (
      SELECT count(*) FROM sexton.runs r WHERE r.state = 'running' AND r.limit_key = NEW.limit_key) END,
    -- Of an ordered key: one that is due before it and stood in line when it was let through; one that has begun and is not over.
    'before', CASE WHEN known.ordered AND NEW.token = 1 THEN (
      SELECT r.id FROM sexton.runs r JOIN public.lives b ON b.run_id = r.id
      WHERE r.limit_key = NEW.limit_key AND r.id <> NEW.id AND r.token = 0 AND r.state IN ('waiting', 'blocked', 'parked', 'ready')
        AND (r.due_at, r.id) < (NEW.due_at, NEW.id) AND b.born_n < (SELECT let_n FROM public.lives WHERE run_id = NEW.id) LIMIT 1) END,
    'begun', CASE WHEN known.ordered AND NEW.token = 1 THEN (
      SELECT r.id FROM sexton.runs r JOIN public.lives b ON b.run_id = r.id
      WHERE r.limit_key = NEW.limit_key AND r.id <> NEW.id AND r.token > 0 AND NOT b.stepped_out LIMIT 1) END,
    'running_max', owner.running_max, 'has_tenant_slot', NEW.tenant_slot IS NOT NULL,
    'tenant_held', CASE WHEN owner.running_max IS NOT NULL THEN (
      SELECT count(*) FROM sexton.runs r WHERE r.state = 'running' AND r.tenant = NEW.tenant AND r.tenant_slot IS NOT NULL) END,
    'paused', coalesce((SELECT 'queue ' || q.name FROM sexton.queues q WHERE q.name = NEW.queue AND q.paused_at IS NOT NULL),
                       CASE WHEN owner.paused_at IS NOT NULL THEN 'tenant ' || owner.name END))));
  RETURN NULL;
END
$$;
CREATE TRIGGER watch_runs AFTER INSERT OR UPDATE OR DELETE ON sexton.runs FOR EACH ROW EXECUTE FUNCTION public.watch_runs();

CREATE FUNCTION public.watch_limits() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  held int := (SELECT count(*) FROM sexton.slots s WHERE s.key = coalesce(NEW.key, OLD.key) AND s.run_id IS NOT NULL);
BEGIN
  IF TG_OP = 'DELETE' THEN  -- what it kept in order is in order no more
    UPDATE public.lives SET stepped_out = true WHERE run_id IN (SELECT id FROM sexton.runs WHERE limit_key = OLD.key);
  END IF;
  INSERT INTO public.told (what, told) VALUES ('limit', jsonb_strip_nulls(jsonb_build_object(
    'key', coalesce(NEW.key, OLD.key), 'at', NEW.updated_at, 'running', NEW.running, 'count', NEW.count, 'per_s', NEW.per_s, 'burst', NEW.burst,
    'was', OLD.running, 'held', held)));
  RETURN NULL;
END
$$;
CREATE TRIGGER watch_limits AFTER INSERT OR DELETE OR UPDATE OF running, count, per_s, burst, ordered ON sexton.limits
FOR EACH ROW EXECUTE FUNCTION public.watch_limits();
