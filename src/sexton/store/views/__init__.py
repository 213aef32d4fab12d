"""Reads that change nothing: search, counts, recent transitions, evidence."""
