"""`sexton submit`: one job, or a file of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sexton.cli.api_access import AsJson, Url, with_client
from sexton.cli.exits import Exit, NotUnderstood
from sexton.cli.inputs import called_by, file_bytes, instant, payload_of, read
from sexton.cli.printing import as_json_text, print_json, progress, say, shown, warn
from sexton.errors import ApiUnavailable, DatabaseUnavailable, InvalidSubmission, JobFailed, SextonError

from .explain import rule_of

if TYPE_CHECKING:
    from sexton.client.remote.async_client import AsyncClient
    from sexton.domain.schedule.document import OnName
    from sexton.domain.targets import Target
    from sexton.wire import BatchItem, JobRequest


def submit(
    handler: Annotated[
        str | None, typer.Argument(help="The task to run, such as demo.echo; a URL to POST to; or any handler, as JSON.")
    ] = None,
    pairs: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="The payload; values are JSON, else text.")
    ] = None,
    payload: Annotated[str | None, typer.Option(help="The payload as JSON; @FILE reads a file, - standard input.")] = None,
    file: Annotated[
        str | None, typer.Option(help="Many jobs: a file of JSON lines or a JSON array; - for standard input.")
    ] = None,
    partial: Annotated[bool, typer.Option("--partial", help="With --file: submit the good ones, name the bad ones.")] = False,
    delay: Annotated[str | None, typer.Option(help="Run it this much later: 90s, 15m, 24h.")] = None,
    run_at: Annotated[str | None, typer.Option(help="Run it at this instant: 2026-03-01T09:00:00Z.")] = None,
    cron: Annotated[str | None, typer.Option(help='Run it again and again: "0 9 * * MON-FRI".')] = None,
    every: Annotated[str | None, typer.Option(help="Run it again and again, so much apart: 15m.")] = None,
    rrule: Annotated[str | None, typer.Option(help='Run it again and again, as RFC 5545 says: "FREQ=WEEKLY;BYDAY=MO".')] = None,
    tz: Annotated[str | None, typer.Option(help="The time zone of --cron and --rrule: America/New_York.")] = None,
    jitter: Annotated[str | None, typer.Option(help="Move the fires of a recurring job by up to so much: 30s.")] = None,
    start_at: Annotated[str | None, typer.Option(help="A recurring job fires no earlier.")] = None,
    end_at: Annotated[str | None, typer.Option(help="A recurring job fires no later.")] = None,
    max_fires: Annotated[int | None, typer.Option(help="A recurring job is over after so many.")] = None,
    overlap: Annotated[
        str | None, typer.Option(help="While an earlier run is alive: skip, queue, parallel or replace.")
    ] = None,
    catch_up: Annotated[str | None, typer.Option(help="Of fires that were missed: latest, skip or all.")] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Bring recurring jobs up to date whose names stand already.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="A name to find it by; of recurring jobs it stands once.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose it is.")] = None,
    queue: Annotated[str | None, typer.Option(help="Where it waits.")] = None,
    priority: Annotated[str | None, typer.Option(help="critical, high, normal or low.")] = None,
    max_attempts: Annotated[int | None, typer.Option(help="How often it is tried.")] = None,
    timeout: Annotated[str | None, typer.Option(help="Of one attempt: 30s.")] = None,
    deadline: Annotated[str | None, typer.Option(help="For all attempts together: 1h.")] = None,
    start_within: Annotated[str | None, typer.Option(help="Start no later than this after it is due: 5m.")] = None,
    delivery: Annotated[str | None, typer.Option(help="at_least_once or at_most_once.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag to find it by; may be repeated.")] = None,
    limit: Annotated[str | None, typer.Option(help="The key of a limit it keeps to; see sexton limits.")] = None,
    key: Annotated[str | None, typer.Option(help="An idempotency key: the same key twice is one job.")] = None,
    unique: Annotated[bool, typer.Option("--unique", help="Not if an equal job is pending.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end and print its result.")] = False,
    within: Annotated[str | None, typer.Option(help="With --wait: give up after this long (exit code 8).")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Submit a job, or a file of them.

    Prints the job's id; with --wait its result, and ends with exit code 7 if the job failed.

    Example: sexton submit demo.echo a=1 greeting=hello --delay 5s --wait

    Example: sexton submit demo.echo --cron "0 9 * * MON-FRI" --tz America/New_York --name morning

    Example: sexton submit https://billing.example/send user_id=42 --delay 24h
    """
    if file is not None:
        if handler is not None:
            raise InvalidSubmission("--file", "names the jobs itself; leave the task out")
        on_name: OnName = "update" if update else "refuse"
        requests = read_requests(file)
        code = with_client(
            url, lambda client: _submit_file(client, requests, partial=partial, on_name=on_name, as_json=as_json)
        )
        raise typer.Exit(code)
    if handler is None:
        raise NotUnderstood("name the task to run, or give --file")
    called = called_by(handler)
    rule = rule_of(
        cron,
        rrule,
        every,
        timezone=tz,
        jitter=jitter,
        start_at=instant(start_at, "--start-at"),
        end_at=instant(end_at, "--end-at"),
        max_fires=max_fires,
        overlap=overlap,
        catch_up=catch_up,
    )
    one_time = {"delay": delay, "run_at": instant(run_at, "--run-at"), "key": key, "unique": unique or None}
    options = {
        "name": name,
        "tenant": tenant,
        "queue": queue,
        "priority": priority,
        "timeout": timeout,
        "deadline": deadline,
        "start_within": start_within,
        "delivery": delivery,
        "tags": tag or None,
        "limit": limit,
        "retry": _retry(max_attempts),
    }
    body = payload_of(payload, pairs or [])
    if rule:
        misfits = [f"--{name.replace('_', '-')}" for name, value in one_time.items() if value is not None]
        if wait or misfits:
            raise NotUnderstood(f"{(misfits or ['--wait'])[0]} is for one-time jobs; leave it out")
        with_client(url, lambda client: _schedule(client, called, body, {**options, **rule}, update=update, as_json=as_json))
        return
    options |= one_time
    raise typer.Exit(
        with_client(url, lambda client: _submit_one(client, called, body, options, wait=wait, within=within, as_json=as_json))
    )


async def _schedule(
    client: AsyncClient, handler: str | Target, payload: Any, options: dict[str, Any], *, update: bool, as_json: bool
) -> None:
    job = await client.schedule(handler, payload, on_name="update" if update else "refuse", **options)
    if as_json:
        print_json(job)
        return
    for warning in job.warnings:
        warn(warning)
    typer.echo(job.id)
    say(f"{job.schedule_words}; next {shown(job.next_fire_at)}")


async def _submit_one(
    client: AsyncClient,
    handler: str | Target,
    payload: Any,
    options: dict[str, Any],
    *,
    wait: bool,
    within: str | None,
    as_json: bool,
) -> Exit:
    handle = await client.submit(handler, payload, **options)
    if not as_json:
        for warning in handle.job.warnings:
            warn(warning)
    if not wait:
        if as_json:
            print_json(handle.job)
        else:
            typer.echo(handle.id)
            if not handle.created:
                say("it stood already; nothing was added")
        return Exit.DONE
    if not as_json:
        say(f"job {handle.id}")
    job = await client.ended(handle.id, within)
    if as_json:
        print_json(job)
    if job.status != "completed":
        from sexton.client.remote.waiting import why

        raise JobFailed(job.status, why(job))
    if not as_json:
        typer.echo(as_json_text(None if job.last_execution is None else job.last_execution.result))
    return Exit.DONE


async def _submit_file(
    client: AsyncClient, requests: list[JobRequest], *, partial: bool, on_name: OnName, as_json: bool
) -> Exit:
    from sexton.wire import Batch

    items: list[BatchItem] = []
    try:
        with progress("submitting", len(requests)) as advance:
            async for chunk in client.submit_chunks(requests, partial=partial, on_name=on_name):
                items += chunk
                advance(len(chunk))
    except SextonError as error:
        if items:
            is_open = isinstance(error, ApiUnavailable | DatabaseUnavailable)
            rest = "whether the next ones were is not known" if is_open else "what follows them was not"
            warn(f"the first {len(items):,} jobs were submitted; {rest}")
        raise
    refused = [item for item in items if item.problem is not None]
    batch = Batch(
        items=items,
        created_count=sum(item.created is True for item in items),
        existing_count=sum(item.created is False for item in items),
        refused_count=len(refused),
    )
    if as_json:
        print_json(batch)
    else:
        typer.echo(
            f"submitted {batch.created_count:,}, stood already {batch.existing_count:,}, refused {batch.refused_count:,}"
        )
        for item in refused:
            warn(f"job {item.index + 1:,}: {item.problem.detail if item.problem else ''}")
    return Exit.FAILED if refused else Exit.DONE


def read_requests(name: str) -> list[JobRequest]:
    """All of them before any is sent: a line that is wrong stops the file, not half of it."""
    import msgspec

    from sexton.wire import JobRequest

    content = read("-") if name == "-" else file_bytes(name)
    if content.lstrip().startswith(b"["):
        try:
            return msgspec.json.decode(content, type=list[JobRequest])
        except msgspec.DecodeError as error:
            raise InvalidSubmission(name, str(error)) from None
    decoder = msgspec.json.Decoder(JobRequest)
    requests = []
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            try:
                requests.append(decoder.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise InvalidSubmission(f"{name} line {number}", str(error)) from None
    if not requests:
        raise InvalidSubmission(name, "holds no jobs")
    return requests


def _retry(max_attempts: int | None) -> Any:
    from sexton.domain.fault import Invalid
    from sexton.domain.retry import Retry

    try:
        return None if max_attempts is None else Retry(max_attempts=max_attempts)
    except Invalid as fault:
        raise InvalidSubmission("--max-attempts", fault.message) from None
