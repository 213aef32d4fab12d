"""Measurements behind a decision in `docs/adr/`: each is a script that can be rerun, `python -m bench.studies.timers`."""
