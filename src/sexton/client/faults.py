"""Whatever is wrong with a submission becomes one of our errors: a rule it breaks here, or PostgreSQL's word through whichever
driver carried it. The original stays as `__cause__`; what is not about the submission goes its way."""

from __future__ import annotations

from typing import NamedTuple

from sexton.domain.fault import Invalid
from sexton.errors import InvalidSubmission, KeyBusy, KeyReused, SextonError
from sexton.store.database import limit_exceeded, translated_errors

_WHOLE = ""  # the JSON pointer to the whole document
_OPTIONS = frozenset({"task", "payload", "run_at", "delay", "priority", "key", "limit"})
_CONSTRAINTS = {
    "payload_is_at_most_256_kib": ("/payload", "more than 262,144 bytes; store the data elsewhere and submit a reference"),
    "task_is_named": ("/task", "name the task to run"),
    "lane_is_known": ("/priority", "use critical, high, normal or low"),
}


class _Said(NamedTuple):
    """A server's error, whichever driver brought it."""

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
    said = _said(error)
    match said:
        case _Said("SX422"):
            return KeyReused(said.message)
        case _Said("SX429"):
            return limit_exceeded(said.message, said.detail)
        case _Said("55P03") if "idempotency_keys" in said.context:
            return KeyBusy("the first submission with this key has not committed yet; try again shortly")
        case _Said("23514") if said.constraint in _CONSTRAINTS:
            return InvalidSubmission(*_CONSTRAINTS[said.constraint])
        case _Said(state) if state.startswith("22"):  # a data exception
            name, _, message = said.message.partition(": ")
            path = name.split(".")
            return InvalidSubmission(*((pointer(*path), message) if path[0] in _OPTIONS else (_WHOLE, said.message)))
        case _:
            return None


def _said(error: BaseException) -> _Said | None:
    """SQLAlchemy and Django wrap the driver's error; the driver's own knows most, and it is the innermost with a state."""
    said = None
    link: BaseException | None = error
    while link is not None:
        state = getattr(link, "sqlstate", None)
        if isinstance(state, str):
            diagnosis = getattr(link, "diag", link)
            said = _Said(
                state,
                getattr(diagnosis, "message_primary", None) or getattr(link, "message", None) or str(link),
                getattr(diagnosis, "context", None) or "",
                getattr(diagnosis, "constraint_name", None),
                getattr(diagnosis, "message_detail", None) or getattr(diagnosis, "detail", None),
            )
        link = getattr(link, "orig", None) or link.__cause__
    return said
