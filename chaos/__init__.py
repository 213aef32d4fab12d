"""Injects chosen faults into real processes on a real PostgreSQL, then checks what happened to every job: `python -m chaos
--minutes 10 --seed 1`."""
