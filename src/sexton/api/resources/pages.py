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

T = TypeVar("T")

Items = tuple[Sequence[msgspec.Struct], UUID | None]  # and the id before which the next page begins


class Paged(Protocol):
    """The query of a list."""

    @property
    def limit(self) -> int: ...
    @property
    def cursor(self) -> str | None: ...


async def newest_first(
    request: ApiRequest,
    query: Paged,
    chosen: msgspec.Struct,
    find: Callable[[Connection, UUID | None], Awaitable[Items]],
) -> Response[bytes]:
    """`find` reads what is `chosen` before an id."""
    before = cursors.decode(query.cursor, chosen)
    async with state_of(request).database.connection() as connection:
        items, next_before = await find(connection, before)
    return answer(wire.Page(items=items, next_cursor=cursors.encode(next_before, chosen)))


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
