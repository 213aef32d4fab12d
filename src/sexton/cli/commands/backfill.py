"""`sexton jobs backfill`: shows the past fires that would run, asks, and runs them; or stops those that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sexton.cli.api_access import AsJson, Url, with_client
from sexton.cli.exit_codes import Exit, NotUnderstood
from sexton.cli.inputs import instant, sure
from sexton.cli.printing import print_json, say, shown
from sexton.domain.wording import counted

if TYPE_CHECKING:
    from sexton.client.remote.async_client import AsyncClient
    from sexton.wire import Backfill

SHOWN = 10  # fires that a preview names


def backfill(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The recurring job's id.")],
    since: Annotated[str | None, typer.Option("--from", help="The first instant of the range.")] = None,
    until: Annotated[str | None, typer.Option(help="Where it ends, not included; default: now.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also fires that have run or were buried.")] = False,
    spacing: Annotated[str, typer.Option(help="How long after the previous one each is due.")] = "1s",
    parallel: Annotated[bool, typer.Option("--parallel", help="As many at once as the job itself allows.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would run.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop a backfill: waiting runs never start.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Run the past fires of a recurring job that are missing, one after the other.

    Example: sexton jobs backfill 8199a1b2-0000-7000-8000-000000000000 --from 2026-03-01T00:00:00Z --until 2026-03-02T00:00:00Z
    """
    if stop:
        _stop(job_id, url, as_json)
        return
    from_at, until_at = instant(since, "--from"), instant(until, "--until")
    if from_at is None:
        raise NotUnderstood("give the start of the range, for example --from 2026-03-01T00:00:00Z; or --stop")
    asked: dict[str, Any] = {
        "fires": "all" if everything else "missing",
        "spacing": spacing,
        "overlap": "parallel" if parallel else "queue",
    }

    async def work(client: AsyncClient) -> Exit:
        told = await client.backfill(job_id, from_at, until_at, dry_run=True, **asked)
        if dry_run or not told.fires:
            _tell(told, as_json)
            return Exit.DONE
        if not yes:
            say("\n".join(_words(told)))
        sure(f"Run {_fires(len(told.fires))} of {job_id}?", yes=yes)
        _tell(await client.backfill(job_id, from_at, told.until, version=told.version, **asked), as_json)
        return Exit.DONE

    raise typer.Exit(with_client(url, work))


def _stop(job_id: str, url: str | None, as_json: bool) -> None:
    stopped = with_client(url, lambda client: client.stop_backfill(job_id))
    if as_json:
        print_json(stopped)
    else:
        typer.echo(f"{_fires(stopped.ended_count)} will not run; {stopped.running_count:,} running ones continue")


def _tell(told: Backfill, as_json: bool) -> None:
    if as_json:
        print_json(told)
    else:
        typer.echo("\n".join(_words(told)))


def _words(told: Backfill) -> list[str]:
    count = len(told.fires)
    verb = "would run" if told.dry_run else "will run"
    last = "" if told.last_due_at is None else f", the last due {shown(told.last_due_at)}"
    lines = [f"{_fires(count)} {verb}{last}", *(f"  {shown(at)}" for at in told.fires[:SHOWN])]
    if count > SHOWN:
        lines.append(f"  and {count - SHOWN:,} more, to {shown(told.fires[-1])}")
    left_out = {
        "have run": told.already_ran_count,
        "wait or run": told.live_count,
        "are in the dead letters (sexton dead replay)": told.dead_letter_count,
        "are left to the schedule itself": told.undecided_count,
    }
    return lines + [f"left out: {many:,} that {why}" for why, many in left_out.items() if many]


def _fires(count: int) -> str:
    return counted(count, "past fire")
