"""`/v1/dead-letters`: what will not be tried again by itself; replay and discard, by id or by filter."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import msgspec
from litestar import Response, delete, get, post

from sexton import wire
from sexton.api.answers import views
from sexton.api.answers.problems import invalid
from sexton.api.answers.responses import answer
from sexton.api.openapi import examples
from sexton.api.openapi.description import Answer, Call, body, described
from sexton.api.requests import cursors
from sexton.api.requests.bodies import read, refuse_unkeepable
from sexton.api.requests.parameters import id_of, no_query, query_of
from sexton.api.requests.queries import DeadLettersQuery
from sexton.api.state import ApiRequest, caller_of, state_of
from sexton.errors import NotFound
from sexton.operations import replay as letters
from sexton.store.views.search import PAGE_BYTES
from sexton.store.work import dead_letters as store

_BODY_LIMIT = 2 * 1024 * 1024  # ten thousand ids and some space


@get(
    "/v1/dead-letters",
    opt=described(
        Call(
            id="listDeadLetters",
            tag="dead letters",
            summary="List dead letters, newest first",
            query=DeadLettersQuery,
            answers={200: Answer("A page.", wire.Page[wire.DeadLetter])},
        )
    ),
)
async def find(request: ApiRequest) -> Response[bytes]:
    query = query_of(request, DeadLettersQuery)
    chosen = store.Filter(task=query.handler, tenant=query.tenant, queue=query.queue, permanent=query.permanent)
    before = cursors.decode(query.cursor, chosen)
    async with state_of(request).database.connection() as connection:
        found = await store.find(connection, chosen, before=before, limit=query.limit)
    rows = _page(found)
    end = rows[-1].id if len(rows) == query.limit or len(rows) < len(found) else None
    return answer(wire.Page(items=[views.dead_letter(row) for row in rows], next_cursor=cursors.encode(end, chosen)))


def _page(found: Sequence[store.DeadLetter]) -> Sequence[store.DeadLetter]:
    """As many as a page may hold; one at least."""
    sizes = accumulate(len(letter.payload_json) for letter in found)
    return found[: max(1, sum(size <= PAGE_BYTES for size in sizes))]


@get(
    "/v1/dead-letters/{letter_id:str}",
    opt=described(
        Call(
            id="getDeadLetter",
            tag="dead letters",
            summary="Look at a dead letter",
            answers={200: Answer("The letter, with payload and error as they were.", wire.DeadLetter)},
            problems=(404,),
        )
    ),
)
async def show(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    wanted = id_of(request, "letter_id", "dead letter")
    async with state_of(request).database.connection() as connection:
        rows = await store.find(connection, store.Filter(ids=[wanted]), limit=1)
    if not rows:
        raise NotFound(f"there is no dead letter {wanted}")
    return answer(views.dead_letter(rows[0]))


@post(
    "/v1/dead-letters/replay",
    status_code=200,
    request_max_body_size=_BODY_LIMIT,
    opt=described(
        Call(
            id="replayDeadLetters",
            tag="dead letters",
            summary="Run dead letters again",
            description="Each once, with a fresh budget; a letter that somebody else replays at the same time is left to them.",
            body=body(wire.ReplayRequest, **examples.REPLAYS),
            answers={200: Answer("What was replayed, or after a dry run what would be.", wire.Replay)},
            problems=(400, 413, 415, 422),
        )
    ),
)
async def replay(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    state, asked = state_of(request), await read(request, wire.ReplayRequest)
    chosen = _chosen(asked.filter)
    async with state.database.transaction() as connection:
        ids = await store.find_ids(connection, chosen, limit=asked.limit)
        risen = []
        if ids and not asked.dry_run:
            risen = await letters.replay(
                connection, caller_of(request), ids, keep_key=asked.keep_key, now=state.clock.database_now()
            )
    return answer(wire.Replay(matched_count=len(ids), risen=[one.job_id for one in risen], dry_run=asked.dry_run))


@delete(
    "/v1/dead-letters",
    status_code=200,
    request_max_body_size=_BODY_LIMIT,
    opt=described(
        Call(
            id="discardDeadLetters",
            tag="dead letters",
            summary="Discard dead letters",
            description="Their jobs stay failed; only the letters go.",
            body=body(wire.DiscardRequest, **examples.DISCARDS),
            answers={200: Answer("What was discarded, or after a dry run what would be.", wire.Discard)},
            problems=(400, 413, 415, 422),
        )
    ),
)
async def discard(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    asked = await read(request, wire.DiscardRequest)
    chosen = _chosen(asked.filter)
    async with state_of(request).database.transaction() as connection:
        ids = await store.find_ids(connection, chosen, limit=asked.limit)
        gone = await letters.discard(connection, caller_of(request), ids) if ids and not asked.dry_run else []
    return answer(wire.Discard(matched_count=len(ids), discarded=gone, dry_run=asked.dry_run))


@delete(
    "/v1/dead-letters/{letter_id:str}",
    status_code=200,
    opt=described(
        Call(
            id="discardDeadLetter",
            tag="dead letters",
            summary="Discard a dead letter",
            answers={200: Answer("It is gone.", wire.Discard)},
            problems=(404,),
        )
    ),
)
async def discard_one(request: ApiRequest) -> Response[bytes]:
    no_query(request)
    wanted = id_of(request, "letter_id", "dead letter")
    async with state_of(request).database.transaction() as connection:
        gone = await letters.discard(connection, caller_of(request), [wanted])
    if not gone:
        raise NotFound(f"there is no dead letter {wanted}")
    return answer(wire.Discard(matched_count=1, discarded=gone, dry_run=False))


def _chosen(asked: wire.DeadLetterFilter) -> store.Filter:
    if asked == wire.DeadLetterFilter():
        raise invalid("/filter", "name at least one of ids, handler, tenant, queue and permanent")
    for field in ("handler", "tenant", "queue"):
        refuse_unkeepable(f"/filter/{field}", getattr(asked, field))
    renamed = {"handler": "task"}
    return store.Filter(**{renamed.get(name, name): value for name, value in msgspec.structs.asdict(asked).items()})


HANDLERS = [find, show, replay, discard, discard_one]
