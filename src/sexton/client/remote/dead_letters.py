"""The calls about dead letters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict, Unpack
from uuid import UUID

from sexton import wire

from .call import Call, Pages, encoded, get, part
from .sender import Sender
from .sync_and_async import call, pages


class LetterFilters(TypedDict, total=False):
    handler: str | None
    tenant: str | None
    queue: str | None
    permanent: bool | None


class DeadLetterCalls(Sender):
    @pages
    def dead_letters(self, *, limit: int | None = None, **filters: Unpack[LetterFilters]) -> Pages[wire.DeadLetter]:
        return Pages(get("/v1/dead-letters", wire.Page[wire.DeadLetter], **filters), limit)

    @call
    def dead_letter(self, letter_id: UUID | str) -> Call[wire.DeadLetter]:
        return get(f"/v1/dead-letters/{part(letter_id)}", wire.DeadLetter)

    @call
    def replay(
        self,
        ids: Iterable[UUID] | None = None,
        *,
        dry_run: bool = False,
        keep_key: bool = True,
        limit: int = 10_000,
        **filters: Unpack[LetterFilters],
    ) -> Call[wire.Replay]:
        body = wire.ReplayRequest(filter=_chosen(ids, filters), dry_run=dry_run, keep_key=keep_key, limit=limit)
        return Call("POST", "/v1/dead-letters/replay", wire.Replay, body=encoded(body), repeatable=dry_run)

    @call
    def discard(
        self,
        ids: Iterable[UUID] | None = None,
        *,
        dry_run: bool = False,
        limit: int = 10_000,
        **filters: Unpack[LetterFilters],
    ) -> Call[wire.Discard]:
        body = wire.DiscardRequest(filter=_chosen(ids, filters), dry_run=dry_run, limit=limit)
        return Call("DELETE", "/v1/dead-letters", wire.Discard, body=encoded(body), repeatable=dry_run)


def _chosen(ids: Iterable[UUID] | None, filters: LetterFilters) -> wire.DeadLetterFilter:
    return wire.DeadLetterFilter(ids=None if ids is None else tuple(ids), **filters)
