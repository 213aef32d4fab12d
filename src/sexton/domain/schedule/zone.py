"""Turns wall times into instants. A wall time may exist once, not at all (clocks go forward) or twice (clocks go back); the
schedule's DST rule decides what it means then. Zones come from the `tzdata` package and never from the machine, so that all
nodes of one version agree and `tzdata_version` is correct."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cached_property, lru_cache
from importlib import import_module
from importlib.resources import files
from io import BytesIO
from typing import Literal, NamedTuple, Protocol
from zoneinfo import ZoneInfo

from sexton.domain.fault import Invalid

Gap = Literal["after", "skip"]
Overlap = Literal["first", "last", "both"]
Walls = Callable[[datetime], Iterator[datetime]]

_NAME_LIMIT = 64
_NEVER = timedelta(0)


class Dst(NamedTuple):
    """`gap`: a wall time that does not exist fires at the first instant after the gap, or not at all. `overlap`: one that
    exists twice fires the first time, the last time, or both times."""

    gap: Gap = "after"
    overlap: Overlap = "first"


# For a rule that counts minutes or hours, as in Debian's cron: it fires at every instant whose wall time matches.
FOLLOWS_CLOCK = Dst("skip", "both")

# How this version reads rules (docs/schedules.md, "Upgrades"). It is the end of the release in use, so that a newer reading
# replaces the plans of an older one exactly as newer time zone data do. One letter; "" was the first reading.
READING = "b"


class Release(Protocol):
    """One release of the IANA database. A process uses one for its whole lifetime; tests pass their own."""

    @property
    def version(self) -> str: ...
    @property
    def names(self) -> frozenset[str]: ...
    def rules(self, name: str) -> bytes: ...
    def __hash__(self) -> int: ...


class PackagedRelease:
    """The release in the `tzdata` package, as this version reads rules."""

    @cached_property
    def version(self) -> str:
        return f"{import_module('tzdata').IANA_VERSION}{READING}"

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(files("tzdata").joinpath("zones").read_text("ascii").split())

    def rules(self, name: str) -> bytes:
        return files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


release: Release = PackagedRelease()


def tzdata_version() -> str:
    """What plans here: the release of the IANA database, such as `2026a`, and our reading of rules, such as `b`."""
    return release.version


def reading_of(version: str) -> str:
    """How the version that planned with this release read rules. A release of the IANA database ends with one letter."""
    return version[5:]


def tzdata_order(version: str) -> tuple[int, str]:
    """Sorts releases by age: 2026a < 2026b < 2027a."""
    year = version[:4]
    if not (year.isascii() and year.isdigit()):
        raise Invalid("tzdata", f"{version!r} is not a release of the IANA database, such as 2026a")
    return int(year), version[4:]


def names() -> frozenset[str]:
    """Every name of the IANA database, links included."""
    return release.names


def rules(name: str) -> bytes:
    """A zone of the release in use, in the format of RFC 8536. It is stored, and a later release is compared with it."""
    return _rules(release, name)


def zone_of_rules(name: str, rules: bytes) -> ZoneInfo:
    """A zone as another release defines it."""
    return ZoneInfo.from_file(BytesIO(rules), key=name)


def zone(name: object, *, field: str = "timezone") -> ZoneInfo:
    """The zone; `Invalid` suggests close names."""
    if not isinstance(name, str) or len(name) > _NAME_LIMIT or name not in names():
        raise Invalid(field, f"{_shown(name)} is not an IANA time zone; {_suggestion(name)}")
    return _loaded(release, name)


@lru_cache(maxsize=1024)
def _loaded(known: Release, name: str) -> ZoneInfo:
    return zone_of_rules(name, _rules(known, name))


@lru_cache(maxsize=1024)
def _rules(known: Release, name: str) -> bytes:
    return known.rules(name)


def _shown(name: object) -> str:
    text = repr(name)
    return text if len(text) <= _NAME_LIMIT else f"{text[:_NAME_LIMIT]}…"


def _suggestion(name: object) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= _NAME_LIMIT:
        return 'write a name such as "America/New_York" or "UTC"'
    by_key = {known.lower().replace("_", " "): known for known in sorted(names())}
    wanted = name.strip().lower().replace("_", " ")
    close = [key for key in by_key if key.rpartition("/")[2] == wanted]
    close += [key for key in get_close_matches(wanted, by_key, n=3, cutoff=0.7) if key not in close]
    if not close:
        return 'write a name such as "America/New_York" or "UTC"'
    return f"did you mean {' or '.join(by_key[key] for key in close[:3])}?"


def wall_of(where: ZoneInfo, instant: datetime) -> datetime:
    """The local wall time of an instant, without a zone."""
    return instant.astimezone(where).replace(tzinfo=None, fold=0)


def instants(where: ZoneInfo, wall: datetime, dst: Dst) -> tuple[datetime, ...]:
    """The instants at which this wall time fires: none, one or two, in order."""
    before, after = _offsets(where, wall)
    if before == after:
        return (_utc(wall, before),)
    if before < after:
        return () if dst.gap == "skip" else (_change(where, _utc(wall, after), _utc(wall, before)),)
    match dst.overlap:
        case "first":
            return (_utc(wall, before),)
        case "last":
            return (_utc(wall, after),)
        case "both":
            return _utc(wall, before), _utc(wall, after)


def resolve(
    walls: Walls,
    where: ZoneInfo,
    dst: Dst,
    after: datetime,
    *,
    start: datetime | None = None,
    start_wall: datetime | None = None,
) -> Iterator[datetime]:
    """The instants of increasing wall times, strictly after `after`, increasing and distinct: wall times that map to
    one instant (in a gap) are one fire. If the rule has a `start` in the second pass of an overlap, its wall times there fire
    in that pass, because the first is over. If it starts with a wall time, `start_wall`, earlier ones in the same gap do not
    fire, though the end of the gap is their instant too."""
    last = after
    returning: deque[datetime] = deque()  # the second pass through an overlap, until the first is over
    starts_again = start is not None and bool(start.astimezone(where).fold)
    for wall in walls(_first_wall(where, after)):
        if start_wall is not None and wall < start_wall and _is_in_gap(where, wall):
            continue
        found = instants(where, wall, dst)
        if starts_again and start is not None and found and found[-1] < start:
            found = instants(where, wall, dst._replace(overlap="last"))
        for instant, *again in (found,) if found else ():
            while returning and returning[0] < instant:
                if (due := returning.popleft()) > last:
                    yield (last := due)
            if instant > last:
                yield (last := instant)
            returning.extend(again)
    for due in returning:
        if due > last:
            yield (last := due)


def end_of_first_pass(where: ZoneInfo, instant: datetime) -> datetime | None:
    """The instant at which the clock goes back, if this one is in the first pass of a repeated hour."""
    wall = wall_of(where, instant)
    earlier, later = _offsets(where, wall)
    if earlier <= later or instant.astimezone(where).fold:
        return None
    return _change(where, instant, _utc(wall, later))


def _is_in_gap(where: ZoneInfo, wall: datetime) -> bool:
    before, after = _offsets(where, wall)
    return before < after


def _first_wall(where: ZoneInfo, after: datetime) -> datetime:
    """The earliest wall time that may have an instant after `after`. In the first pass of an overlap this is the start of the
    overlap, because all of its wall times come again."""
    change = end_of_first_pass(where, after)
    return wall_of(where, after if change is None else change)


def _offsets(where: ZoneInfo, wall: datetime) -> tuple[timedelta, timedelta]:
    """The offsets before and after a change, if the wall time is within one; otherwise the same offset twice."""
    local = wall.replace(tzinfo=where)
    return local.utcoffset() or _NEVER, local.replace(fold=1).utcoffset() or _NEVER


def _utc(wall: datetime, offset: timedelta) -> datetime:
    return (wall - offset).replace(tzinfo=UTC)


def _change(where: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """The instant in (before, after] at which the offset changes. Changes fall on whole seconds."""
    low, high = int(before.timestamp() // 1), int(-(-after.timestamp() // 1))
    known = datetime.fromtimestamp(low, where).utcoffset()
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, where).utcoffset() == known:
            low = middle
        else:
            high = middle
    return datetime.fromtimestamp(high, UTC)
