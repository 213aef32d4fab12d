"""Translates the driver's errors into errors of Sexton, which say what the caller may do."""

from __future__ import annotations

import asyncpg
import msgspec

from sexton.errors import (
    AlreadyExists,
    Contention,
    DatabaseRefused,
    DatabaseUnavailable,
    DataRefused,
    InvalidSubmission,
    KeyBusy,
    KeyReused,
    LimitExceeded,
)

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
# What the driver raises when it closes a connection that has ended already.
BROKEN = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
GRANT = "grant it to the role of SEXTON_DATABASE_URL, or use the role that migrated"
RESTORE = "run: sexton migrate; or give the table its name back"
# What to do about it, for errors that last until a person corrects their cause.
_REFUSED: dict[type[BaseException], str] = {
    asyncpg.InsufficientPrivilegeError: GRANT,
    asyncpg.UndefinedTableError: RESTORE,
    asyncpg.UndefinedColumnError: "run: sexton migrate",
    asyncpg.UndefinedFunctionError: "run: sexton migrate",
    asyncpg.InvalidSchemaNameError: "run: sexton migrate",
}
_CLOSED = "allow connections to it again: ALTER DATABASE … ALLOW_CONNECTIONS true"
READ_ONLY = "the server accepts no writes: it is a standby, or default_transaction_read_only is on for the database or role"
_CONTENTION = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.LockNotAvailableError)
# What a submission waits for, by the function that waits, as in `sexton.submit_each`.
_WAITS = (("claim_unique(", "unique"), ("make_limits(", "limit"), ("check_submissions(", "tenant"))


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
    if _ends_session(error):
        return _outage(error)
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
        place = str(getattr(error, "context", "") or "") if state == "55P03" else ""
        if "claim_keys(" in place:
            return KeyBusy("another transaction has submitted a job with this key and has not committed; try again shortly")
        return Contention(str(error), waits_for=next((what for name, what in _WAITS if name in place), None))
    if isinstance(error, asyncpg.DataError | asyncpg.IntegrityConstraintViolationError) or (
        isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)  # an argument that the driver cannot encode
    ):
        return DataRefused(str(error))
    return _outage(error)


def _outage(error: BaseException) -> DatabaseUnavailable | None:
    if (fix := _REFUSED.get(type(error))) is not None:
        return DatabaseRefused(str(error), fix)
    if _ends_session(error):
        closed = type(error) is asyncpg.ObjectNotInPrerequisiteStateError
        return DatabaseRefused(str(error), _CLOSED) if closed else DatabaseUnavailable(told(error))
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return DatabaseUnavailable(READ_ONLY)
    if isinstance(error, _UNAVAILABLE):
        return DatabaseUnavailable(told(error))
    return None


def told(error: BaseException) -> str:
    if type(error) is asyncpg.InternalClientError:  # its message describes the state of the driver
        return "the connection ended during a statement"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _ends_session(error: BaseException) -> bool:
    """Whatever its SQLSTATE: the server has ended the session, or has refused to begin one. Of a statement, the same SQLSTATE
    may be a bug, such as 55000. A pooler may pass it on without the field that no server translates."""
    return (getattr(error, "severity_en", None) or getattr(error, "severity", None)) in ("FATAL", "PANIC")


def took_too_long(error: BaseException | None) -> bool:
    """A statement reached its timeout, or was cancelled: that alone is no outage."""
    return isinstance(error, asyncpg.QueryCanceledError)


def is_of_one_statement(error: BaseException | None) -> bool:
    """The server has answered, as with a full disk or a statement that took too long, and the session goes on. An error that
    ends it is FATAL."""
    return getattr(error, "severity_en", None) == "ERROR"


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
