"""Faults that we choose, on real processes over a real PostgreSQL, and a checker that reads what became of every job:
`python -m chaos --minutes 10 --seed 1`."""
