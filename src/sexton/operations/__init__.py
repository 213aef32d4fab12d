"""Lock, decide, write: what changes work, in one transaction each. Every caller (API, SDK, CLI, scheduler, worker) comes through
here, so that a rule exists once. SQL and columns stay in `store`; rules without I/O stay in `domain`."""
