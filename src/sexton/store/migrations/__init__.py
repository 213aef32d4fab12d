"""Brings a database's schema up to date, shows the plan for that, and keeps services off a schema that they do not know.

`steps` and `functions` are what this release ships, `ledger` is what a database has, `planning` compares both, `units` cuts the
plan into transactions, `applying` does the work: `migration_lock` (one migrator at a time), `patience` (short locks,
retries), `indexes` and `backfills` (online). README.md in this folder says how to change the schema.
"""

from .applying import PACE, migrate, outstanding, require_current, script, summary
from .describing import as_text, describe
from .migration_lock import Pace
from .reports import Progressed, Report, Tell

__all__ = [
    "PACE",
    "Pace",
    "Progressed",
    "Report",
    "Tell",
    "as_text",
    "describe",
    "migrate",
    "outstanding",
    "require_current",
    "script",
    "summary",
]
