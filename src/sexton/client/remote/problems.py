"""A problem document becomes the error that the SDK would have raised, with the document attached."""

from __future__ import annotations

import httpx
import msgspec

from sexton import errors
from sexton.wire import Problem

# Errors whose only argument is their message.
_BY_CODE: dict[str, type[errors.SextonError]] = {
    kind.code: kind
    for kind in (
        errors.KeyReused,
        errors.KeyBusy,
        errors.UnknownTask,
        errors.NotFound,
        errors.AlreadyExists,
        errors.VersionMismatch,
        errors.DatabaseUnavailable,
        errors.Contention,
        errors.DataRefused,
        errors.SchemaMismatch,
        errors.ForeignDatabase,
    )
}
_BY_CODE["not_ready"] = errors.SchemaMismatch
_INVALID = frozenset({400, 413, 422})
_BUSY = frozenset({429, 502, 503, 504})


def error_in(response: httpx.Response) -> errors.SextonError:
    try:
        problem = msgspec.json.decode(response.content, type=Problem)
    except msgspec.MsgspecError:
        return _without_a_document(response)
    error = _error(problem)
    error.problem = problem
    return error


def _error(problem: Problem) -> errors.SextonError:
    if problem.code == errors.LimitExceeded.code:
        wait_s = problem.retry_after_s
        return errors.LimitExceeded(problem.detail, limit=problem.limit, max=problem.max, retry_after_s=wait_s)
    kind = _BY_CODE.get(problem.code)
    if kind is not None:
        return kind(problem.detail)
    if problem.code == errors.NotAllowedIn.code:
        return errors.NotAllowedIn("change", "in another state", problem.detail)
    if problem.status in _INVALID:
        fault = problem.errors[0] if problem.errors else None
        return errors.InvalidSubmission(*(("", problem.detail) if fault is None else (fault.pointer, fault.detail)))
    if problem.status in _BUSY:
        return errors.ApiUnavailable(problem.detail)
    return errors.ApiError(f"{problem.title}: {problem.detail}", status=problem.status, code=problem.code)


def _without_a_document(response: httpx.Response) -> errors.SextonError:
    """The response comes from a proxy, or from another server."""
    message = f"{response.request.url.path} answered {response.status_code} {response.reason_phrase}"
    if response.status_code in _BUSY:
        return errors.ApiUnavailable(f"{message}; try again shortly")
    return errors.ApiError(f"{message}; is it Sexton's API?", status=response.status_code)
