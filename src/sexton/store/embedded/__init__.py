"""The PostgreSQL that the `embedded` extra brings along."""
