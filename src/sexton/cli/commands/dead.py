"""`sexton dead …`: dead letters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from uuid import UUID

import typer

from sexton.cli.api_access import AsJson, Url, with_client
from sexton.cli.exit_codes import Exit, NotUnderstood
from sexton.cli.flags import F, with_flags
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
NewKey = Annotated[bool, typer.Option("--new-key", help="Delete the idempotency keys: the effect may happen again.")]


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
    filters = _filters(handler=handler, tenant=tenant, queue=queue, permanent=permanent)

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


def _selects(command: F) -> F:
    """The options that choose dead letters for a change of many, as `_selection` takes them."""
    choice = {"ids": Ids, "handler": Handler, "tenant": Tenant, "queue": Queue, "permanent": Permanent, "everything": All}
    return with_flags(command, {**choice, "dry_run": DryRun, "yes": Yes})


@app.command()
@_selects
def replay(new_key: NewKey = False, url: Url = None, as_json: AsJson = False, **given: Any) -> None:
    """Run dead letters again with a fresh budget, each once.

    Example: sexton dead replay --handler demo.fail --yes
    """
    selection = _selection(**given)

    async def work(client: AsyncClient) -> Exit:
        from sexton.wire import Replay

        async def again(part: Sequence[UUID]) -> Sequence[UUID]:
            return (await client.replay(part, keep_key=not new_key)).replayed

        done = await _each_part(client, selection, again, ask="Run {:,} dead letters again?", doing="replaying")
        answer = Replay(matched_count=done.matched_count, replayed=done.ids, dry_run=selection.dry_run)
        return _answer(answer, done, as_json, did="run again", would="would run again")

    raise typer.Exit(with_client(url, work))


@app.command()
@_selects
def discard(url: Url = None, as_json: AsJson = False, **given: Any) -> None:
    """Throw dead letters away. Their jobs stay failed; nothing brings them back.

    Example: sexton dead discard --handler demo.fail --permanent --dry-run
    """
    selection = _selection(**given)

    async def work(client: AsyncClient) -> Exit:
        from sexton.wire import Discard

        async def away(part: Sequence[UUID]) -> Sequence[UUID]:
            return (await client.discard(part)).discarded

        done = await _each_part(client, selection, away, ask="Discard {:,} dead letters for good?", doing="discarding")
        answer = Discard(matched_count=done.matched_count, discarded=done.ids, dry_run=selection.dry_run)
        return _answer(answer, done, as_json, did="discarded", would="would be discarded")

    raise typer.Exit(with_client(url, work))


class Selection(NamedTuple):
    """Dead letters, by their ids or by filters; without either, all of them."""

    ids: Sequence[str] | None
    filters: dict[str, Any]
    dry_run: bool
    yes: bool


class Done(NamedTuple):
    matched_count: int
    ids: list[UUID]
    missed_count: int  # of the ids that were named
    is_done: bool  # or it was only asked


def _selection(*, ids: Sequence[str] | None, everything: bool, dry_run: bool, yes: bool, **filters: Any) -> Selection:
    """Exactly one way of choosing: a forgotten option must not mean all of them."""
    given = _filters(**filters)
    ways = sum([bool(ids), bool(given), bool(everything)])
    if ways == 0:
        raise NotUnderstood("say which: give ids, a filter such as --handler, or --all")
    if ways > 1:
        raise NotUnderstood("choose one way: ids, filters, or --all")
    return Selection(ids, given, bool(dry_run), bool(yes))


def _filters(**given: Any) -> Any:
    return {name: value for name, value in given.items() if value is not None}


async def _each_part(
    client: AsyncClient,
    selection: Selection,
    change: Callable[[Sequence[UUID]], Awaitable[Sequence[UUID]]],
    *,
    ask: str,
    doing: str,
) -> Done:
    chosen = await _chosen(client, selection)
    if selection.dry_run or not chosen:
        return Done(len(chosen), [], 0, is_done=False)
    if selection.ids is None:
        sure(ask.format(len(chosen)), yes=selection.yes)
    changed: list[UUID] = []
    with progress(doing, len(chosen)) as advance:
        for part in _parts(chosen):
            changed += await change(part)
            advance(len(part))
    return Done(len(chosen), changed, len(chosen) - len(changed) if selection.ids else 0, is_done=True)


async def _chosen(client: AsyncClient, selection: Selection) -> list[UUID]:
    """Exactly these: what is buried while we ask and work is not touched."""
    if selection.ids:
        return [_uuid(letter_id) for letter_id in selection.ids]
    return [letter.id async for letter in client.dead_letters(**selection.filters)]


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidSubmission(text, "is not an id; `sexton dead list` shows them") from None


def _parts(chosen: Sequence[UUID]) -> list[Sequence[UUID]]:
    return [chosen[start : start + CHUNK] for start in range(0, len(chosen), CHUNK)]


def _answer(document: Any, done: Done, as_json: bool, *, did: str, would: str) -> Exit:
    if as_json:
        print_json(document)
    else:
        typer.echo(f"{len(done.ids):,} {did}" if done.is_done else f"{done.matched_count:,} {would}")
    if done.missed_count:
        say(f"{done.missed_count:,} of the ids are not in the dead letters (any more)")
        return Exit.NOT_FOUND
    return Exit.DONE


def _row(letter: DeadLetter) -> tuple[Any, ...]:
    return letter.id, letter.handler, letter.reason, letter.status, letter.attempts, letter.buried_at, letter.job_id
