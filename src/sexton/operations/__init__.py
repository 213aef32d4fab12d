"""Lock, decide, write: what changes work, in one transaction each. API, SDK, scheduler and worker all come through here, so
that a rule exists once. SQL and columns stay in `store`; rules without I/O stay in `domain`."""
