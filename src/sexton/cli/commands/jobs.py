"""`sexton jobs …`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sexton.cli.api_access import AsJson, Url, with_client
from sexton.cli.exit_codes import Exit, NotUnderstood, exit_code, report
from sexton.cli.inputs import instant, payload_of
from sexton.cli.job_options import given_options, options_of, takes_job_options
from sexton.cli.printing import as_json_text, print_as_json, print_fields, print_json, print_list, print_one, print_table, shown

from .backfill import backfill
from .explain import preview, rule_of, why

if TYPE_CHECKING:
    from sexton.client.remote.async_client import AsyncClient
    from sexton.wire import EditPreview, Execution, Job

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode=None, help="List, show, watch, edit and cancel jobs."
)

app.command()(why)
app.command()(backfill)
app.command()(preview)

Id = Annotated[str, typer.Argument(metavar="ID", help="The job's id.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID", help="One or more ids.")]
COLUMNS = ("id", "status", "handler", "tries", "submitted", "next", "name", "queue", "tenant")


@app.command("list")
def list_(
    kind: Annotated[str | None, typer.Option(help="once or recurring.")] = None,
    status: Annotated[str | None, typer.Option(help="pending, running, completed, failed, cancelled or paused.")] = None,
    handler: Annotated[str | None, typer.Option(help="Of this task.")] = None,
    queue: Annotated[str | None, typer.Option(help="In this queue.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Of this tenant.")] = None,
    name: Annotated[str | None, typer.Option(help="Of this name.")] = None,
    tag: Annotated[str | None, typer.Option(help="With this tag.")] = None,
    since: Annotated[str | None, typer.Option("--from", help="Submitted at or after this instant.")] = None,
    until: Annotated[str | None, typer.Option(help="Submitted before this instant.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 50,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first.

    Example: sexton jobs list --status failed --handler demo.fail
    """
    filters: Any = {
        "kind": kind,
        "status": status,
        "handler": handler,
        "queue": queue,
        "tenant": tenant,
        "name": name,
        "tag": tag,
        "submitted_from": instant(since, "--from"),
        "submitted_until": instant(until, "--until"),
    }

    async def found(client: AsyncClient) -> list[Job]:
        return [job async for job in client.jobs(limit=limit, **filters)]

    jobs = with_client(url, found)
    print_list(
        jobs,
        COLUMNS,
        (row(job) for job in jobs),
        none="no matching jobs" if any(filters.values()) else "no jobs",
        as_json=as_json,
    )


@app.command()
def show(job_id: Id, url: Url = None, as_json: AsJson = False) -> None:
    """Show one job, its status and the result of its last attempt.

    Example: sexton jobs show 0199a1b2-0000-7000-8000-000000000000
    """
    job = with_client(url, lambda client: client.job(job_id))
    print_one(job, [*fields(job), ("warning", "\n".join(job.warnings) or None)], as_json=as_json)


@app.command()
def executions(
    job_id: Id,
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 50,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List every attempt of a job.

    Example: sexton jobs executions 0199a1b2-0000-7000-8000-000000000000
    """

    async def found(client: AsyncClient) -> list[Execution]:
        return [execution async for execution in client.executions(job_id, limit=limit)]

    tries = with_client(url, found)
    columns = ("id", "status", "why", "attempt", "took", "started", "worker")
    rows = (_try_row(execution) for execution in tries)
    print_list(tries, columns, rows, none="no attempt has ended yet", as_json=as_json)


@app.command()
def cancel(job_ids: Ids, url: Url = None, as_json: AsJson = False) -> None:
    """Cancel jobs: waiting runs never start, running ones are asked to stop.

    Example: sexton jobs cancel 0199a1b2-0000-7000-8000-000000000000
    """

    async def cancelled(client: AsyncClient, job_id: str) -> tuple[Any, str]:
        answer = await client.cancel(job_id)
        return answer, "asked to stop" if answer.asked_count else "cancelled"

    _each(job_ids, cancelled, url, as_json)


@app.command()
def retry(job_ids: Ids, url: Url = None, as_json: AsJson = False) -> None:
    """Run failed jobs again, or start one that waits between two attempts now.

    Example: sexton jobs retry 0199a1b2-0000-7000-8000-000000000000
    """

    async def again(client: AsyncClient, job_id: str) -> tuple[Any, str]:
        return await client.retry(job_id), "runs again"

    _each(job_ids, again, url, as_json)


@app.command()
def run(
    job_ids: Annotated[
        list[str], typer.Argument(metavar="ID… [KEY=VALUE…]", help="One or more ids, and a payload for this run only.")
    ],
    payload: Annotated[
        str | None, typer.Option(help="The same as JSON; @FILE reads a file, - standard input. Recurring jobs only.")
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Run jobs now: a recurring one fires once outside its schedule, a waiting one is due now.

    Example: sexton jobs run 8199a1b2-0000-7000-8000-000000000000 region=eu
    """
    pairs = [one for one in job_ids if "=" in one]
    ids = [one for one in job_ids if "=" not in one]
    if not ids:
        raise NotUnderstood("give the id of the job to run")
    given = payload_of(payload, pairs) if pairs or payload is not None else None

    async def fired(client: AsyncClient, job_id: str) -> tuple[Any, str]:
        return await client.run(job_id, given), "is due now"

    _each(ids, fired, url, as_json)


@app.command()
def pause(
    job_ids: Ids,
    note: Annotated[str | None, typer.Option(help="The reason, shown with the paused job.")] = None,
    until: Annotated[str | None, typer.Option(help="A recurring job resumes by itself at this instant.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Pause jobs that have not started, and recurring ones.

    Example: sexton jobs pause 0199a1b2-0000-7000-8000-000000000000 --note "until the migration is over"
    """

    resume_at = instant(until, "--until")

    async def paused(client: AsyncClient, job_id: str) -> tuple[Any, str]:
        return await client.pause(job_id, note=note, resume_at=resume_at), "paused"

    _each(job_ids, paused, url, as_json)


@app.command()
def resume(
    job_ids: Ids,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what recurring jobs would fire.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Resume paused jobs.

    Example: sexton jobs resume 0199a1b2-0000-7000-8000-000000000000
    """

    async def resumed(client: AsyncClient, job_id: str) -> tuple[Any, str]:
        if dry_run:
            told = await client.preview_resume(job_id)
            return told, "would fire " + (", ".join(shown(at) for at in told.fires[:10]) or "no more")
        return await client.resume(job_id), "resumed"

    _each(job_ids, resumed, url, as_json)


@app.command()
@takes_job_options(edits=True)
def edit(
    job_id: Id,
    payload: Annotated[str | None, typer.Option(help="The new payload as JSON; @FILE reads a file, - standard input.")] = None,
    version: Annotated[int | None, typer.Option(help="Only if this is still its version.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print which fires of a recurring job are added and removed.")
    ] = False,
    url: Url = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Edit a job that has not started, or a recurring one from its next fire on.

    Example: sexton jobs edit 0199a1b2-0000-7000-8000-000000000000 --run-at 2026-03-01T09:00:00Z
    """
    changes = given_options(given)
    rule_of(changes.get("cron"), changes.get("rrule"), changes.get("every"))
    if payload is not None:
        changes["payload"] = payload_of(payload, [])
    if not changes:
        raise NotUnderstood("give at least one change, for example --delay 1h")
    if dry_run:
        _tell_edit(with_client(url, lambda client: client.preview_edit(job_id, **changes)), as_json)
        return
    job = with_client(url, lambda client: client.edit(job_id, version=version, **changes))
    if not print_as_json(job, as_json=as_json):
        print_fields(fields(job))


def _tell_edit(told: EditPreview, as_json: bool) -> None:
    if print_as_json(told, as_json=as_json):
        return
    typer.echo(told.description)
    rows = sorted([(at, "added") for at in told.added] + [(at, "removed") for at in told.removed])
    print_table(("fire", "change"), rows, none=f"no fire is added or removed before {told.until:%Y-%m-%d %H:%M}Z")


@app.command()
def watch(
    job_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="One job, until it ends; without an id: the newest jobs.")
    ] = None,
    within: Annotated[str | None, typer.Option(help="Give up after this long (exit code 8).")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Watch one job until it ends, or the newest jobs until Ctrl-C.

    Ends with exit code 7 if the job did not complete.

    Example: sexton jobs watch 0199a1b2-0000-7000-8000-000000000000
    """
    from . import watch as watching

    if job_id is None:
        with_client(url, lambda client: watching.newest(client, within, as_json=as_json))
    else:
        with_client(url, lambda client: watching.one(client, job_id, within, as_json=as_json))


def row(job: Job) -> tuple[Any, ...]:
    from sexton.wire import words_of

    due = job.next_fire_at if job.status in ("pending", "paused") else None
    return job.id, job.status, words_of(job.handler), job.attempt, job.submitted_at, due, job.name, job.queue, job.tenant


def fields(job: Job) -> list[tuple[str, Any]]:
    last = job.last_execution
    facts: list[tuple[str, Any]] = [
        ("id", job.id),
        ("status", job.status),
        ("schedule", job.schedule_words),
        *options_of(job),
        ("version", job.version),
        ("submitted", job.submitted_at),
        ("by", job.submitted_by),
        ("next", job.next_fire_at),
        ("tries", job.attempt),
        ("ended", job.ended_at),
        ("over", job.over_reason),
        ("paused", job.paused_at),
        ("paused by", job.paused_by),
        ("note", job.note),
        ("resumes", job.resume_at),
    ]
    if last is not None:
        facts += [
            ("last try", last.status),
            ("started", last.started_at),
            ("took", took(last)),
            ("why", last.reason),
            ("error", None if last.error is None else f"{last.error.type}: {last.error.message}"),
            ("traceback", None if last.error is None else last.error.traceback),
            ("progress", None if last.progress is None else as_json_text(last.progress)),
            ("result", None if last.result is None else as_json_text(last.result)),
            ("output", last.output),
        ]
    return facts


def took(execution: Execution) -> str | None:
    if execution.started_at is None or execution.ended_at is None:
        return None
    return f"{(execution.ended_at - execution.started_at).total_seconds():.3f} s"


def _try_row(execution: Execution) -> tuple[Any, ...]:
    error = execution.error
    why = execution.reason or (None if error is None else f"{error.type}: {error.message}")
    beside = "backfill" if execution.origin == "backfill" else None if execution.payload is None else "another payload"
    why = " · ".join(filter(None, [beside, why])) or None
    return execution.id, execution.status, why, execution.attempt, took(execution), execution.started_at, execution.worker_id


def _each(
    job_ids: list[str],
    action: Callable[[AsyncClient, str], Awaitable[tuple[Any, str]]],
    url: str | None,
    as_json: bool,
) -> None:
    """Applies it to each. A failure is printed and does not stop the others. The exit code is that of the first failure."""
    from sexton.errors import ApiUnavailable, DatabaseUnavailable, SextonError

    async def work(client: AsyncClient) -> Exit:
        answers, code = [], Exit.DONE
        for job_id in job_ids:
            try:
                answer, done = await action(client, job_id)
            except (ApiUnavailable, DatabaseUnavailable):
                raise
            except SextonError as error:
                report(error, as_json=as_json)
                code = code or exit_code(error)
            else:
                answers.append(answer)
                if not as_json:
                    typer.echo(f"{job_id} {done}")
        if as_json:
            print_json(answers if len(job_ids) > 1 else answers[0]) if answers else None
        return code

    raise typer.Exit(with_client(url, work))
