"""`sexton cron explain`: explains a rule, without a database."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sexton.cli.api_access import AsJson
from sexton.cli.inputs import instant
from sexton.cli.printing import print_as_json
from sexton.errors import InvalidSubmission

from .explain import changes, print_fires

_RRULE = ("FREQ=", "RRULE", "DTSTART", "RDATE", "EXDATE", "TZID=")


class WithoutACommand(TyperGroup):
    """`sexton cron "0 9 * * *"` is `sexton cron explain "0 9 * * *"`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = not args or args[0] in (*self.commands, *ctx.help_option_names)
        return super().parse_args(ctx, args if named else ["explain", *args])


app = typer.Typer(cls=WithoutACommand, add_completion=False, no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def cron() -> None:
    """Explain a cron expression. Without a command: explain.

    Example: sexton cron "0 9 * * MON-FRI"
    """


@app.command()
def explain(
    rule: Annotated[str, typer.Argument(help='A cron expression or an RRULE: "0 9 * * MON-FRI", "FREQ=WEEKLY;BYDAY=MO".')],
    timezone: Annotated[
        str | None, typer.Option("--timezone", "--tz", help="The time zone: America/New_York. UTC by default.")
    ] = None,
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=1000, help="How many fires to print.")] = 10,
    after: Annotated[str | None, typer.Option(help="From this instant on: 2026-03-01T09:00:00Z. Now by default.")] = None,
    dialect: Annotated[
        str | None,
        typer.Option(help="cron; quartz: weekdays count from Sunday = 1; strict: refuse what other programs read differently."),
    ] = None,
    name: Annotated[str, typer.Option(help="The name of the schedule, which decides the value of H.")] = "",
    as_json: AsJson = False,
) -> None:
    """Explain a rule in words, and print when it fires next, in its time zone and in UTC.

    Example: sexton cron explain "0 9 * * MON-FRI" --timezone America/New_York
    """
    from sexton.clock import host_now
    from sexton.domain.fault import Invalid
    from sexton.domain.schedule import describe, dialects, fires, schedule
    from sexton.domain.schedule.zone import zone
    from sexton.wire import Preview

    now, seed = instant(after, "--after") or host_now(), f"default/{name}"
    kind = "rrule" if rule.lstrip().upper().startswith(_RRULE) else "cron"
    try:
        made = schedule(now=now, seed=seed, timezone=timezone, dialect=dialect, **{kind: rule})  # type: ignore[arg-type]
    except Invalid as fault:
        option = {"timezone": "--timezone", "dialect": "--dialect"}.get(fault.field, repr(rule))
        raise InvalidSubmission(option, fault.message) from None
    found = list(islice(fires(made, after=now, seed=seed), count))
    words, doubts = describe(made, seed), dialects.warnings(made, after=now, seed=seed)
    if print_as_json(Preview(description=words, timezone=made.timezone, fires=found, warnings=doubts), as_json=as_json):
        return
    typer.echo(words)
    where = zone(made.timezone)
    print_fires(found, where, list(changes(where, now, found[-1])), none="it does not fire")
