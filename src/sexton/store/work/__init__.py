"""Rows of work: jobs, schedules, runs, dead letters, and what belongs to them."""
