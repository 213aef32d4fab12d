"""Finds what blocks the event loop or keeps all of Python from running, and names the handler (rule "suspects apart")."""
