"""Submissions and edits: turns the caller's options into requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Unpack

import msgspec

from sexton import wire
from sexton.client.error_translation import submission_faults
from sexton.client.options import BEHAVIOUR, RULE, Options, ScheduleOptions
from sexton.domain.job import BATCH_LIMIT, Unique, encoded_payload
from sexton.domain.limit import limit_of
from sexton.domain.retry import Retry
from sexton.domain.schedule.document import OnName
from sexton.domain.targets import Target
from sexton.errors import InvalidSubmission
from sexton.ids import request_key

from .call import Call, encoded

CHUNK_BYTES = 8 * 1024 * 1024  # of a bulk submission: jobs with large payloads go in smaller chunks
OWN_KEY_TTL = "1h"  # much longer than all retries take


def request(handler: str | Target, payload: Any = None, **options: Unpack[Options]) -> wire.JobRequest:
    """A job to be submitted, with the options of `App.submit`."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    for name in ("submitted_by", "trace"):
        if given.pop(name, None) is not None:
            raise InvalidSubmission(f"/{name}", "the API sets it; remove it")
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
    """A recurring job to be submitted, with the options of `App.schedule`."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    rule = {name: timing(name, given.pop(name)) for name in (RULE | BEHAVIOUR) & given.keys()}
    return msgspec.structs.replace(request(handler, payload, **given), **rule)


def submit(asked: wire.JobRequest, *, own_key: bool, on_name: OnName = "refuse") -> Call[wire.Submitted]:
    """With `own_key`, a one-time job without a key gets a random one, so that sending it again cannot make a second job. A
    recurring job has no key: it is sent again only if its name makes it idempotent."""
    if asked.is_recurring:
        twice = _is_harmless_twice(asked, on_name)
        return Call("POST", "/v1/jobs", wire.Submitted, query=_on_name(on_name), body=encoded(asked), repeatable=twice)
    if asked.idempotency_key is None and own_key:
        asked = msgspec.structs.replace(asked, idempotency_key=request_key(), idempotency_ttl=OWN_KEY_TTL)
    keyed = asked.idempotency_key is not None
    return Call("POST", "/v1/jobs", wire.Submitted, body=encoded(asked), repeatable=keyed)


def batches(
    requests: Iterable[wire.JobRequest], *, partial: bool, on_name: OnName = "refuse"
) -> Iterator[tuple[int, Call[wire.Batch]]]:
    """In chunks that the API accepts, each with the number of its first job. Sent again only if every job is idempotent."""
    lines: list[bytes] = []
    size, first, keyed = 0, 0, True
    for asked in requests:
        line = _on_one_line(encoded(asked))
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
    """The items with the numbers that they have in the caller's list."""
    return [msgspec.structs.replace(item, index=item.index + first) for item in items] if first else list(items)


def shifted_fault(error: InvalidSubmission, first: int) -> InvalidSubmission:
    _, number, *rest = f"{error.field}/".removesuffix("/").split("/") if error.field else ("", "")
    if not number.isdecimal():
        return error
    moved = InvalidSubmission("/" + "/".join([str(int(number) + first), *rest]), error.message)
    moved.problem = error.problem
    return moved


def changes(given: Mapping[str, Any]) -> wire.JobEdit:
    """Only the given fields are changed; `None` restores the default."""
    known = {name: timing(name, value) if name in RULE | BEHAVIOUR else span(value) for name, value in given.items()}
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
        raise InvalidSubmission(f"/{wrong}", f"cannot be changed; these fields can: {may}") from None


def _is_harmless_twice(asked: wire.JobRequest, on_name: OnName) -> bool:
    return asked.is_recurring and asked.name is not None and on_name == "update"


def _on_name(on_name: OnName) -> dict[str, str]:
    return {} if on_name == "refuse" else {"on_name": on_name}


def timing(name: str, value: Any) -> Any:
    """A field of a schedule or of its policies, in the format of the API."""
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
    """A payload is sent unchanged, and may contain line breaks."""
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
    """Checked here, because a mapping may contain unknown names."""
    if given is None or isinstance(given, str):
        return given
    with submission_faults():
        checked = limit_of(given)
    if checked is None:
        return None
    fields = {name: getattr(checked, name) for name in ("key", "running", "count", "burst", "ordered")}
    return wire.LimitRule(**fields, per=checked.per_s)


def policy(retry: Retry) -> wire.RetryPolicy:
    if retry.rules:
        raise InvalidSubmission("/retry/rules", "the API does not accept rules by exception; define them in the task's code")
    usual = Retry()
    fields = {name: getattr(retry, name) for name in Retry.__struct_fields__ if getattr(retry, name) != getattr(usual, name)}
    return wire.RetryPolicy(**{name.removesuffix("_s"): value for name, value in fields.items()})


def _rule(unique: Unique) -> wire.UniqueRule:
    by = tuple("handler" if part == "task" else part for part in unique.by)
    return wire.UniqueRule(by=by, period=unique.holds_s, on_conflict="replace" if unique.replace else "keep")


def span(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value
