"""`sexton submit`: one job, or a file of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sexton.cli.api_access import AsJson, Url, with_client
from sexton.cli.exit_codes import Exit, NotUnderstood
from sexton.cli.inputs import called_by, file_bytes, payload_of, read
from sexton.cli.job_options import given_options, in_sdk, of_jobs, takes_job_options
from sexton.cli.printing import as_json_text, print_as_json, print_json, progress, say, shown, warn
from sexton.domain.job_options import BY_NAME
from sexton.errors import ApiUnavailable, DatabaseUnavailable, InvalidSubmission, JobFailed, SextonError

from .explain import rule_of

if TYPE_CHECKING:
    from sexton.client.remote.async_client import AsyncClient
    from sexton.domain.schedule.document import OnName
    from sexton.domain.targets import Target
    from sexton.wire import BatchItem, JobRequest


@takes_job_options()
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
    partial: Annotated[
        bool, typer.Option("--partial", help="With --file: submit the valid jobs, print the problems of the others.")
    ] = False,
    update: Annotated[bool, typer.Option("--update", help="Update recurring jobs whose names already exist.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job ends, and print its result.")] = False,
    within: Annotated[str | None, typer.Option(help="With --wait: give up after this long (exit code 8).")] = None,
    url: Url = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Submit a job, or a file of them.

    Prints the job's id; with --wait its result, and ends with exit code 7 if the job failed.

    Example: sexton submit demo.echo a=1 greeting=hello --delay 5s --wait

    Example: sexton submit demo.echo --cron "0 9 * * MON-FRI" --timezone America/New_York --name morning

    Example: sexton submit https://billing.example/send user_id=42 --delay 24h
    """
    if within is not None and not wait:
        raise NotUnderstood("--within limits the time of --wait; add --wait, or leave --within out")
    if partial and file is None:
        raise NotUnderstood("--partial is for a file of jobs; give --file, or leave --partial out")
    if file is not None:
        if handler is not None:
            raise InvalidSubmission("--file", "the file names the tasks; leave the task out")
        if wait:
            raise NotUnderstood("--wait is for one job; leave it out, or submit the jobs one by one")
        on_name: OnName = "update" if update else "refuse"
        requests = read_requests(file)
        code = with_client(
            url, lambda client: _submit_file(client, requests, partial=partial, on_name=on_name, as_json=as_json)
        )
        raise typer.Exit(code)
    if handler is None:
        raise NotUnderstood("name the task to run, or give --file")
    called, body, options = called_by(handler), payload_of(payload, pairs or []), given_options(given)
    if _is_recurring(options):
        misfits = [BY_NAME[name].option for name in of_jobs(options, "one-time")]
        if wait or misfits:
            raise NotUnderstood(f"{(misfits or ['--wait'])[0]} is for one-time jobs; leave it out")
        with_client(url, lambda client: _schedule(client, called, body, options, update=update, as_json=as_json))
        return
    if update:
        raise NotUnderstood("--update is for recurring jobs; give --cron, --rrule or --every, or leave --update out")
    given_once = in_sdk(options)
    raise typer.Exit(
        with_client(
            url, lambda client: _submit_one(client, called, body, given_once, wait=wait, within=within, as_json=as_json)
        )
    )


def _is_recurring(options: dict[str, Any]) -> bool:
    rules = {name: options.get(name) for name in ("cron", "rrule", "every")}
    others = {name: value for name, value in of_jobs(options, "recurring").items() if name not in rules}
    return bool(rule_of(**rules, **others))


async def _schedule(
    client: AsyncClient, handler: str | Target, payload: Any, options: dict[str, Any], *, update: bool, as_json: bool
) -> None:
    job = await client.schedule(handler, payload, on_name="update" if update else "refuse", **options)
    if print_as_json(job, as_json=as_json):
        return
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
                say("it already existed; nothing was added")
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
            rest = "it is not known whether the next ones were" if is_open else "the rest was not"
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
            f"submitted {batch.created_count:,}, already existed {batch.existing_count:,}, refused {batch.refused_count:,}"
        )
        for item in items:
            for warning in item.warnings:
                warn(f"job {item.index + 1:,}: {warning}")
        for item in refused:
            warn(f"job {item.index + 1:,}: {item.problem.detail if item.problem else ''}")
    return Exit.FAILED if refused else Exit.DONE


def read_requests(name: str) -> list[JobRequest]:
    """All of them before any is sent: a wrong line rejects the whole file, not half of it."""
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
        raise InvalidSubmission(name, "contains no jobs")
    return requests
