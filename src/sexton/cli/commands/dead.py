"""`sexton dead …`: dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from sexton.cli.api_access import AsJson, Url, with_client
from sexton.cli.exits import Exit, NotUnderstood
from sexton.cli.inputs import sure
from sexton.cli.printing import print_json, print_list, print_one, progress, say
from sexton.errors import InvalidSubmission

if TYPE_CHECKING:
    from sexton.client.remote.async_client import AsyncClient
    from sexton.wire import DeadLetter

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode=None, help="List, show, replay and discard dead letters."
)

CHUNK = 500  # letters per call, for a progress bar that moves and short transactions

Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Dead letters by their id; or select them by the options.")]
Handler = Annotated[str | None, typer.Option(help="Of this task.")]
Tenant = Annotated[str | None, typer.Option(help="Of this tenant.")]
Queue = Annotated[str | None, typer.Option(help="Of this queue.")]
Permanent = Annotated[
    bool | None,
    typer.Option("--permanent/--transient", help="Only those that another attempt cannot help; or only the others."),
]
All = Annotated[bool, typer.Option("--all", help="Every dead letter.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print how many it would be.")]


@app.command("list")
def list_(
    handler: Handler = None,
    tenant: Tenant = None,
    queue: Queue = None,
    permanent: Permanent = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 50,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters, newest first.

    Example: sexton dead list --handler demo.fail
    """
    filters = _filters(handler, tenant, queue, permanent)

    async def found(client: AsyncClient) -> list[DeadLetter]:
        return [letter async for letter in client.dead_letters(limit=limit, **filters)]

    letters = with_client(url, found)
    columns = ("id", "handler", "why", "status", "tries", "buried", "job")
    print_list(letters, columns, (_row(letter) for letter in letters), none="no dead letters", as_json=as_json)


@app.command()
def show(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="The dead letter's id.")],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter with its payload and its error.

    Example: sexton dead show 0199a1b2-0000-7000-8000-000000000000
    """
    letter = with_client(url, lambda client: client.dead_letter(letter_id))
    error = letter.error
    print_one(
        letter,
        [
            ("id", letter.id),
            ("job", letter.job_id),
            ("handler", letter.handler),
            ("payload", bytes(letter.payload)),
            ("name", letter.name),
            ("tenant", letter.tenant),
            ("queue", letter.queue),
            ("status", letter.status),
            ("why", letter.reason),
            ("permanent", letter.permanent),
            ("tries", letter.attempts),
            ("losses", letter.lost_count),
            ("due", letter.fire_at),
            ("buried", letter.buried_at),
            ("replayed at", letter.replay_at),
            ("error", None if error is None else f"{error.type}: {error.message}"),
            ("traceback", None if error is None else error.traceback),
        ],
        as_json=as_json,
    )


@app.command()
def replay(
    ids: Ids = None,
    handler: Handler = None,
    tenant: Tenant = None,
    queue: Queue = None,
    permanent: Permanent = None,
    everything: All = False,
    new_key: Annotated[
        bool, typer.Option("--new-key", help="Delete the idempotency keys: the effect may happen again.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Run dead letters again with a fresh budget, each once.

    Example: sexton dead replay --handler demo.fail --yes
    """
    filters = _filters(handler, tenant, queue, permanent)
    _require_choice(ids, filters, everything)

    async def work(client: AsyncClient) -> Exit:
        from sexton.wire import Replay

        chosen = await _chosen(client, ids, filters)
        if dry_run or not chosen:
            return _answer(
                Replay(matched_count=len(chosen), replayed=[], dry_run=dry_run), "would run again", len(chosen), as_json
            )
        if ids is None:
            sure(f"Run {len(chosen):,} dead letters again?", yes=yes)
        replayed: list[UUID] = []
        with progress("replaying", len(chosen)) as advance:
            for part in _parts(chosen):
                replayed += (await client.replay(part, keep_key=not new_key)).replayed
                advance(len(part))
        answer = Replay(matched_count=len(chosen), replayed=replayed, dry_run=False)
        return _answer(answer, "run again", len(replayed), as_json, missed=len(chosen) - len(replayed) if ids else 0)

    raise typer.Exit(with_client(url, work))


@app.command()
def discard(
    ids: Ids = None,
    handler: Handler = None,
    tenant: Tenant = None,
    queue: Queue = None,
    permanent: Permanent = None,
    everything: All = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Discard dead letters. Their jobs stay failed. This cannot be undone.

    Example: sexton dead discard --handler demo.fail --permanent --dry-run
    """
    filters = _filters(handler, tenant, queue, permanent)
    _require_choice(ids, filters, everything)

    async def work(client: AsyncClient) -> Exit:
        from sexton.wire import Discard

        chosen = await _chosen(client, ids, filters)
        if dry_run or not chosen:
            answer = Discard(matched_count=len(chosen), discarded=[], dry_run=dry_run)
            return _answer(answer, "would be discarded", len(chosen), as_json)
        if ids is None:
            sure(f"Discard {len(chosen):,} dead letters for good?", yes=yes)
        gone: list[UUID] = []
        with progress("discarding", len(chosen)) as advance:
            for part in _parts(chosen):
                gone += (await client.discard(part)).discarded
                advance(len(part))
        answer = Discard(matched_count=len(chosen), discarded=gone, dry_run=False)
        return _answer(answer, "discarded", len(gone), as_json, missed=len(chosen) - len(gone) if ids else 0)

    raise typer.Exit(with_client(url, work))


def _filters(handler: str | None, tenant: str | None, queue: str | None, permanent: bool | None) -> Any:
    given = {"handler": handler, "tenant": tenant, "queue": queue, "permanent": permanent}
    return {name: value for name, value in given.items() if value is not None}


def _require_choice(ids: Sequence[str] | None, filters: dict[str, Any], everything: bool) -> None:
    """Exactly one way to select: a forgotten option must not mean all of them."""
    ways = sum([bool(ids), bool(filters), everything])
    if ways == 0:
        raise NotUnderstood("say which: give ids, a filter such as --handler, or --all")
    if ways > 1:
        raise NotUnderstood("select in one way: ids, filters, or --all")


async def _chosen(client: AsyncClient, ids: Sequence[str] | None, filters: Any) -> list[UUID]:
    """Exactly these: letters buried while the command asks and works are not touched."""
    if ids:
        return [_uuid(letter_id) for letter_id in ids]
    return [letter.id async for letter in client.dead_letters(**filters)]


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidSubmission(text, "is not an id; `sexton dead list` shows them") from None


def _parts(chosen: Sequence[UUID]) -> list[Sequence[UUID]]:
    return [chosen[start : start + CHUNK] for start in range(0, len(chosen), CHUNK)]


def _answer(document: Any, done: str, count: int, as_json: bool, *, missed: int = 0) -> Exit:
    if as_json:
        print_json(document)
    else:
        typer.echo(f"{count:,} {done}")
    if missed:
        say(f"{missed:,} of the ids are not in the dead letters, or no longer")
        return Exit.NOT_FOUND
    return Exit.DONE


def _row(letter: DeadLetter) -> tuple[Any, ...]:
    return letter.id, letter.handler, letter.reason, letter.status, letter.attempts, letter.buried_at, letter.job_id
