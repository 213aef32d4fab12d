"""The caller of an operation. Every operation takes one. Today every caller may do everything."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """`actor` is stored where people read who made a change: `submitted_by`, `paused_by`, the audit log."""

    actor: str
    tenants: frozenset[str] | None = None  # the tenants that the caller may see and change; None: all of them
    request_id: str | None = None


SCHEDULER = Caller("sexton")  # for what schedulers and workers do by themselves
