"""Rows of work: jobs, schedules, runs, dead letters, and the rows that belong to them."""
