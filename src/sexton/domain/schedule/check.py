"""Makes a schedule from user input. A rule that cannot work is rejected at submission: `Invalid` names the field and the fix.
`schedule(now=…, **msgspec.to_builtins(stored))` gives back a stored schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, get_args

import msgspec

from sexton.domain.duration import Duration, seconds
from sexton.domain.fault import Invalid

from . import cron_text, dialects, exclusion, rrule_text
from .dialects import NamedDialect
from .fires import next_fire
from .rule import DstRule, Jitter, Schedule, Window
from .spacing import least_spacing_s
from .zone import Gap, Overlap, wall_of, zone

JITTER_LIMIT_S = 1_800.0  # a rollback searches no further for a run that started before its nominal time
EXCLUDE_LIMIT = 500
MAX_FIRES_LIMIT = 2**31 - 1


def schedule(
    *,
    now: datetime,
    cron: str | None = None,
    rrule: str | None = None,
    every: Duration | None = None,
    timezone: str | None = None,
    dst: DstRule | Mapping[str, Any] | None = None,
    jitter: Jitter | Mapping[str, Any] | Duration | None = None,
    start_at: datetime | str | None = None,
    end_at: datetime | str | None = None,
    max_fires: int | None = None,
    exclude: Sequence[str | Window | Mapping[str, Any]] = (),
    dialect: str | None = None,
    anchor_at: datetime | str | None = None,
    seed: str = "",
    min_spacing_s: float = 1.0,
    is_known: bool = False,
) -> Schedule:
    """The checked schedule. `now` is the instant of submission; `Invalid` names the field and the fix. `is_known`: the text of
    the rule was accepted before, and keeps the meaning that it had; what it left open is written into it, and so is the dialect
    of a line that would be refused now."""
    now = _instant("now", now)
    if sum(given is not None for given in (cron, rrule, every)) != 1:
        raise Invalid("cron", "give exactly one of cron, rrule and every")
    if dialect is not None and dialect not in get_args(NamedDialect):
        raise Invalid("dialect", f"{dialect!r} is unknown; use cron, quartz or strict")
    if cron is not None:
        named, cron = cron_text.split_zone(cron)
        timezone = _one_zone("cron", named, timezone)
        if not is_known:
            dialects.refuse(cron, dialect)
        elif dialect is None and dialects.is_refused(cron):
            dialect = "cron"
    elif rrule is not None:
        timezone = _one_zone("rrule", rrule_text.split(rrule).zone, timezone)
        rrule = _completed(rrule, timezone, anchor_at) if is_known else rrule_text.completed(rrule)
    start = _optional_instant("start_at", start_at)
    made = Schedule(
        cron=cron,
        rrule=rrule,
        every_s=_every(every),
        timezone=zone("UTC" if timezone is None else timezone).key,
        dst=_dst(dst),
        jitter=_jitter(jitter),
        start_at=start,
        end_at=_optional_instant("end_at", end_at),
        max_fires=_max_fires(max_fires),
        exclude=_exclusions(exclude),
        dialect=None if dialect is None else "quartz" if dialect == "quartz" else "cron",
        anchor_at=_anchor(cron, rrule, _optional_instant("anchor_at", anchor_at) or start, now),
    )
    _check(made, now, seed, min_spacing_s)
    return made


def _check(made: Schedule, now: datetime, seed: str, min_spacing_s: float) -> None:
    if made.cron is not None:
        cron_text.parse(made.cron, dialect=made.dialect, seed=seed)
    if made.end_at is not None and made.start_at is not None and made.end_at < made.start_at:
        raise Invalid("end_at", "is before start_at")
    if made.end_at is not None and made.end_at <= now:
        raise Invalid("end_at", "is in the past")
    spacing_s = least_spacing_s(made, seed)
    if spacing_s < min_spacing_s:
        raise Invalid(made.kind, f"fires every {spacing_s:g} s; the minimum is {min_spacing_s:g} s between two fires")
    if next_fire(made, after=now, seed=seed) is None:
        raise Invalid(made.kind, f"never fires after {now:%Y-%m-%d %H:%M} UTC{_never(made)}; check the rule with a preview")


def _never(made: Schedule) -> str:
    limits = [
        name
        for name, given in (("end_at", made.end_at), ("exclude", made.exclude), ("COUNT or UNTIL", made.rrule))
        if given and (name != "COUNT or UNTIL" or "COUNT=" in str(given).upper() or "UNTIL=" in str(given).upper())
    ]
    return f" within {' and '.join(limits)}" if limits else ", because no date in the supported years matches"


def _one_zone(field: str, named: str | None, given: str | None) -> str | None:
    if named is not None:
        zone(named, field=field)
        if given is not None and given != named:
            raise Invalid("timezone", f"{given!r} contradicts {named!r} in {field}; give one of them")
    return given if named is None else named


def _anchor(cron: str | None, rrule: str | None, given: datetime | None, now: datetime) -> datetime | None:
    if cron is not None:
        return None
    if rrule is not None:
        if rrule_text.split(rrule).start is not None:
            return None
        return rrule_text.default_start(now) if given is None else given
    return now if given is None else given


def _completed(rrule: str, timezone: str | None, anchor_at: datetime | str | None) -> str:
    """The older reading: minute and second are those of the start."""
    if anchor_at is None:
        return rrule
    start = wall_of(zone("UTC" if timezone is None else timezone), _instant("anchor_at", anchor_at))
    return rrule_text.completed(rrule, minute=start.minute, second=start.second)


def _every(given: Duration | None) -> float | None:
    if given is None:
        return None
    if (every_s := seconds(given, field="every")) < 0.001:
        raise Invalid("every", f'{given!r} is not an interval; write a duration such as "15m"')
    return every_s


def _dst(given: object) -> DstRule | None:
    if given is None:
        return None
    if isinstance(given, DstRule):
        given = {"gap": given.gap, "overlap": given.overlap}
    if not isinstance(given, Mapping) or not set(given) <= {"gap", "overlap"}:
        raise Invalid("dst", 'write {"gap": "after", "overlap": "first"}')
    gap, overlap = given.get("gap", "after"), given.get("overlap", "first")
    if gap not in get_args(Gap):
        raise Invalid("dst.gap", f"{gap!r} is unknown; use after or skip")
    if overlap not in get_args(Overlap):
        raise Invalid("dst.overlap", f"{overlap!r} is unknown; use first, last or both")
    made = DstRule(gap, overlap)
    return None if made == DstRule() else made


def _jitter(given: Jitter | Mapping[str, Any] | Duration | None) -> Jitter | None:
    match given:
        case None:
            return None
        case Jitter():
            return _checked_jitter(given.max_s, both=given.both)
        case Mapping():
            both = given.get("both", False)
            if not {"max"} <= set(given) <= {"max", "both"} or not isinstance(both, bool):
                raise Invalid("jitter", 'write "30s", or {"max": "30s", "both": true} for earlier and later')
            return _checked_jitter(given["max"], both=both)
        case _:
            return _checked_jitter(given, both=False)


def _checked_jitter(span: Duration, *, both: bool) -> Jitter | None:
    max_s = seconds(span, field="jitter")
    if max_s > JITTER_LIMIT_S:
        raise Invalid("jitter", "must be at most 30 minutes")
    return Jitter(max_s, both) if max_s else None


def _max_fires(given: int | None) -> int | None:
    if given is not None and (type(given) is not int or not 1 <= given <= MAX_FIRES_LIMIT):
        raise Invalid("max_fires", f"{given!r} must be a whole number from 1 to {MAX_FIRES_LIMIT:,}")
    return given


def _exclusions(given: object) -> tuple[str | Window, ...]:
    if isinstance(given, (str, Mapping)) or not isinstance(given, Sequence):
        raise Invalid("exclude", 'give a list, such as ["2026-12-25", "22:00-06:00"]')
    if len(given) > EXCLUDE_LIMIT:
        raise Invalid("exclude", f"{len(given)} entries, the limit is {EXCLUDE_LIMIT}")
    return tuple(_exclusion(f"exclude.{index}", entry) for index, entry in enumerate(given))


def _exclusion(field: str, entry: object) -> str | Window:
    if isinstance(entry, str):
        exclusion.read(entry, field=field)
        return entry
    if isinstance(entry, Mapping):
        if set(entry) != {"from", "to"}:
            raise Invalid(field, 'write {"from": "2026-12-24T00:00:00Z", "to": "2026-12-27T00:00:00Z"}')
        entry = Window(_instant(f"{field}.from", entry["from"]), _instant(f"{field}.to", entry["to"]))
    if not isinstance(entry, Window) or entry.from_at >= entry.to_at:
        raise Invalid(field, "from must be before to")
    return entry


def _optional_instant(field: str, given: datetime | str | None) -> datetime | None:
    return None if given is None else _instant(field, given)


def _instant(field: str, given: object) -> datetime:
    if isinstance(given, str):
        try:
            given = msgspec.convert(given, datetime)
        except msgspec.ValidationError:
            given = None
    if not isinstance(given, datetime) or given.tzinfo is None:
        raise Invalid(field, "give an instant with an offset, such as 2026-03-01T09:00:00Z")
    try:
        at = given.astimezone(UTC)
    except OverflowError:
        at = datetime.max.replace(tzinfo=UTC)
    if not 1970 <= at.year <= 2199:
        raise Invalid(field, f"the year {at.year} must be between 1970 and 2199")
    return at
