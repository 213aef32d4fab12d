"""The connection to PostgreSQL: a pool, transactions, and the check whether the connection is direct or through a pooler.

No asyncpg type or error may leave `sexton.store`. Behind a transaction-mode pooler no statement stays prepared, and every
statement runs inside an explicit transaction: rule "session state only on direct connections".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any, NamedTuple, Protocol

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from sexton.errors import Contention, DatabaseDown, DatabaseRefused, DatabaseUnavailable

from .postgres.driver_errors import BROKEN, is_of_one_statement, told, translated_errors
from .postgres.only_server import OnlyServer
from .postgres.tcp_keepalive import set_tcp_keepalive

STATEMENT_TIMEOUT_S = 30
LOCK_TIMEOUT_S = 5
# Rule "a waiting caller leaves the group": on connections that many callers share. A statement that meets a lock gives up
# soon, and the caller that needs the locked row waits on another connection. Two groups that commit at the
# same time wait for each other for a few milliseconds only.
SHARED_LOCK_TIMEOUT_S = 0.25
SUBMIT_LOCK_TIMEOUT_S = 0.02
CONNECT_TIMEOUT_S = 10
# Of Sexton's own sessions on direct connections: none of them is ever named as one to end.
APPLICATION_NAMES = ("sexton", "sexton leadership", "sexton listener", "sexton migrate")
WRITABLE = SessionAttribute.read_write  # a load balancer may route to a node before its promotion is done

# Plans must not depend on statistics of a table that was empty a minute ago. The locks of a dead host must be freed in
# seconds.
_SERVER_SETTINGS = {
    "application_name": "sexton",
    "statement_timeout": f"{STATEMENT_TIMEOUT_S}s",
    "idle_in_transaction_session_timeout": "60s",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "3",
}
_SUBMIT = "sexton.submit_lock_timeout"  # read by sexton.submit_jobs
_SCHEDULE = "sexton.schedule_lock_timeout"  # read by sexton.submit_schedules and sexton.lock_named
_POOLED_BEGIN = f"BEGIN; SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT_S}s'"

Row = Any  # a record: fields by position or by name


class Connection(Protocol):
    """What a store function needs of a connection."""

    async def fetch(self, query: str, *args: Any) -> list[Row]: ...

    async def execute(self, query: str) -> Any: ...


class Database(Protocol):
    """What services use. A simulation wraps it and injects faults between statements."""

    def connection(self) -> Any:
        """An async context manager for a connection with single statements, each in its own transaction."""

    def transaction(self) -> Any:
        """An async context manager for a connection inside one transaction."""


class ClientEnd(NamedTuple):
    """This process's end of a direct connection. If the server sees the same address and port, nothing in between ends one side
    of the connection without the other."""

    number: int  # in this process, never used again
    address: str | None = None  # both are null for a Unix socket
    port: int | None = None


def client_end(connection: Connection) -> ClientEnd | None:
    """Null behind a pooler: there, the session may be another one in the next transaction."""
    end: ClientEnd | None = getattr(connection, "client_end", None)
    return end


class Session:
    """A pooled connection. Errors of the driver are translated; exceptions of the caller are not."""

    __slots__ = ("_direct", "raw")

    def __init__(self, raw: Any, *, direct: bool = False) -> None:
        self.raw = raw  # the driver's connection, for a handler inside ctx.transaction()
        self._direct = direct

    @property
    def client_end(self) -> ClientEnd | None:
        end: ClientEnd | None = self.raw.client_end if self._direct else None
        return end

    async def fetch(self, query: str, *args: Any) -> list[Row]:
        with translated_errors():
            rows: list[Row] = await self.raw.fetch(query, *args)
        return rows

    async def execute(self, query: str, timeout_s: float | None = None) -> Any:
        with translated_errors():
            return await self.raw.execute(query, timeout=timeout_s)


class LockTimeouts(NamedTuple):
    """How long the statements of a pool wait for other transactions."""

    lock_s: float = LOCK_TIMEOUT_S
    submit_s: float | None = None  # for submissions; None: the 2 s of `sexton.submit_jobs`
    schedule_s: float | None = None  # for submissions of schedules; None: the 2 s of `sexton.submit_schedules`

    def settings(self) -> dict[str, str]:
        named = {"lock_timeout": f"{self.lock_s * 1000:g}ms"}
        if self.submit_s is not None:
            named[_SUBMIT] = f"{self.submit_s * 1000:g}ms"
        if self.schedule_s is not None:
            named[_SCHEDULE] = f"{self.schedule_s * 1000:g}ms"
        return named


PATIENT = LockTimeouts()
SHARED = LockTimeouts(SHARED_LOCK_TIMEOUT_S, SUBMIT_LOCK_TIMEOUT_S, SUBMIT_LOCK_TIMEOUT_S)
SHARED_BY_SUBMITTERS = LockTimeouts(submit_s=SUBMIT_LOCK_TIMEOUT_S)


class Postgres:
    """The real `Database`."""

    def __init__(self, pool: asyncpg.Pool, url: str, *, direct: bool, timeouts: LockTimeouts = PATIENT) -> None:
        self._pool = pool
        self._create: Callable[[], Awaitable[asyncpg.Pool]] | None = None
        self._only_server = OnlyServer.of(url)
        self.url = url
        self.direct = direct
        own = "".join(f"; SET LOCAL {name} = '{value}'" for name, value in timeouts.settings().items())
        self._begin = "BEGIN" if direct else _POOLED_BEGIN + own

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        size: int = 4,
        writable: bool = True,
        timeouts: LockTimeouts = PATIENT,
        direct: bool | None = None,
        ended: Callable[[int], object] | None = None,
    ) -> Postgres:
        """`writable`: a read-only server counts as unavailable. `direct`: whether the URL leads there without a pooler, if that
        was tested before. `ended` is called with the number of each connection that has ended, for whatever reason."""
        if direct is None:
            direct = await is_direct(url)

        def create() -> Awaitable[asyncpg.Pool]:
            return asyncpg.create_pool(
                url,
                min_size=0,
                max_size=size,
                timeout=CONNECT_TIMEOUT_S,
                command_timeout=STATEMENT_TIMEOUT_S + 5,
                statement_cache_size=200 if direct else 0,
                server_settings=_SERVER_SETTINGS | timeouts.settings() if direct else None,
                # A pooler may report the value of another server or an earlier time.
                target_session_attrs=WRITABLE if direct and writable else None,
                init=None if ended is None else _telling(ended),
                reset=_keep_as_is,
                connection_class=_Connection,
            )

        with translated_errors():
            database = cls(await create(), url, direct=direct, timeouts=timeouts)
        database._create = create
        return database

    async def beside(self, *, size: int) -> Postgres:
        """A second pool on the same database, for callers that have to wait. It opens a connection when one is needed."""
        return await Postgres.open(self.url, size=size, direct=self.direct)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Session]:
        if not self.direct:
            async with self.transaction() as session:
                yield session
            return
        async with self._acquired() as session:
            yield session

    @asynccontextmanager
    async def transaction(self, *, patient: bool = False) -> AsyncIterator[Session]:
        """`patient`: submissions in it wait for other transactions as long as usual, on a shared connection too."""
        async with self._acquired() as session:
            await session.execute(f"{self._begin}; SET LOCAL {_SUBMIT} = ''" if patient else self._begin)
            try:
                yield session
            except BaseException:
                with suppress(DatabaseUnavailable):  # a lost connection has already rolled back
                    await session.execute("ROLLBACK")
                raise
            if await session.execute("COMMIT") != "COMMIT":  # PostgreSQL answers a failed transaction with ROLLBACK
                raise Contention("a statement of this transaction failed, so the whole transaction was rolled back")

    @asynccontextmanager
    async def _acquired(self) -> AsyncIterator[Session]:
        with translated_errors():
            try:
                raw = await self._pool.acquire(timeout=CONNECT_TIMEOUT_S)
            except Exception as error:
                if self._only_server is not None and self._only_server.is_down(error):
                    raise DatabaseDown(told(error)) from error
                raise
        try:
            yield Session(raw, direct=self.direct)
        except DatabaseRefused:
            raise
        except DatabaseUnavailable as error:
            if not is_of_one_statement(error.__cause__):
                await self.renew()  # the others may be dead as well: the next try must not wait for each of them in turn
            raise
        finally:
            with translated_errors():
                await self._pool.release(raw)

    async def renew(self) -> None:
        """No open connection is used again: it may be dead without any sign of it."""
        await self._pool.expire_connections()

    @property
    def is_closed(self) -> bool:
        """Perhaps by other code of this process."""
        return bool(self._pool.is_closing())

    async def reopen(self) -> None:
        if self._create is not None:
            with translated_errors():
                self._pool = await self._create()

    async def close(self) -> None:
        try:
            await asyncio.wait_for(self._pool.close(), 5)
        except BROKEN:
            self._pool.terminate()


_numbers = count(1)


class _Connection(asyncpg.Connection):
    def __init__(self, protocol: Any, transport: asyncio.BaseTransport, *args: Any) -> None:
        super().__init__(protocol, transport, *args)
        set_tcp_keepalive(transport)
        self.client_end = ClientEnd(next(_numbers), *_address_and_port(transport))

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109  (the driver's own signature)
        """A dead connection cannot be closed cleanly. The driver has aborted it then, and the error is suppressed: the pool
        closes expired connections in tasks of its own, whose errors asyncio would log."""
        with suppress(*BROKEN):
            await super().close(timeout=timeout)


def _address_and_port(transport: asyncio.BaseTransport) -> tuple[str | None, int | None]:
    name = transport.get_extra_info("sockname")
    return (name[0].partition("%")[0], name[1]) if isinstance(name, tuple) else (None, None)


def _telling(ended: Callable[[int], object]) -> Callable[[Any], Coroutine[Any, Any, None]]:
    async def listen(raw: Any) -> None:
        number = raw.client_end.number
        raw.add_termination_listener(lambda _connection: ended(number))

    return listen


async def _keep_as_is(_connection: asyncpg.Connection) -> None:
    """Sexton's connections have no session state to reset; the default would cost a round trip per use."""


async def connect(url: str, **options: Any) -> asyncpg.Connection:
    """One connection outside any pool."""
    with translated_errors():
        return await asyncpg.connect(
            url, timeout=CONNECT_TIMEOUT_S, statement_cache_size=0, connection_class=_Connection, **options
        )


async def is_direct(url: str) -> bool:
    """Tests the connection: a pooler does not report the process id of the server process that runs the statement."""
    connection = await connect(url)
    try:
        with translated_errors():
            async with connection.transaction():
                return bool(await connection.fetchval("SELECT pg_backend_pid()") == connection.get_server_pid())
    finally:
        await connection.close(timeout=CONNECT_TIMEOUT_S)
