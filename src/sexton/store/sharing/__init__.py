"""Rows that share the fleet: queues, tenants, limits by key, runs parked by a limit."""
