"""The connection to PostgreSQL: a pool, transactions, and the check whether the connection is direct or through a pooler.

No asyncpg type or error may leave `sexton.store`. Behind a transaction-mode pooler no statement stays prepared, and every
statement runs inside an explicit transaction: rule "session state only on direct connections".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

import asyncpg
import msgspec
from asyncpg.connect_utils import SessionAttribute

from sexton.errors import (
    AlreadyExists,
    Contention,
    DatabaseUnavailable,
    DataRefused,
    InvalidSubmission,
    KeyBusy,
    KeyReused,
    LimitExceeded,
)

from .postgres.tcp_keepalive import set_tcp_keepalive

STATEMENT_TIMEOUT_S = 30
LOCK_TIMEOUT_S = 5
CONNECT_TIMEOUT_S = 10
WRITABLE = SessionAttribute.read_write  # a load balancer may route to a node before its promotion is done

# Plans must not depend on statistics of a table that was empty a minute ago. The locks of a dead host must be freed in
# seconds.
_SERVER_SETTINGS = {
    "application_name": "sexton",
    "statement_timeout": f"{STATEMENT_TIMEOUT_S}s",
    "lock_timeout": f"{LOCK_TIMEOUT_S}s",
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
_POOLED_BEGIN = f"BEGIN; SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT_S}s'; SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'"

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


class Session:
    """A pooled connection. Errors of the driver are translated; exceptions of the caller are not."""

    __slots__ = ("raw",)

    def __init__(self, raw: Any) -> None:
        self.raw = raw  # the driver's connection, for a handler inside ctx.transaction()

    async def fetch(self, query: str, *args: Any) -> list[Row]:
        with translated_errors():
            rows: list[Row] = await self.raw.fetch(query, *args)
        return rows

    async def execute(self, query: str, timeout_s: float | None = None) -> Any:
        with translated_errors():
            return await self.raw.execute(query, timeout=timeout_s)


class Postgres:
    """The real `Database`."""

    def __init__(self, pool: asyncpg.Pool, url: str, *, direct: bool) -> None:
        self._pool = pool
        self.url = url
        self.direct = direct

    @classmethod
    async def open(cls, url: str, *, size: int = 4, writable: bool = True) -> Postgres:
        """`writable`: a read-only server counts as unavailable."""
        direct = await is_direct(url)
        with translated_errors():
            pool = await asyncpg.create_pool(
                url,
                min_size=0,
                max_size=size,
                timeout=CONNECT_TIMEOUT_S,
                command_timeout=STATEMENT_TIMEOUT_S + 5,
                statement_cache_size=200 if direct else 0,
                server_settings=_SERVER_SETTINGS if direct else None,
                # A pooler may report the value of another server or an earlier time.
                target_session_attrs=WRITABLE if direct and writable else None,
                reset=_keep_as_is,
                connection_class=_Connection,
            )
        return cls(pool, url, direct=direct)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Session]:
        if not self.direct:
            async with self.transaction() as session:
                yield session
            return
        async with self._acquired() as session:
            yield session

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        async with self._acquired() as session:
            await session.execute("BEGIN" if self.direct else _POOLED_BEGIN)
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
            raw = await self._pool.acquire(timeout=CONNECT_TIMEOUT_S)
        try:
            yield Session(raw)
        finally:
            with translated_errors():
                await self._pool.release(raw)

    async def renew(self) -> None:
        """No open connection is used again: it may be dead without any sign of it."""
        await self._pool.expire_connections()

    async def close(self) -> None:
        try:
            await asyncio.wait_for(self._pool.close(), 5)
        except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            self._pool.terminate()


class _Connection(asyncpg.Connection):
    def __init__(self, protocol: Any, transport: asyncio.BaseTransport, *args: Any) -> None:
        super().__init__(protocol, transport, *args)
        set_tcp_keepalive(transport)

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109  (the driver's own signature)
        """A dead connection cannot be closed cleanly. The driver has aborted it then, and the error is suppressed."""
        with suppress(TimeoutError):
            await super().close(timeout=timeout)


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


_UNAVAILABLE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InternalClientError,
    asyncpg.DiskFullError,
    asyncpg.ReadOnlySQLTransactionError,  # a standby, or a primary in read-only mode
    asyncpg.QueryCanceledError,
    asyncpg.ProtocolViolationError,
    asyncpg.InvalidAuthorizationSpecificationError,  # a wrong password, until it is corrected
    asyncpg.InvalidCatalogNameError,  # the database does not exist, or not yet
)
_CONTENTION = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.LockNotAvailableError)


class translated_errors:  # noqa: N801  (a context manager reads as a verb)
    """Translates the driver's errors into errors of Sexton. A plain class, because it is on the hot path."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            translation = self.translation(error)
            if translation is not None:
                raise translation from error

    def translation(self, error: BaseException) -> Exception | None:
        return translate(error)


def translate(error: BaseException) -> Exception | None:
    """The translated error; `None` if the error is not translated."""
    state = getattr(error, "sqlstate", None)
    if state == "SX422":
        return KeyReused(str(getattr(error, "message", error)))
    if state == "SX429":
        return limit_exceeded(str(getattr(error, "message", error)), getattr(error, "detail", None))
    if state == "22023" and str(getattr(error, "message", "")).startswith("limit."):
        field, _, message = str(getattr(error, "message", "")).partition(": ")
        return InvalidSubmission("/" + field.replace(".", "/"), message)
    if state == "SX409" or getattr(error, "constraint_name", None) == "schedule_names":
        return AlreadyExists("a recurring job with this name already exists; choose another name, or update it")
    if isinstance(error, _CONTENTION):
        if state == "55P03" and "claim_keys(" in str(getattr(error, "context", "") or ""):
            return KeyBusy("the first submission with this key has not committed yet; try again shortly")
        return Contention(str(error))
    if isinstance(error, asyncpg.DataError | asyncpg.IntegrityConstraintViolationError) or (
        isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)  # an argument that the driver cannot encode
    ):
        return DataRefused(str(error))
    if isinstance(error, _UNAVAILABLE):
        return DatabaseUnavailable(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    return None


def limit_exceeded(message: str, detail: str | None) -> LimitExceeded:
    """The error for SQLSTATE SX429, for any driver. Its DETAIL is JSON and names the limit."""
    try:
        exceeded = msgspec.json.decode(detail or "{}", type=_Exceeded)
    except msgspec.DecodeError:
        exceeded = _Exceeded()
    return LimitExceeded(
        message, limit=exceeded.limit, tenant=exceeded.tenant, max=exceeded.max, retry_after_s=exceeded.retry_after_s
    )


class _Exceeded(msgspec.Struct):
    limit: str | None = None
    tenant: str | None = None
    max: int | float | None = None
    retry_after_s: int | float | None = None
