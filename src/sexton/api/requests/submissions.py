"""A job request as the document that the store takes, with the payload as the caller wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from sexton.api.answers.problems import Refused, invalid
from sexton.api.state import ApiRequest
from sexton.clock import host_now
from sexton.domain.fault import Invalid
from sexton.domain.job import PAYLOAD_BYTES_LIMIT, Submission, has_escaped_nul
from sexton.domain.schedule.document import OnName, ScheduleDocument
from sexton.wire import Fault, JobRequest, RunRequest

from .bodies import DEPTH_LIMIT
from .faults import checked, fault_in, refusal_of

_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def submission_of(request: JobRequest, *, submitted_by: str, trace: str | None = None, key: str | None = None) -> Submission:
    """The document for the store, with the payload as the caller wrote it."""
    if key is not None:
        request = msgspec.structs.replace(request, idempotency_key=key)
    try:
        document = _submission(request, submitted_by, trace)
    except (Invalid, Refused) as first:
        raise refusal_of(request, lambda one: _submission(one, submitted_by, trace), first) from None
    if document.run_at is not None:  # so that one instant in two spellings is one submission
        return msgspec.structs.replace(document, run_at=document.run_at.astimezone(UTC))
    return document


def schedule_of(
    request: JobRequest, *, now: datetime, on_name: OnName, submitted_by: str, trace: str | None = None, key: str | None = None
) -> ScheduleDocument:
    """The document of a recurring job, its rule checked as of `now`."""
    if key is not None:
        request = msgspec.structs.replace(request, idempotency_key=key)
    return checked(request, lambda one: _schedule(one, now, on_name, submitted_by, trace))


def check_job(request: JobRequest) -> None:
    """The rules that a request breaks; a schedule is checked at this host's time."""
    if request.is_recurring:
        _schedule(request, host_now(), "refuse", None, None)
    else:
        _submission(request, None, None)


def _submission(request: JobRequest, submitted_by: str | None, trace: str | None) -> Submission:
    check_payload(request.payload)
    return request.to_domain(submitted_by=submitted_by, trace=trace)


def _schedule(
    request: JobRequest, now: datetime, on_name: OnName, submitted_by: str | None, trace: str | None
) -> ScheduleDocument:
    check_payload(request.payload)
    return request.to_schedule(now=now, on_name=on_name, submitted_by=submitted_by, trace=trace)


def check_payload(payload: msgspec.Raw, at: str = "/payload", bytes_limit: int = PAYLOAD_BYTES_LIMIT) -> None:
    """Rejects a payload that a worker could not read or PostgreSQL could not store. Numbers of any length stay as they are."""
    text = bytes(payload)
    if len(text) > bytes_limit:
        detail = f"{len(text):,} bytes, the limit is {bytes_limit:,}; store the data elsewhere and submit a reference"
        raise Refused("too_large", f"{at}: {detail}", [Fault(pointer=at, detail=detail)])
    try:
        value = msgspec.json.decode(text)
    except msgspec.ValidationError as error:  # a number outside the range of floats
        raise invalid(at + fault_in(str(error)).pointer, fault_in(str(error)).detail) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused("malformed", f"{at}: {error}", [Fault(pointer=at, detail=str(error))]) from None
    except RecursionError:
        raise _too_deep(at) from None
    if text.count(b"[") + text.count(b"{") > DEPTH_LIMIT and _depth_of(value) > DEPTH_LIMIT:
        raise _too_deep(at)
    if has_escaped_nul(text):
        raise invalid(at, "holds a NUL character (U+0000), which PostgreSQL cannot store")


def payload_of(asked: RunRequest) -> msgspec.Raw | None:
    """The payload of a run by hand, checked as in a submission."""
    if asked.payload is msgspec.UNSET:
        return None
    check_payload(asked.payload)
    return asked.payload


def _too_deep(at: str) -> Refused:
    return invalid(at, f"nested more than {DEPTH_LIMIT} levels deep")


def _depth_of(value: Any) -> int:
    """Level by level, so that no depth exhausts our own stack."""
    depth, level = 0, [value]
    while level := [inner for outer in level for inner in _inside(outer)]:
        depth += 1
    return depth


def _inside(value: Any) -> Iterable[Any]:
    match value:
        case dict():
            return list(value.values()) or (None,)
        case list():
            return value or (None,)
        case _:
            return ()


def key_of(request: ApiRequest, body_key: str | None) -> str | None:
    """The idempotency key, from the header (bare or quoted) or the body; both may be given if they agree."""
    header = request.headers.get("idempotency-key")
    if header is None:
        return body_key
    if len(header) >= 2 and header[0] == header[-1] == '"':
        header = header[1:-1]
    if not 1 <= len(header) <= 200 or not header.isascii() or not header.isprintable():
        raise invalid(
            "Idempotency-Key", "give 1 to 200 printable ASCII characters; send any other key as `idempotency_key` in the body"
        )
    if body_key is not None and body_key != header:
        raise invalid("/idempotency_key", "differs from the Idempotency-Key header; give one of them")
    return header


def trace_of(request: ApiRequest) -> str | None:
    """A malformed `traceparent` counts as none (W3C Trace Context)."""
    header = request.headers.get("traceparent")
    return header if header is not None and _TRACEPARENT.fullmatch(header) else None
