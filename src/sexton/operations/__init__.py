"""Lock, decide, write: operations that change work, in one transaction each. API, SDK, scheduler and worker all use them, so
that a rule exists once. SQL and columns stay in `store`. Rules without I/O stay in `domain`."""
