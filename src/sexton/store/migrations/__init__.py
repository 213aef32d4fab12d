"""Brings a database's schema up to date, says what that will do, and keeps services off a schema they do not know.

`steps` and `functions` are what this release ships, `ledger` is what a database has, `planning` compares both, `applying` does
the work. README.md in this folder says how to change the schema.
"""

from .applying import migrate, require_current, script, summary

__all__ = ["migrate", "require_current", "script", "summary"]
