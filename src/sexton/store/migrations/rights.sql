-- Rights, applied again whenever a function was created: PUBLIC may call nothing but the pure sexton.uuid7_floor. An application role
-- gets USAGE on the schema and EXECUTE on sexton.submit or sexton.submit_schedule (docs/how-to/transactions.md).
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA sexton FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sexton.uuid7_floor(timestamptz) TO PUBLIC;
