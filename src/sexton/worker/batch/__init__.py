"""Batch tasks in a worker: one intake for each, the calls that it forms, and an execution for each run of a call."""
