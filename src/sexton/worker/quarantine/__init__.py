"""Suspects execute in a child process of a worker: the parent's side and the child's (rule "suspects apart")."""
