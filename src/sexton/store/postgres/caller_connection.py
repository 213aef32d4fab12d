"""Runs one statement on the caller's connection, in the caller's transaction: asyncpg, psycopg, SQLAlchemy, Django.

It recognizes drivers by the names of their classes, so that none of them has to be installed. It must never commit, roll back
or change a setting: the caller decides about the transaction and handles the driver's errors.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

Rows = list[tuple[Any, ...]]
Arguments = tuple[Any, ...]

_ACCEPTED = (
    "an asyncpg connection, a psycopg Connection or AsyncConnection, a SQLAlchemy Connection, Session, AsyncConnection or "
    "AsyncSession, or Django's django.db.connection"
)
_PLACEHOLDER = re.compile(r"\$(\d+)")
_JSON_ARGUMENT = re.compile(r"(\$\d+)::jsonb")

Way = TypeVar("Way")


async def run(connection: object, query: str, *args: Any) -> Rows:
    """Runs a statement with `$1`-style placeholders on an async connection and returns its rows."""
    way = _find(_ASYNC, connection)
    if way is None:
        raise _refusal(connection, _SYNC, "a synchronous", "submit_sync instead of submit")
    return await way(connection, _with_plain_json(query), args)


def run_sync(connection: object, query: str, *args: Any) -> Rows:
    """The same on a synchronous connection."""
    way = _find(_SYNC, connection)
    if way is None:
        raise _refusal(connection, _ASYNC, "an async", "submit instead of submit_sync")
    return way(connection, _with_plain_json(query), args)


async def _asyncpg(connection: Any, query: str, args: Arguments) -> Rows:
    return [tuple(row) for row in await connection.fetch(query, *args)]


# The cursor classes are explicit, because the caller's defaults may use other placeholders or return other rows.
def _psycopg(connection: Any, query: str, args: Arguments) -> Rows:
    from psycopg import Cursor
    from psycopg.rows import tuple_row

    text, ordered = _with_percents(query, args)
    with Cursor(connection, row_factory=tuple_row) as cursor:
        return cursor.execute(text.encode(), ordered).fetchall()


async def _psycopg_async(connection: Any, query: str, args: Arguments) -> Rows:
    from psycopg import AsyncCursor
    from psycopg.rows import tuple_row

    text, ordered = _with_percents(query, args)
    async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
        return await (await cursor.execute(text.encode(), ordered)).fetchall()


def _sqlalchemy(connection: Any, query: str, args: Arguments) -> Rows:
    return [tuple(row) for row in connection.exec_driver_sql(*_in_style_of(connection.dialect, query, args))]


def _sqlalchemy_session(session: Any, query: str, args: Arguments) -> Rows:
    return _sqlalchemy(session.connection(), query, args)


async def _sqlalchemy_async(connection: Any, query: str, args: Arguments) -> Rows:
    return [tuple(row) for row in await connection.exec_driver_sql(*_in_style_of(connection.dialect, query, args))]


async def _sqlalchemy_async_session(session: Any, query: str, args: Arguments) -> Rows:
    return await _sqlalchemy_async(await session.connection(), query, args)


def _django(connection: Any, query: str, args: Arguments) -> Rows:
    _require_postgresql(connection.vendor)
    with connection.cursor() as cursor:
        cursor.execute(*_with_percents(query, args))
        return list(cursor.fetchall())


_ASYNC: Mapping[str, Callable[[Any, str, Arguments], Awaitable[Rows]]] = {
    "asyncpg.connection.Connection": _asyncpg,
    "asyncpg.pool.PoolConnectionProxy": _asyncpg,
    "psycopg.AsyncConnection": _psycopg_async,
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": _sqlalchemy_async,
    "sqlalchemy.ext.asyncio.session.AsyncSession": _sqlalchemy_async_session,
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": _sqlalchemy_async_session,
}
_SYNC: Mapping[str, Callable[[Any, str, Arguments], Rows]] = {
    "psycopg.Connection": _psycopg,
    "sqlalchemy.engine.base.Connection": _sqlalchemy,
    "sqlalchemy.orm.session.Session": _sqlalchemy_session,
    "sqlalchemy.orm.scoping.scoped_session": _sqlalchemy_session,
    "django.utils.connection.ConnectionProxy": _django,
    "django.db.backends.base.base.BaseDatabaseWrapper": _django,
}


def _find(ways: Mapping[str, Way], connection: object) -> Way | None:
    names = (f"{kind.__module__}.{kind.__qualname__}" for kind in type(connection).__mro__)
    return next((ways[name] for name in names if name in ways), None)


def _refusal(connection: object, others: Mapping[str, Any], kind: str, instead: str) -> TypeError:
    if _find(others, connection) is not None:
        return TypeError(f"{_kind(connection)} is {kind} connection; use the matching form, such as {instead}")
    return TypeError(f"connection: give {_ACCEPTED}, not {_kind(connection)}")


def _kind(connection: object) -> str:
    return f"{type(connection).__module__}.{type(connection).__qualname__}"


@lru_cache(maxsize=64)
def _with_plain_json(query: str) -> str:
    """JSON is sent as text: on a connection with the caller's own JSON codec it would be encoded twice."""
    return _JSON_ARGUMENT.sub(r"\1::text::jsonb", query)


def _in_style_of(dialect: Any, query: str, args: Arguments) -> tuple[str, Arguments]:
    _require_postgresql(dialect.name)
    return (query, args) if dialect.paramstyle == "numeric_dollar" else _with_percents(query, args)


def _require_postgresql(name: str) -> None:
    if name != "postgresql":
        raise TypeError(f"connection: it is a connection to {name}; Sexton needs PostgreSQL")


def _with_percents(query: str, args: Arguments) -> tuple[str, Arguments]:
    """`$2 … $1` as `%s … %s`, with the arguments in the order of their placeholders."""
    text, order = _percents(query)
    return text, tuple(args[index] for index in order)


@lru_cache(maxsize=64)
def _percents(query: str) -> tuple[str, tuple[int, ...]]:
    order = tuple(int(number) - 1 for number in _PLACEHOLDER.findall(query))
    return _PLACEHOLDER.sub("%s", query.replace("%", "%%")), order
