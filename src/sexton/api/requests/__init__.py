"""The parts of a request: bodies, parameters, cursors, and their form for the store."""
