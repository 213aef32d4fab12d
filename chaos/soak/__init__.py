"""Hours of steady work, and what grows meanwhile: `python -m chaos.soak --hours 1`."""
