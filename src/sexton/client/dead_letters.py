"""Dead letters for operators' scripts: list, show, replay, discard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import NamedTuple
from uuid import UUID

from sexton.clock import Clock
from sexton.errors import NotFound
from sexton.operations.replay import discard, replay
from sexton.store.work import dead_letters
from sexton.store.work.dead_letters import DeadLetter, Filter, ReplayedRun

from .caller import APP
from .pools import Pools

PAGE = 1000
ALL = Filter()

Chosen = Filter | Collection[UUID]


class Replayed(NamedTuple):
    letter_ids: Sequence[UUID]  # the selected letters; another replay may have taken some of them meanwhile
    replayed: Sequence[ReplayedRun]  # empty after a dry run


class DeadLetters:
    def __init__(self, pools: Pools, clock: Clock) -> None:
        self._pools, self._clock = pools, clock

    async def list(self, chosen: Filter = ALL, *, before: UUID | None = None, limit: int = 100) -> Sequence[DeadLetter]:
        """Newest first; `before` is the last id of the previous page."""
        async with (await self._pools.here()).connection() as connection:
            return await dead_letters.find(connection, chosen, before=before, limit=limit)

    async def show(self, letter_id: UUID) -> DeadLetter:
        found = await self.list(Filter(ids=[letter_id]))
        if not found:
            raise NotFound(f"dead letter {letter_id} does not exist")
        return found[0]

    async def replay(self, chosen: Chosen, *, dry_run: bool = False, keep_key: bool = True) -> Replayed:
        """Runs them again with a new budget, a thousand per transaction. Parallel replays replay each letter once."""
        letter_ids: list[UUID] = []
        replayed: list[ReplayedRun] = []
        async for page in self._pages(chosen):
            letter_ids += page
            if not dry_run:
                async with (await self._pools.here()).transaction() as connection:
                    replayed += await replay(connection, APP, page, keep_key=keep_key, now=self._clock.database_now())
        return Replayed(letter_ids, replayed)

    async def discard(self, chosen: Chosen, *, dry_run: bool = False) -> Sequence[UUID]:
        """The ids of the letters that were (or would be) discarded."""
        gone: list[UUID] = []
        async for page in self._pages(chosen):
            if dry_run:
                gone += page
            else:
                async with (await self._pools.here()).transaction() as connection:
                    gone += await discard(connection, APP, page)
        return gone

    async def _pages(self, chosen: Chosen) -> AsyncIterator[Sequence[UUID]]:
        """New letters have newer ids than the first page, so this ends."""
        filter_ = chosen if isinstance(chosen, Filter) else Filter(ids=list(chosen))
        before = None
        while page := [letter.id for letter in await self.list(filter_, before=before, limit=PAGE)]:
            yield page
            before = page[-1]
