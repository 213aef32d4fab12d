"""`/v1/dead-letters`: jobs that are not tried again by themselves; replay and discard, by id or by filter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import TypeVar
from uuid import UUID

from litestar import Response

from sexton import wire
from sexton.api.answers import views
from sexton.api.answers.problems import invalid
from sexton.api.answers.responses import answer
from sexton.api.openapi import examples
from sexton.api.openapi.description import Operation, body, ok
from sexton.api.requests.bodies import read, refuse_unkeepable
from sexton.api.requests.parameters import filter_of, id_of, query_of
from sexton.api.requests.queries import DeadLettersQuery
from sexton.api.state import ApiRequest, caller_of, state_of
from sexton.errors import NotFound
from sexton.operations import replay as letters
from sexton.store.database import Connection
from sexton.store.views.search import PAGE_BYTES, Found
from sexton.store.work import dead_letters as store
from sexton.store.work.dead_letters import ReplayedRun

from .pages import newest_first

operation = partial(Operation, tag="dead letters")

Changed = TypeVar("Changed")

_BODY_LIMIT = 2 * 1024 * 1024  # ten thousand ids and some space


@operation(
    "GET /v1/dead-letters", id="listDeadLetters", query=DeadLettersQuery, answers=ok("A page.", wire.Page[wire.DeadLetter])
)
async def find(request: ApiRequest) -> Response[bytes]:
    """List dead letters, newest first."""
    query = query_of(request, DeadLettersQuery)
    return await newest_first(request, query, filter_of(store.Filter, query), _page, views.dead_letter)


async def _page(connection: Connection, chosen: store.Filter, /, *, before: UUID | None, limit: int) -> Found[store.DeadLetter]:
    """As many as a page may hold; at least one."""
    found = await store.find(connection, chosen, before=before, limit=limit)
    sizes = accumulate(len(letter.payload_json) for letter in found)
    rows = found[: max(1, sum(size <= PAGE_BYTES for size in sizes))]
    end = rows[-1].id if len(rows) == limit or len(rows) < len(found) else None
    return Found(rows, end)


@operation(
    "GET /v1/dead-letters/{letter_id:str}",
    id="getDeadLetter",
    answers=ok("The letter, with its payload and error.", wire.DeadLetter),
)
async def show(request: ApiRequest) -> Response[bytes]:
    """Get a dead letter."""
    wanted = id_of(request, "letter_id", "dead letter")
    async with state_of(request).database.connection() as connection:
        rows = await store.find(connection, store.Filter(ids=[wanted]), limit=1)
    if not rows:
        raise NotFound(f"there is no dead letter {wanted}")
    return answer(views.dead_letter(rows[0]))


@operation(
    "POST /v1/dead-letters/replay",
    id="replayDeadLetters",
    body=body(wire.ReplayRequest, limit=_BODY_LIMIT, **examples.REPLAYS),
    answers=ok("The replayed letters, or after a dry run those that would be.", wire.Replay),
)
async def replay(request: ApiRequest) -> Response[bytes]:
    """Run dead letters again.

    Each once, with a fresh budget; a letter that another caller replays at the same time is left to that caller.
    """
    asked = await read(request, wire.ReplayRequest)

    async def replay(connection: Connection, ids: Sequence[UUID]) -> list[ReplayedRun]:
        now = state_of(request).clock.database_now()
        return await letters.replay(connection, caller_of(request), ids, keep_key=asked.keep_key, now=now)

    ids, replayed = await _change(request, asked, replay)
    return answer(wire.Replay(matched_count=len(ids), replayed=[one.job_id for one in replayed], dry_run=asked.dry_run))


@operation(
    "DELETE /v1/dead-letters",
    id="discardDeadLetters",
    body=body(wire.DiscardRequest, limit=_BODY_LIMIT, **examples.DISCARDS),
    answers=ok("The discarded letters, or after a dry run those that would be.", wire.Discard),
)
async def discard(request: ApiRequest) -> Response[bytes]:
    """Discard dead letters.

    Their jobs stay failed; only the letters are deleted.
    """
    asked = await read(request, wire.DiscardRequest)
    ids, gone = await _change(request, asked, lambda connection, ids: letters.discard(connection, caller_of(request), ids))
    return answer(wire.Discard(matched_count=len(ids), discarded=gone, dry_run=asked.dry_run))


@operation("DELETE /v1/dead-letters/{letter_id:str}", id="discardDeadLetter", answers=ok("It is deleted.", wire.Discard))
async def discard_one(request: ApiRequest) -> Response[bytes]:
    """Discard a dead letter."""
    wanted = id_of(request, "letter_id", "dead letter")
    async with state_of(request).database.transaction() as connection:
        gone = await letters.discard(connection, caller_of(request), [wanted])
    if not gone:
        raise NotFound(f"there is no dead letter {wanted}")
    return answer(wire.Discard(matched_count=1, discarded=gone, dry_run=False))


async def _change(
    request: ApiRequest,
    asked: wire.ReplayRequest | wire.DiscardRequest,
    change: Callable[[Connection, Sequence[UUID]], Awaitable[list[Changed]]],
) -> tuple[Sequence[UUID], list[Changed]]:
    """The letters that the request selects, and what the change did to them: nothing in a dry run."""
    chosen = _chosen(asked.filter)
    async with state_of(request).database.transaction() as connection:
        ids = await store.find_ids(connection, chosen, limit=asked.limit)
        return ids, await change(connection, ids) if ids and not asked.dry_run else []


def _chosen(asked: wire.DeadLetterFilter) -> store.Filter:
    if asked == wire.DeadLetterFilter():
        raise invalid("/filter", "give at least one of ids, handler, tenant, queue and permanent")
    for field in ("handler", "tenant", "queue"):
        refuse_unkeepable(f"/filter/{field}", getattr(asked, field))
    return filter_of(store.Filter, asked)


HANDLERS = [find, show, replay, discard, discard_one]
