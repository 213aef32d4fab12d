"""How an explanation writes times, reasons and the origin of a run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from sexton.domain.schedule.zone import names, zone
from sexton.store.views.evidence import Evidence, Past


def because(reason: str | None) -> str:
    return f": {reason.rstrip('.')}" if reason else ""


def at_time(seen: Evidence, at: datetime) -> str:
    """In the time zone of its schedule, and in UTC."""
    utc = f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
    name = _zone_name(seen.job.schedule_json)
    if name is None:
        return utc
    return f"{at.astimezone(zone(name)):%Y-%m-%d %H:%M:%S %Z} ({utc})"


def _zone_name(schedule_json: str | None) -> str | None:
    if schedule_json is None:
        return None
    fields = msgspec.json.decode(schedule_json)
    name = fields.get("timezone") if isinstance(fields, dict) else None
    return name if name != "UTC" and name in names() else None


def in_span(seen: Evidence, at: datetime) -> str:
    left = at - seen.now
    return "" if left <= timedelta(0) else f", in {span(left.total_seconds())}"


def span(span_s: float) -> str:
    seconds = int(span_s)
    days, hours, minutes = seconds // 86_400, seconds % 86_400 // 3600, seconds % 3600 // 60
    parts = [f"{days} d"] * (days > 0) + [f"{hours} h"] * (hours > 0) + [f"{minutes} min"] * (minutes > 0 and days == 0)
    return " ".join(parts) or f"{seconds} s"


def how_it_came(seen: Evidence, run_id: UUID, origin: str) -> str:
    """The origin of a run of a recurring job, if it is not the schedule."""
    how = {"now": "run by hand", "backfill": "a backfill", "replay": "a replay"}.get(origin)
    if seen.plan is None or how is None:
        return ""
    return f" ({how} with another payload)" if run_id in seen.own_payloads else f" ({how})"


def error_of(past: Past) -> dict[str, Any]:
    error = past.error
    return {} if error is None else {"error": {"type": error.type, "message": error.message}}


def said_by(past: Past | None) -> str | None:
    if past is None:
        return None
    return past.reason or (f"{past.error.type}: {past.error.message}" if past.error else past.status)
