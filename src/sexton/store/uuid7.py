"""The time in a UUIDv7: from an instant to the bound of a scan by time, and back; `sexton.uuid7_floor` in Python."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

RECURRING = 1 << 127  # set in the ids of recurring jobs, in no other id
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR = 3_600_000 << 80


def floor(at: datetime) -> UUID:
    """The smallest id of an instant, to the millisecond."""
    milliseconds = max((at - _EPOCH) // timedelta(milliseconds=1), 0)
    return UUID(int=(milliseconds << 80) | (7 << 76) | (2 << 62))


def instant(row_id: UUID) -> datetime:
    """When an id was made, to the microsecond: the twelve bits after the version are the fraction of the millisecond."""
    milliseconds, fraction = row_id.int >> 80, (row_id.int >> 64) & 0xFFF
    return _EPOCH + timedelta(milliseconds=milliseconds, microseconds=-(-fraction * 1000 // 4096))


def an_hour_before(row_id: UUID) -> UUID:
    """A bound of a scan for what came after an id: it leaves out the partitions before it, even if the clock was set back since
    (a failover)."""
    return UUID(int=max(row_id.int - _HOUR, 0))


def is_recurring(job_id: UUID) -> bool:
    return bool(job_id.int & RECURRING)
