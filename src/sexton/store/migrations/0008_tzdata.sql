-- The time zone data that schedules are planned with (rule 3, docs/schedules.md): only newer data replan.

-- One row per release that has planned here; the newest counts. Its zones are kept beside it, so that the next release can tell
-- which wall times have fired by this one.
CREATE TABLE sexton.tzdata (
  version           text COLLATE "C" PRIMARY KEY CHECK (version ~ '^[0-9]{4}[a-z]+$'),
  taken_at          timestamptz NOT NULL
);
CREATE TABLE sexton.zones (
  tzdata            text COLLATE "C" NOT NULL,
  name              text NOT NULL,
  rules             bytea NOT NULL,  -- as in RFC 8536
  PRIMARY KEY (tzdata, name)
);

-- The release its fires were last planned with; empty if that was before this was kept; null until its rule has been read: what somebody
-- wrote in plain SQL is checked, and put into its lasting form, by the first planning.
ALTER TABLE sexton.jobs ADD COLUMN tzdata text COLLATE "C" DEFAULT '';
ALTER TABLE sexton.jobs ALTER COLUMN tzdata DROP DEFAULT;

UPDATE sexton.jobs_recurring SET tzdata = NULL WHERE plan_cursor_at IS NULL OR plan_at <= clock_timestamp();

-- Whoever puts another rule in its place: it has not been read yet. A planner that writes down what it read names its release.
CREATE FUNCTION sexton.rule_changed() RETURNS trigger LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
BEGIN
  NEW.tzdata := NULL;
  RETURN NEW;
END
$$;
CREATE TRIGGER rule_changed BEFORE UPDATE OF schedule ON sexton.jobs_recurring FOR EACH ROW
  WHEN (OLD.schedule IS DISTINCT FROM NEW.schedule AND OLD.tzdata IS NOT DISTINCT FROM NEW.tzdata) EXECUTE FUNCTION sexton.rule_changed();
REVOKE ALL ON FUNCTION sexton.rule_changed() FROM PUBLIC;
