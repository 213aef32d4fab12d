"""`sexton jobs preview`, `sexton jobs why`: shows what will happen, and why a job has not run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from zoneinfo import ZoneInfo

import typer

from sexton.cli.api_access import AsJson, Url, with_client
from sexton.cli.exit_codes import NotUnderstood
from sexton.cli.printing import print_as_json, print_json, print_table, say

if TYPE_CHECKING:
    from sexton.client.remote.async_client import AsyncClient
    from sexton.wire import Preview, Why

Id = Annotated[str, typer.Argument(metavar="ID", help="The job's id.")]
AROUND = 3  # fires that are shown before and after a clock change
_PAGE = 1_000
_LOOK_BACK = tuple(timedelta(minutes=minutes) for minutes in (10, 180, 2 * 1440, 40 * 1440, 800 * 1440))


class Change(NamedTuple):
    """A clock change of a zone."""

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def words(self) -> str:
        minutes = round((self.after - self.before).total_seconds() / 60)
        return f"clocks go {'forward' if minutes > 0 else 'back'} {abs(minutes)} min"


def why(job_id: Id, url: Url = None, as_json: AsJson = False) -> None:
    """Explain why a job has or has not run.

    Example: sexton jobs why 0199a1b2-0000-7000-8000-000000000000
    """
    told: Why = with_client(url, lambda client: client.why(job_id))
    if as_json:
        print_json(told)
        return
    typer.echo(told.answer)
    typer.echo()
    print_table(("check", "", "why"), ((link.check, "ok" if link.ok else "no", link.detail) for link in told.chain), none="")


def preview(
    job_id: Id,
    days: Annotated[float, typer.Option(min=0.01, max=3660, help="How many days ahead.")] = 30,
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="At most this many.")] = 50,
    dst: Annotated[bool, typer.Option("--dst", help="Only the fires around clock changes (DST).")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show when a recurring job fires, in its time zone and in UTC.

    Example: sexton jobs preview f199a1b2-0000-7000-8000-000000000000 --days 400 --dst
    """
    import msgspec

    from sexton.clock import host_now
    from sexton.domain.schedule.zone import zone

    now = host_now()
    until = now + timedelta(days=days)

    async def found(client: AsyncClient) -> tuple[Preview, list[datetime], list[Change]]:
        first = await client.preview(job_id, count=1)
        turns = list(changes(zone(first.timezone), now, until))
        if dst:
            return first, [at for turn in turns for at in await _around(client, job_id, turn)], turns
        return first, await _walked(client, job_id, until, count), turns

    told, fires, turns = with_client(url, found)
    if print_as_json(msgspec.structs.replace(told, fires=fires), as_json=as_json):
        return
    typer.echo(told.description)
    where = zone(told.timezone)
    if dst and not turns:
        say(f"the clocks of {told.timezone} do not change within {days:g} days")
        return
    print_fires(fires, where, turns, none=f"it does not fire within {days:g} days")
    if not dst and len(fires) == count:
        say(f"these are the first {count:,}; get more with -n")


def print_fires(fires: Sequence[datetime], where: ZoneInfo, turns: Sequence[Change] = (), *, none: str) -> None:
    """Each in its time zone and in UTC; the first after a clock change says so."""
    rows = []
    for before, at in zip([None, *fires], fires, strict=False):
        turned = [turn for turn in turns if before is not None and before < turn.at <= at]
        note = f"{turned[-1].words} at {_local(turned[-1].at, where)}" if turned else None
        rows.append((_local(at, where), at, note))
    named = where.key != "UTC"
    columns = (where.key, "in UTC", "clocks") if named else (where.key,)
    print_table(columns, (row if named else row[:1] for row in rows), none=none)


def changes(where: ZoneInfo, since: datetime, until: datetime) -> Iterator[Change]:
    """Day by day, then to the second: no zone changes twice in a day."""
    at = since.replace(microsecond=0)
    while at < until:
        following = min(at + timedelta(days=1), until)
        before, after = _offset(where, at), _offset(where, following)
        if before != after:
            low, high = at, following
            while high - low > timedelta(seconds=1):
                middle = (low + (high - low) / 2).replace(microsecond=0)
                if middle <= low:
                    break
                low, high = (middle, high) if _offset(where, middle) == before else (low, middle)
            yield Change(high, before, after)
        at = following


async def _around(client: AsyncClient, job_id: str, turn: Change) -> list[datetime]:
    """The last fires before a clock change, and the first after it."""
    earlier: list[datetime] = []
    for span in _LOOK_BACK:
        seen = (await client.preview(job_id, after=turn.at - span, count=_PAGE)).fires
        earlier = [at for at in seen if at < turn.at]
        if len(earlier) >= AROUND:
            break
    later = (await client.preview(job_id, after=turn.at - timedelta(microseconds=1), count=AROUND)).fires
    return [*earlier[-AROUND:], *later]


async def _walked(client: AsyncClient, job_id: str, until: datetime, count: int) -> list[datetime]:
    found: list[datetime] = []
    while len(found) < count:
        wanted = min(count - len(found), _PAGE)
        page = list((await client.preview(job_id, after=found[-1] if found else None, count=wanted)).fires)
        near = [at for at in page if at <= until]
        found += near
        if len(near) < wanted:
            break
    return found


def _offset(where: ZoneInfo, at: datetime) -> timedelta:
    return at.astimezone(where).utcoffset() or timedelta(0)


def _local(at: datetime, where: ZoneInfo) -> str:
    return f"{at.astimezone(where):%a %Y-%m-%d %H:%M:%S %Z}"


def rule_of(cron: str | None, rrule: str | None, every: str | None, **others: Any) -> dict[str, Any]:
    """The given schedule fields; empty without a rule."""
    rules = {name: value for name, value in (("cron", cron), ("rrule", rrule), ("every", every)) if value is not None}
    given = {name: value for name, value in others.items() if value is not None}
    if len(rules) > 1:
        raise NotUnderstood("give one of --cron, --rrule and --every")
    if given and not rules:
        first = next(iter(given)).replace("_", "-")
        raise NotUnderstood(f"--{first} is for recurring jobs; give --cron, --rrule or --every")
    return {**rules, **given}
