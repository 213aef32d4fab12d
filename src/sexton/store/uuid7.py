"""The time in a UUIDv7: from an instant to the bound of a scan by time, and back; `sexton.uuid7_floor` in Python."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def floor(at: datetime) -> UUID:
    """The smallest id of an instant, to the millisecond."""
    milliseconds = max((at - _EPOCH) // timedelta(milliseconds=1), 0)
    return UUID(int=(milliseconds << 80) | (7 << 76) | (2 << 62))


def instant(row_id: UUID) -> datetime:
    """When an id was made, to the microsecond: the twelve bits after the version are the fraction of the millisecond."""
    milliseconds, fraction = row_id.int >> 80, (row_id.int >> 64) & 0xFFF
    return _EPOCH + timedelta(milliseconds=milliseconds, microseconds=-(-fraction * 1000 // 4096))
