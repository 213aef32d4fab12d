"""One page of a list: by id, newest first, or by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar
from uuid import UUID

import msgspec
from litestar import Response

from sexton import wire
from sexton.api.answers.responses import answer
from sexton.api.requests import cursors
from sexton.api.state import ApiRequest, state_of
from sexton.store.database import Connection
from sexton.store.views.search import Found

T = TypeVar("T")

Chosen = TypeVar("Chosen", bound=msgspec.Struct)
ChosenIn = TypeVar("ChosenIn", contravariant=True)


class Find(Protocol[ChosenIn, T]):
    """Reads the selected rows, newest first, before an id."""

    async def __call__(self, connection: Connection, chosen: ChosenIn, /, *, before: UUID | None, limit: int) -> Found[T]: ...


class Paged(Protocol):
    """The query of a list."""

    @property
    def limit(self) -> int: ...
    @property
    def cursor(self) -> str | None: ...


async def newest_first(
    request: ApiRequest, query: Paged, chosen: Chosen, find: Find[Chosen, T], view: Callable[[T], msgspec.Struct]
) -> Response[bytes]:
    before = cursors.decode(query.cursor, chosen)
    async with state_of(request).database.connection() as connection:
        found = await find(connection, chosen, before=before, limit=query.limit)
    items = [view(row) for row in found.rows]
    return answer(wire.Page(items=items, next_cursor=cursors.encode(found.next_before, chosen)))


async def by_name(
    request: ApiRequest,
    query: Paged,
    find: Callable[[Connection, str], Awaitable[Sequence[T]]],
    view: Callable[[T], msgspec.Struct],
    name_of: Callable[[T], str],
) -> Response[bytes]:
    """`find` reads those after a name."""
    after = cursors.decode_text(query.cursor)
    async with state_of(request).database.connection() as connection:
        found = await find(connection, after)
    more = cursors.encode_text(name_of(found[-1])) if len(found) == query.limit else None
    return answer(wire.Page(items=[view(one) for one in found], next_cursor=more))
