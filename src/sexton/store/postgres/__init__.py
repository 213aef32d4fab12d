"""PostgreSQL connections: keepalive, LISTEN, advisory locks, connections of the caller."""
