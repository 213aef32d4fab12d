"""Compares the version of a job that a caller has read with the present one."""

from __future__ import annotations

from uuid import UUID

from sexton.errors import VersionMismatch


def require_version(job_id: UUID, present: int, expected: int | None, advice: str) -> None:
    """Under the lock of the job. `expected` null: any version."""
    if expected is not None and expected != present:
        raise VersionMismatch(f"job {job_id} is at version {present}, not {expected}; {advice}")
