"""Kills the primary of a replicated PostgreSQL, managed by Patroni, under load. No acknowledged job may be lost."""
