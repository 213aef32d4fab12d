"""Translates every error of a submission into an error of Sexton: a failed check here, or an error of PostgreSQL from any
driver. The original stays as `__cause__`. Errors that are not about the submission are not translated."""

from __future__ import annotations

from typing import NamedTuple

from sexton.domain.fault import Invalid
from sexton.errors import InvalidSubmission, KeyBusy, KeyReused, SextonError
from sexton.store.postgres.driver_errors import limit_exceeded, translated_errors

_WHOLE = ""  # the JSON pointer to the whole document
_OPTIONS = frozenset({"task", "payload", "run_at", "delay", "priority", "key", "limit"})
_CONSTRAINTS = {
    "payload_is_at_most_256_kib": ("/payload", "has more than 262,144 bytes; store the data elsewhere and submit a reference"),
    "task_is_named": ("/task", "is missing; give the name of the task to run"),
    "lane_is_known": ("/priority", "use critical, high, normal or low"),
}


class _ServerError(NamedTuple):
    """An error of the server, independent of the driver."""

    state: str
    message: str
    context: str
    constraint: str | None
    detail: str | None


class submission_faults(translated_errors):  # noqa: N801  (a context manager reads as a phrase)
    __slots__ = ()

    def translation(self, error: BaseException) -> SextonError | None:
        return _translate(error)


def pointer(*path: str) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


def _translate(error: BaseException) -> SextonError | None:
    if isinstance(error, SextonError):
        return None
    if isinstance(error, Invalid):
        return InvalidSubmission(pointer(*error.field.split(".")), error.message)
    server_error = _server_error(error)
    match server_error:
        case _ServerError("SX422"):
            return KeyReused(server_error.message)
        case _ServerError("SX429"):
            return limit_exceeded(server_error.message, server_error.detail)
        case _ServerError("55P03") if "idempotency_keys" in server_error.context:
            return KeyBusy("the first submission with this key has not committed yet; try again shortly")
        case _ServerError("23514") if server_error.constraint in _CONSTRAINTS:
            return InvalidSubmission(*_CONSTRAINTS[server_error.constraint])
        case _ServerError(state) if state.startswith("22"):  # a data exception
            name, _, message = server_error.message.partition(": ")
            path = name.split(".")
            return InvalidSubmission(*((pointer(*path), message) if path[0] in _OPTIONS else (_WHOLE, server_error.message)))
        case _:
            return None


def _server_error(error: BaseException) -> _ServerError | None:
    """SQLAlchemy and Django wrap the driver's error. The innermost error with an SQLSTATE is the driver's own."""
    server_error = None
    link: BaseException | None = error
    while link is not None:
        state = getattr(link, "sqlstate", None)
        if isinstance(state, str):
            diagnosis = getattr(link, "diag", link)
            server_error = _ServerError(
                state,
                getattr(diagnosis, "message_primary", None) or getattr(link, "message", None) or str(link),
                getattr(diagnosis, "context", None) or "",
                getattr(diagnosis, "constraint_name", None),
                getattr(diagnosis, "message_detail", None) or getattr(diagnosis, "detail", None),
            )
        link = getattr(link, "orig", None) or link.__cause__
    return server_error
