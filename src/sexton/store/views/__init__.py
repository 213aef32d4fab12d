"""Reading without changing: search, counts, recent transitions, evidence."""
