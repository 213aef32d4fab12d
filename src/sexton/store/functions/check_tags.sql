-- Rejects more than 20 tags, and a tag that is null, empty or longer than 200 characters.
-- Promises: SQLSTATE 22023, and a message that begins with `tags`.
-- Called by: submit, submit_schedule. Locks: none.
CREATE OR REPLACE FUNCTION sexton.check_tags(tags text[]) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF cardinality(tags) > 20 THEN
    RAISE EXCEPTION 'tags: % tags, the limit is 20', cardinality(tags) USING ERRCODE = '22023';
  END IF;
  PERFORM sexton.check_text('tags', coalesce(t.tag, '')) FROM unnest(tags) AS t (tag);
END
$$;
