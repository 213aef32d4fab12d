"""On whose behalf an operation runs. Every operation takes one; today each of them may do everything."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """`actor` is kept where a person reads who did it: `submitted_by`, `paused_by`, the audit log."""

    actor: str
    tenants: frozenset[str] | None = None  # the tenants it may see and change; None: all of them
    request_id: str | None = None


SCHEDULER = Caller("sexton")  # what schedulers and workers do by themselves
