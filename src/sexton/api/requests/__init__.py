"""What a request holds: bodies, parameters, cursors, and what they become for the store."""
