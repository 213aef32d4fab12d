"""What an id contains: its creation time (UUIDv7; `sexton.uuid7_floor` in Python), and whether a job is recurring."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

RECURRING = UUID(int=1 << 127)  # ids of recurring jobs start here: a UUIDv7 with this bit set
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR_MS = 3_600_000


def floor(at: datetime) -> UUID:
    """The smallest id of an instant, to the millisecond."""
    milliseconds = max((at - _EPOCH) // timedelta(milliseconds=1), 0)
    return UUID(int=(milliseconds << 80) | (7 << 76) | (2 << 62))


def hour_before(row_id: UUID) -> UUID:
    """The start of a search for rows made after this one. It prunes older partitions, even if a failover set the clock back."""
    return UUID(int=max(row_id.int - (_HOUR_MS << 80), 0))


def is_recurring(job_id: UUID) -> bool:
    return bool(job_id.int >> 127)


def instant(row_id: UUID) -> datetime:
    """The creation time of an id, to the microsecond: the twelve bits after the version are a fraction of a millisecond."""
    milliseconds, fraction = row_id.int >> 80, (row_id.int >> 64) & 0xFFF
    return _EPOCH + timedelta(milliseconds=milliseconds, microseconds=-(-fraction * 1000 // 4096))
