-- Submits deliveries that could not be submitted when their run ended. The janitor calls it.
-- Promises: a delivery that is rejected again goes behind the others. It takes five seconds at most; the next call goes on with the rest.
-- Called by: store/work/subscriptions.sql. Locks: rows of `held_deliveries`, with SKIP LOCKED; those of submit_jobs, for which each waits
-- 50 ms at most (rule "never wait inside a batch").
CREATE OR REPLACE FUNCTION sexton.submit_held(at_most int, at timestamptz DEFAULT NULL, OUT submitted int, OUT refused int)
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  moment timestamptz := coalesce(at, clock_timestamp());
  held record;
  usual constant text := coalesce(current_setting('sexton.submit_lock_timeout', true), '');
  until timestamptz := clock_timestamp() + interval '5 seconds';
BEGIN
  submitted := 0;
  refused := 0;
  FOR held IN SELECT h.id, h.delivery FROM held_deliveries h ORDER BY h.held_at, h.id LIMIT at_most FOR UPDATE SKIP LOCKED LOOP
    EXIT WHEN clock_timestamp() > until;
    BEGIN
      PERFORM set_config('sexton.submit_lock_timeout', '50ms', true);
      PERFORM sexton.submit_jobs(jsonb_build_array(held.delivery), true, moment);
      PERFORM set_config('sexton.submit_lock_timeout', usual, true);
      DELETE FROM held_deliveries h WHERE h.id = held.id;
      submitted := submitted + 1;
    EXCEPTION WHEN OTHERS THEN
      UPDATE held_deliveries h SET held_at = moment, said = left(SQLERRM, 500) WHERE h.id = held.id;
      refused := refused + 1;
    END;
  END LOOP;
END
$$;
