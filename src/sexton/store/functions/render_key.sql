-- The limit key that a job names, with the values of its payload in place of {payload.path}.
-- Promises: 1 to 200 printable characters, the first is not '@'; otherwise SQLSTATE 22023 with a message that begins with `limit.key`.
-- Called by: limit_key_of. Locks: none.
CREATE OR REPLACE FUNCTION sexton.render_key(template text, payload jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  rendered text := '';
  part record;
  value text;
BEGIN
  FOR part IN SELECT m[1] AS plain, m[2] AS place FROM regexp_matches(template, '((?:(?!\{payload\.)[\s\S])*)(?:\{payload\.([^{}]+)\})?', 'g') AS m LOOP
    value := payload #>> string_to_array(part.place, '.');
    IF part.place IS NOT NULL AND value IS NULL THEN
      RAISE EXCEPTION 'limit.key: the payload has no "%"', part.place
        USING ERRCODE = '22023', HINT = format('Give it in the payload, or name a key without {payload.%s}.', part.place);
    END IF;
    rendered := rendered || part.plain || coalesce(value, '');
  END LOOP;
  IF char_length(rendered) NOT BETWEEN 1 AND 200 OR rendered LIKE '@%' OR rendered ~ '[[:cntrl:]]' THEN
    RAISE EXCEPTION 'limit.key: "%" is not a valid key: use 1 to 200 printable characters, not starting with @', left(rendered, 100) USING ERRCODE = '22023';
  END IF;
  RETURN rendered;
END
$$;
