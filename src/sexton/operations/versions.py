"""Compares the version of a job that a caller has read with the present one."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from sexton.errors import VersionMismatch


class AtVersion(NamedTuple):
    """A job, at the version that the caller has read: `VersionMismatch` at another one. Null: at any version."""

    job_id: UUID
    version: int | None = None

    def require(self, present: int, advice: str) -> None:
        """Under the lock of the job."""
        if self.version is not None and self.version != present:
            raise VersionMismatch(f"job {self.job_id} is at version {present}, not {self.version}; {advice}")
