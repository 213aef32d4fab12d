"""Batch handlers: one call of a Python function for several runs of its task (docs/adr/032)."""
