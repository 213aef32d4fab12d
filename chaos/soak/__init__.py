"""Hours of steady load, to find what grows: `python -m chaos.soak --hours 1`."""
