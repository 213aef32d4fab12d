"""`sexton dev`: everything in one process, for development."""
