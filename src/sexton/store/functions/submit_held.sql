-- Submits deliveries that could not be submitted when their run ended. A delivery that is rejected again goes behind the others.
-- Called by: store/work/subscriptions.sql, for the janitor. Locks: rows of `held_deliveries`; those of submit_jobs.
CREATE OR REPLACE FUNCTION sexton.submit_held(at_most int, at timestamptz DEFAULT NULL, OUT submitted int, OUT refused int)
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  moment timestamptz := coalesce(at, clock_timestamp());
  held record;
BEGIN
  submitted := 0;
  refused := 0;
  FOR held IN SELECT h.id, h.delivery FROM held_deliveries h ORDER BY h.held_at, h.id LIMIT at_most FOR UPDATE SKIP LOCKED LOOP
    BEGIN
      PERFORM sexton.submit_jobs(jsonb_build_array(held.delivery), true, moment);
      DELETE FROM held_deliveries h WHERE h.id = held.id;
      submitted := submitted + 1;
    EXCEPTION WHEN OTHERS THEN
      UPDATE held_deliveries h SET held_at = moment, said = left(SQLERRM, 500) WHERE h.id = held.id;
      refused := refused + 1;
    END;
  END LOOP;
END
$$;
