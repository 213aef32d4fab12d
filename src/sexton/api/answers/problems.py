"""Problem documents (RFC 9457). Every failure of a request becomes one, with a stable code and a pointer per fault."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec
from litestar import Response
from litestar.exceptions import HTTPException

from sexton import errors
from sexton.api.state import ApiRequest, request_id_of, state_of
from sexton.domain.fault import Invalid
from sexton.telemetry.events import ServiceFailed
from sexton.wire import Fault, Problem

MEDIA_TYPE = "application/problem+json"


class Kind(NamedTuple):
    status: int
    title: str


KINDS: Mapping[str, Kind] = {
    "malformed": Kind(400, "The request cannot be read"),
    "lease_invalid": Kind(401, "This is not a lease of that run"),
    "other_site": Kind(403, "A page of another site may not do this"),
    "not_found": Kind(404, "It does not exist"),
    "method_not_allowed": Kind(405, "This address does not allow this method"),
    "too_slow": Kind(408, "The request takes too long to arrive"),
    "conflict": Kind(409, "Its state does not allow this"),
    "already_exists": Kind(409, "The name already exists"),
    "lease_lost": Kind(409, "The lease is lost: stop, and discard the result"),
    "worker_lost": Kind(409, "This worker was declared dead: other workers have its runs"),
    "idempotency_key_busy": Kind(409, "The first submission with this key is still running"),
    "version_mismatch": Kind(412, "It was changed meanwhile"),
    "too_large": Kind(413, "The request is too large"),
    "unsupported_media_type": Kind(415, "This media type is not supported"),
    "invalid": Kind(422, "The request breaks a rule"),
    "idempotency_key_reused": Kind(422, "The idempotency key belongs to another submission"),
    "limit_exceeded": Kind(429, "The tenant has reached a submission limit"),
    "head_too_large": Kind(431, "The header of the request is too large"),
    "internal": Kind(500, "Internal error"),
    "contention": Kind(503, "Another transaction was in the way"),
    "database_unavailable": Kind(503, "The database cannot be reached"),
    "not_ready": Kind(503, "The database is not ready for this version"),
    "overloaded": Kind(503, "Too many requests are waiting"),
}
_CODE_OF_STATUS = {
    400: "malformed",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
}


class Refused(Exception):
    """Ends a request with a problem; nothing was changed. `code` is one of `KINDS`."""

    def __init__(
        self,
        code: str,
        detail: str,
        faults: Sequence[Fault] = (),
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.code, self.detail, self.faults, self.headers = code, detail, tuple(faults), dict(headers or {})
        self.more = dict(more or {})  # fields of the problem in addition to the usual ones


def pointer(*path: str | int) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def invalid(at: str, detail: str) -> Refused:
    return Refused("invalid", f"{at}: {detail}" if at else detail, [Fault(pointer=at, detail=detail)])


def fault_of(error: Invalid) -> Fault:
    return Fault(pointer=pointer(*error.field.split(".")), detail=error.message)


def refusal(error: Exception) -> Refused | None:
    """The problem of an error; `None` if the error is an internal one."""
    match error:
        case Refused():
            return error
        case Invalid():
            fault = fault_of(error)
            return invalid(fault.pointer, fault.detail)
        case errors.InvalidSubmission():
            return invalid(error.field, error.message)
        case HTTPException():
            return _of_framework(error)
        case errors.SextonError():
            return _of_ours(error)
        case _:
            return None


def over_limit(error: errors.LimitExceeded, at: str = "/tenant") -> Refused:
    wait_s = error.retry_after_s
    headers = {} if wait_s is None else {"Retry-After": str(max(1, math.ceil(wait_s)))}
    more = {"limit": error.limit, "max": error.max, "retry_after_s": wait_s}
    return Refused(error.code, str(error), [Fault(pointer=at, detail=str(error))], headers, more)


def _of_ours(error: errors.SextonError) -> Refused | None:
    match error:
        case errors.LimitExceeded():
            return over_limit(error)
        case errors.KeyReused():
            detail = "it was used for a different submission; use a new key, or send the first submission again unchanged"
            return Refused(error.code, str(error), [Fault(pointer="/idempotency_key", detail=detail)])
        case errors.AlreadyExists():
            return Refused(error.code, str(error), [Fault(pointer="/name", detail=str(error))])
        case errors.KeyBusy():
            return Refused(error.code, str(error), headers={"Retry-After": "1"})
        case errors.SchemaMismatch() | errors.ForeignDatabase() | errors.DatabaseRefused():
            return Refused("not_ready", str(error))
        case errors.DatabaseUnavailable():
            return Refused(error.code, "PostgreSQL cannot be reached; try again shortly", headers={"Retry-After": "2"})
        case errors.Contention():
            what = (
                str(error)
                if error.waits_for in ("run", "table")
                else "another transaction holds a lock that this needs; sexton doctor names its session"
            )
            return Refused(
                error.code, f"{what}; nothing was changed, and it is safe to try again", headers={"Retry-After": "1"}
            )
        case errors.DataRefused():
            return Refused("invalid", f"PostgreSQL cannot store a value that was sent: {error}")
        case _ if error.code in KINDS:
            return Refused(error.code, str(error))
        case _:
            return None


def _of_framework(error: HTTPException) -> Refused | None:
    code = _CODE_OF_STATUS.get(error.status_code)
    headers = {name.title(): value for name, value in (error.headers or {}).items()}
    match code:
        case None if "disconnected" in error.detail:
            return Refused("malformed", "the caller closed the connection before the whole body arrived")
        case None:
            return None
        case "not_found":
            return Refused(code, "there is nothing at this address; GET /schema lists every call")
        case "method_not_allowed":
            return Refused(code, f"this address takes {headers.get('Allow', 'other methods')}", headers=headers)
        case "too_large":
            return Refused(code, "the body is larger than this call allows; send it in several parts")
        case _:
            return Refused(code, error.detail or HTTPStatus(error.status_code).phrase, headers=headers)


def document(refused: Refused, request_id: str | None = None) -> Problem:
    kind = KINDS[refused.code]
    return Problem(
        type=f"urn:sexton:problem:{refused.code}",
        title=kind.title,
        status=kind.status,
        detail=refused.detail,
        code=refused.code,
        errors=refused.faults,
        **refused.more,
        request_id=request_id,
    )


def answer_problem(request: ApiRequest, error: Exception) -> Response[bytes]:
    """The app's handler for every exception. An unexpected one is logged with the request id, and the answer shows no
    details."""
    request_id = request_id_of(request)
    refused = refusal(error)
    if isinstance(error, errors.DatabaseUnavailable):
        state_of(request).outage_log.failed(error)
    if refused is None:
        state_of(request).emit(ServiceFailed(f"api request {request_id} {request.method} {request.url.path}", error))
        refused = Refused("internal", f"it is in the log under request id {request_id}")
    problem = document(refused, request_id)
    headers: dict[str, Any] = dict(refused.headers)
    return Response(msgspec.json.encode(problem), status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)
