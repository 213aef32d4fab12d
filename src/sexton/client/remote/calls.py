"""Every call of the API, built once for both faces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, Unpack
from urllib.parse import quote
from uuid import UUID

import msgspec

from sexton import wire
from sexton.client.faults import submission_faults
from sexton.client.options import BEHAVIOUR, RULE, Options, ScheduleOptions
from sexton.domain.duration import Duration
from sexton.domain.job import BATCH_LIMIT, Unique, encoded_payload
from sexton.domain.limit import limit_of
from sexton.domain.retry import Retry
from sexton.domain.schedule.backfill import Fires as BackfillFires
from sexton.domain.schedule.backfill import Overlap as BackfillOverlap
from sexton.domain.schedule.document import OnName
from sexton.domain.targets import Target
from sexton.errors import InvalidSubmission
from sexton.ids import request_key

from .call import Call

PAGE = 500
CHUNK_BYTES = 8 * 1024 * 1024  # of a bulk submission: jobs with large payloads go in smaller chunks
OWN_KEY_TTL = "1h"  # far longer than we try
_FAR = frozenset({503})


class JobFilters(TypedDict, total=False):
    kind: Literal["once", "recurring"] | None
    status: wire.JobStatus | None
    name: str | None
    tag: str | None
    tenant: str | None
    queue: str | None
    handler: str | None
    submitted_from: datetime | None
    submitted_until: datetime | None


class ExecutionFilters(TypedDict, total=False):
    status: wire.ExecutionStatus | None
    tenant: str | None
    queue: str | None
    handler: str | None
    started_from: datetime | None
    started_until: datetime | None


class LetterFilters(TypedDict, total=False):
    handler: str | None
    tenant: str | None
    queue: str | None
    permanent: bool | None


class EventFilters(TypedDict, total=False):
    job_id: UUID | None
    tenant: str | None
    queue: str | None
    handler: str | None
    type: str | None


def request(handler: str | Target, payload: Any = None, **options: Unpack[Options]) -> wire.JobRequest:
    """A job to be submitted, from the words that `App.submit` takes."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    for name in ("submitted_by", "trace"):
        if given.pop(name, None) is not None:
            raise InvalidSubmission(f"/{name}", "the API itself says who submits; leave it out")
    with submission_faults():
        body = encoded_payload({} if payload is None else payload)
    retry, unique, limit = given.pop("retry", None), given.pop("unique", None), given.pop("limit", None)
    key, key_ttl, tags = given.pop("key", None), given.pop("key_ttl", None), given.pop("tags", None)
    return wire.JobRequest(
        handler=handler if isinstance(handler, str) else wire.handler_of(handler),
        payload=body,
        retry=None if retry is None else policy(retry),
        unique=_rule(unique) if isinstance(unique, Unique) else unique,
        limit=_limit(limit),
        tags=None if tags is None else tuple(tags),
        idempotency_key=key,
        idempotency_ttl=span(key_ttl),
        **{name: span(value) for name, value in given.items()},
    )


def schedule_request(handler: str | Target, payload: Any = None, **options: Unpack[ScheduleOptions]) -> wire.JobRequest:
    """A recurring job to be submitted, from the words that `App.schedule` takes."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    timing = {name: _timing(name, given.pop(name)) for name in (RULE | BEHAVIOUR) & given.keys()}
    return msgspec.structs.replace(request(handler, payload, **given), **timing)


def submit(asked: wire.JobRequest, *, own_key: bool, on_name: OnName = "refuse") -> Call[wire.Submitted]:
    """With `own_key` a one-time job without a key gets a random one, so that sending it again cannot double it. A recurring job
    has none: it is sent again only if its name makes that harmless."""
    if asked.is_recurring:
        twice = _is_harmless_twice(asked, on_name)
        return Call("POST", "/v1/jobs", wire.Submitted, query=_on_name(on_name), body=_encoded(asked), repeatable=twice)
    if asked.idempotency_key is None and own_key:
        asked = msgspec.structs.replace(asked, idempotency_key=request_key(), idempotency_ttl=OWN_KEY_TTL)
    keyed = asked.idempotency_key is not None
    return Call("POST", "/v1/jobs", wire.Submitted, body=_encoded(asked), repeatable=keyed)


def batches(
    requests: Iterable[wire.JobRequest], *, partial: bool, on_name: OnName = "refuse"
) -> Iterator[tuple[int, Call[wire.Batch]]]:
    """In chunks that the API takes, each with the number of its first job. Sent again only if twice is as once for each job."""
    lines: list[bytes] = []
    size, first, keyed = 0, 0, True
    for asked in requests:
        line = _on_one_line(_encoded(asked))
        if lines and (len(lines) == BATCH_LIMIT or size + len(line) > CHUNK_BYTES):
            yield first, _batch(lines, partial, keyed, on_name)
            first += len(lines)
            lines, size, keyed = [], 0, True
        lines.append(line)
        size += len(line) + 1
        keyed = keyed and (asked.idempotency_key is not None or _is_harmless_twice(asked, on_name))
    if lines:
        yield first, _batch(lines, partial, keyed, on_name)


def shifted(items: Sequence[wire.BatchItem], first: int) -> list[wire.BatchItem]:
    """Numbered as the caller counts."""
    return [msgspec.structs.replace(item, index=item.index + first) for item in items] if first else list(items)


def shifted_fault(error: InvalidSubmission, first: int) -> InvalidSubmission:
    _, number, *rest = f"{error.field}/".removesuffix("/").split("/") if error.field else ("", "")
    if not number.isdecimal():
        return error
    moved = InvalidSubmission("/" + "/".join([str(int(number) + first), *rest]), error.message)
    moved.problem = error.problem
    return moved


def job(job_id: UUID | str, *, wait_s: float = 0.0) -> Call[wire.Job]:
    """With `wait_s` answered when the job has ended, or when that time is up."""
    return _get(f"/v1/jobs/{_part(job_id)}", wire.Job, wait=f"{wait_s:.3f}s" if wait_s >= 0.001 else None)


def jobs(filters: JobFilters, cursor: str | None, limit: int) -> Call[wire.Page[wire.Job]]:
    return _get("/v1/jobs", wire.Page[wire.Job], **filters, cursor=cursor, limit=limit)


def edit(job_id: UUID | str, changes: wire.JobEdit, version: int | None) -> Call[wire.Job]:
    headers = {} if version is None else {"If-Match": f'"{version}"'}
    return Call("PATCH", f"/v1/jobs/{_part(job_id)}", wire.Job, body=_encoded(changes), headers=headers)


def preview_edit(job_id: UUID | str, changes: wire.JobEdit) -> Call[wire.EditPreview]:
    path, query = f"/v1/jobs/{_part(job_id)}", {"preview": "true"}
    return Call("PATCH", path, wire.EditPreview, query=query, body=_encoded(changes), repeatable=True)


def changes(given: Mapping[str, Any]) -> wire.JobEdit:
    """What is named is changed; `None` goes back to the default."""
    known = {name: _timing(name, value) if name in RULE | BEHAVIOUR else span(value) for name, value in given.items()}
    if "payload" in known:
        with submission_faults():
            known["payload"] = encoded_payload(known["payload"])
    if isinstance(known.get("retry"), Retry):
        known["retry"] = policy(known["retry"])
    if known.get("tags") is not None:
        known["tags"] = tuple(known["tags"])
    try:
        return wire.JobEdit(**known)
    except TypeError:
        wrong = next(name for name in known if name not in wire.JobEdit.__struct_fields__)
        may = ", ".join(wire.JobEdit.__struct_fields__)
        raise InvalidSubmission(f"/{wrong}", f"cannot be changed; what may be: {may}") from None


def set_status(job_id: UUID | str, change: wire.StatusChange) -> Call[wire.Job]:
    return Call("PATCH", f"/v1/jobs/{_part(job_id)}/status", wire.Job, body=_encoded(change))


def preview_resume(job_id: UUID | str) -> Call[wire.ResumePreview]:
    path, body = f"/v1/jobs/{_part(job_id)}/status", _encoded(wire.StatusChange(status="active"))
    return Call("PATCH", path, wire.ResumePreview, query={"preview": "true"}, body=body, repeatable=True)


def cancel(job_id: UUID | str) -> Call[wire.Cancelled]:
    return Call("DELETE", f"/v1/jobs/{_part(job_id)}", wire.Cancelled)


def retry(job_id: UUID | str) -> Call[wire.Job]:
    return Call("POST", f"/v1/jobs/{_part(job_id)}/retry", wire.Job)


def run(job_id: UUID | str, payload: Any = None) -> Call[wire.Job]:
    path = f"/v1/jobs/{_part(job_id)}/run"
    if payload is None:
        return Call("POST", path, wire.Job)
    with submission_faults():
        return Call("POST", path, wire.Job, body=_encoded(wire.RunRequest(payload=encoded_payload(payload))))


def backfill(
    job_id: UUID | str,
    from_at: datetime,
    until: datetime | None,
    *,
    fires: BackfillFires,
    spacing: Duration,
    overlap: BackfillOverlap,
    dry_run: bool,
    version: int | None,
) -> Call[wire.Backfill]:
    asked = wire.BackfillRequest(
        from_at=from_at, until=until, dry_run=dry_run, fires=fires, spacing=span(spacing), overlap=overlap
    )
    headers = {} if version is None else {"If-Match": f'"{version}"'}
    path = f"/v1/jobs/{_part(job_id)}/backfill"
    return Call("POST", path, wire.Backfill, body=_encoded(asked), headers=headers, repeatable=dry_run)


def stop_backfill(job_id: UUID | str) -> Call[wire.BackfillStopped]:
    return Call("DELETE", f"/v1/jobs/{_part(job_id)}/backfill", wire.BackfillStopped)


def why(job_id: UUID | str) -> Call[wire.Why]:
    return _get(f"/v1/jobs/{_part(job_id)}/why", wire.Why)


def preview(job_id: UUID | str | None, after: datetime | None, count: int, rule: Mapping[str, Any]) -> Call[wire.Preview]:
    """Of a job, or of a schedule that need not exist."""
    timing = {name: _timing(name, value) for name, value in rule.items() if value is not None}
    try:
        asked = wire.PreviewRequest(job_id=job_id, after=after, count=count, **timing)  # type: ignore[arg-type]
    except TypeError:
        wrong = next(name for name in timing if name not in wire.PreviewRequest.__struct_fields__)
        raise InvalidSubmission(f"/{wrong}", "is no part of a schedule") from None
    return Call("POST", "/v1/schedules/preview", wire.Preview, body=_encoded(asked), repeatable=True)


def executions_of(job_id: UUID | str, cursor: str | None, limit: int) -> Call[wire.Page[wire.Execution]]:
    return _get(f"/v1/jobs/{_part(job_id)}/executions", wire.Page[wire.Execution], cursor=cursor, limit=limit)


def executions(filters: ExecutionFilters, cursor: str | None, limit: int) -> Call[wire.Page[wire.Execution]]:
    return _get("/v1/executions", wire.Page[wire.Execution], **filters, cursor=cursor, limit=limit)


def execution(execution_id: UUID | str) -> Call[wire.Execution]:
    return _get(f"/v1/executions/{_part(execution_id)}", wire.Execution)


def dead_letters(filters: LetterFilters, cursor: str | None, limit: int) -> Call[wire.Page[wire.DeadLetter]]:
    return _get("/v1/dead-letters", wire.Page[wire.DeadLetter], **filters, cursor=cursor, limit=limit)


def dead_letter(letter_id: UUID | str) -> Call[wire.DeadLetter]:
    return _get(f"/v1/dead-letters/{_part(letter_id)}", wire.DeadLetter)


def replay(
    ids: Iterable[UUID] | None, filters: LetterFilters, *, dry_run: bool, keep_key: bool, limit: int
) -> Call[wire.Replay]:
    body = wire.ReplayRequest(filter=_letters(ids, filters), dry_run=dry_run, keep_key=keep_key, limit=limit)
    return Call("POST", "/v1/dead-letters/replay", wire.Replay, body=_encoded(body), repeatable=dry_run)


def discard(ids: Iterable[UUID] | None, filters: LetterFilters, *, dry_run: bool, limit: int) -> Call[wire.Discard]:
    body = wire.DiscardRequest(filter=_letters(ids, filters), dry_run=dry_run, limit=limit)
    return Call("DELETE", "/v1/dead-letters", wire.Discard, body=_encoded(body), repeatable=dry_run)


def workers() -> Call[wire.Page[wire.Worker]]:
    return _get("/v1/workers", wire.Page[wire.Worker])


def nodes() -> Call[wire.Page[wire.Node]]:
    return _get("/v1/nodes", wire.Page[wire.Node])


def queues() -> Call[wire.Page[wire.QueueView]]:
    return _get("/v1/queues", wire.Page[wire.QueueView])


def queue(name: str) -> Call[wire.QueueView]:
    return _get(f"/v1/queues/{_part(name)}", wire.QueueView)


def tenants() -> Call[wire.Page[wire.TenantView]]:
    return _get("/v1/tenants", wire.Page[wire.TenantView])


def tenant(name: str) -> Call[wire.TenantView]:
    return _get(f"/v1/tenants/{_part(name)}", wire.TenantView)


def stats() -> Call[wire.Stats]:
    return _get("/v1/stats", wire.Stats)


def ready() -> Call[wire.Readiness]:
    """Not ready is an answer too."""
    return Call("GET", "/readyz", wire.Readiness, repeatable=True, expects=_FAR)


def query(**given: Any) -> dict[str, str]:
    """What was said, as HTTP spells it."""
    return {name: _spelled(value) for name, value in given.items() if value is not None}


def _get(path: str, answer: type[Any], **given: Any) -> Call[Any]:
    return Call("GET", path, answer, query=query(**given), repeatable=True)


def _is_harmless_twice(asked: wire.JobRequest, on_name: OnName) -> bool:
    return asked.is_recurring and asked.name is not None and on_name == "update"


def _on_name(on_name: OnName) -> dict[str, str]:
    return {} if on_name == "refuse" else {"on_name": on_name}


def _timing(name: str, value: Any) -> Any:
    """A part of a schedule or of how it behaves, as the wire spells it."""
    if name == "exclude" and value is not None:
        return tuple(one if isinstance(one, str) else _converted(name, one, wire.Stretch) for one in value)
    kind = _KINDS.get(name)
    if kind is None or value is None or isinstance(value, str | int | float | timedelta | kind):
        return span(value)
    return _converted(name, value, kind)


_KINDS: dict[str, type] = {
    "dst": wire.DstRule,
    "jitter": wire.JitterRule,
    "overlap": wire.OverlapRule,
    "catch_up": wire.CatchUpRule,
}


def _converted(name: str, value: Any, kind: type) -> Any:
    plain = {key: span(one) for key, one in value.items()} if isinstance(value, Mapping) else msgspec.to_builtins(value)
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise InvalidSubmission(f"/{name}", str(error)) from None


def _on_one_line(document: bytes) -> bytes:
    """A payload is passed on as it was written, and may have been written over many."""
    return msgspec.json.format(document, indent=-1) if b"\n" in document else document


def _batch(lines: Sequence[bytes], partial: bool, keyed: bool, on_name: OnName) -> Call[wire.Batch]:
    return Call(
        "POST",
        "/v1/jobs/batch",
        wire.Batch,
        query={**({"partial": "true"} if partial else {}), **_on_name(on_name)},
        body=b"\n".join(lines),
        headers={"Content-Type": "application/x-ndjson"},
        repeatable=keyed,
    )


def _limit(given: Any) -> wire.LimitRule | str | None:
    """Checked here, since a caller's mapping has names of its own."""
    if given is None or isinstance(given, str):
        return given
    with submission_faults():
        checked = limit_of(given)
    if checked is None:
        return None
    said = {name: getattr(checked, name) for name in ("key", "running", "count", "burst", "ordered")}
    return wire.LimitRule(**said, per=checked.per_s)


def _letters(ids: Iterable[UUID] | None, filters: LetterFilters) -> wire.DeadLetterFilter:
    return wire.DeadLetterFilter(ids=None if ids is None else tuple(ids), **filters)


def policy(retry: Retry) -> wire.RetryPolicy:
    if retry.rules:
        raise InvalidSubmission("/retry/rules", "rules by exception belong to the task's own code; the API does not take them")
    usual = Retry()
    said = {name: getattr(retry, name) for name in Retry.__struct_fields__ if getattr(retry, name) != getattr(usual, name)}
    return wire.RetryPolicy(**{name.removesuffix("_s"): value for name, value in said.items()})


def _rule(unique: Unique) -> wire.UniqueRule:
    by = tuple("handler" if part == "task" else part for part in unique.by)
    return wire.UniqueRule(by=by, period=unique.holds_s, on_conflict="replace" if unique.replace else "keep")


def span(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _spelled(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat()
        case _:
            return str(value)


def _part(value: UUID | str) -> str:
    """One part of a path, whatever characters it has."""
    return quote(str(value), safe="") or "-"


def _encoded(document: msgspec.Struct) -> bytes:
    try:
        return msgspec.json.encode(document)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InvalidSubmission("", f"cannot be written as JSON: {error}") from error
