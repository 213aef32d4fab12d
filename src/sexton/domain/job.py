"""A job as it is submitted, checked once, here, for every caller. The result is the document that `sexton.submit_jobs`
takes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any, Literal

import msgspec

from .duration import Duration, seconds
from .fault import Invalid
from .job_options import BY_NAME, POLICIES
from .limit import Limit, limit_of
from .retry import DEFAULT, Retry
from .targets import RESERVED, Target, task_of

PAYLOAD_BYTES_LIMIT = 256 * 1024
RESULT_BYTES_LIMIT = 64 * 1024
BATCH_LIMIT = 10_000
NAME_LIMIT = 200
TAG_LIMIT = 20
TIMEOUT_S = 30.0
MAX_LOST = 3
_YEARS = (1970, 9000)  # with room for every deadline and offset: PostgreSQL stores later instants, but Python cannot read them

_PATH = re.compile(r"payload(\.[^.]+)+")
_ESCAPED_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_encode = msgspec.json.Encoder().encode
_one_value = msgspec.json.Decoder(msgspec.Raw).decode
_POLICY_RULES = {  # by option: its key, whether it is a span, the bounds of a count
    name: (key, BY_NAME[name].kind == "span", BY_NAME[name].bounds if BY_NAME[name].kind == "count" else None)
    for name, key in POLICIES.items()
}

Priority = Literal["critical", "high", "normal", "low"]
Delivery = Literal["at_least_once", "at_most_once"]


class Lane(IntEnum):
    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3

    @classmethod
    def of(cls, priority: str) -> Lane:
        try:
            return cls[priority.upper()]
        except (KeyError, AttributeError):
            raise Invalid("priority", f"{priority!r} is not a lane; use critical, high, normal or low") from None


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """The options of a job beyond timeout and delivery; only values that differ from the default are stored."""

    retry: Retry = DEFAULT
    deadline_s: float | None = None  # for all attempts together, from the due time
    start_within_s: float | None = None  # the first attempt starts within this time after the due time, or never
    lease_s: float | None = None  # how long its worker may send no heartbeat; null: the cluster's lease
    progress_within_s: float | None = None  # a handler that reports no progress for this long is stuck
    max_lost: int | None = None  # workers that may die while they run it; null: three
    grace_s: float | None = None  # between the request to stop and the kill; null: the worker's
    limit: Limit | None = None  # as submitted, with the placeholders of its key
    target: Target | None = None  # the target that it calls, if it is not a Python task


class Unique(msgspec.Struct, frozen=True):
    """Equal jobs are one. `by` lists what must be equal: task, name, payload, or paths such as `payload.user_id`.

    Without `holds_s` an equal job counts while it is pending; with it, for that long after its submission.
    """

    by: tuple[str, ...] = ("task", "payload")
    holds_s: float | None = None
    replace: bool = False

    @classmethod
    def of(cls, *by: str, period: Duration | None = None, on_conflict: Literal["keep", "replace"] = "keep") -> Unique:
        for part in by:
            if part not in ("task", "name", "payload") and not _PATH.fullmatch(part):
                raise Invalid("unique", f"{part!r} is not a part of a job; use task, name, payload or payload.<path>")
        if on_conflict not in ("keep", "replace"):
            raise Invalid("unique", f"on_conflict is keep or replace, not {on_conflict!r}")
        holds_s = None if period is None else seconds(period, field="unique.period")
        return cls(by or ("task", "payload"), holds_s, on_conflict == "replace")


class Submission(msgspec.Struct, frozen=True, omit_defaults=True):
    """One document of `sexton.submit_jobs`. Missing fields come from the task's options, then from the defaults."""

    task: str
    payload: msgspec.Raw = msgspec.Raw(b"{}")
    queue: str | None = None
    lane: int | None = None
    tenant: str | None = None
    name: str | None = None
    run_at: datetime | None = None
    delay_s: float | None = None
    timeout_s: float | None = None  # 0: no limit
    at_most_once: bool | None = None
    policy: Policy | None = None
    tags: tuple[str, ...] | None = None
    submitted_by: str | None = None
    trace: str | None = None
    key: str | None = None
    key_ttl_s: float | None = None
    fingerprint: str | None = None
    unique: Unique | None = None
    limit: Limit | None = None


def submission(
    task: str | Target,
    payload: Any,
    *,
    run_at: datetime | None = None,
    delay: Duration | None = None,
    queue: str | None = None,
    priority: Priority | None = None,
    tenant: str | None = None,
    name: str | None = None,
    key: str | None = None,
    key_ttl: Duration | None = None,
    unique: Unique | bool | None = None,
    timeout: Duration | None = None,
    delivery: Delivery | None = None,
    tags: Sequence[str] | None = None,
    submitted_by: str | None = None,
    trace: str | None = None,
    limit: Limit | Mapping[str, Any] | str | None = None,
    **policies: Any,
) -> Submission:
    """The checked document of one job; `Invalid` names the field and the fix. `task` is the name of a Python task, or the
    target to call; `policies` are the options that the policy keeps (`job_options.POLICIES`)."""
    if run_at is not None and delay is not None:
        raise Invalid("delay", "give run_at or delay, not both")
    if run_at is not None and getattr(run_at, "tzinfo", None) is None:
        raise Invalid("run_at", "give an instant with an offset, such as datetime(2026, 3, 1, 9, tzinfo=UTC)")
    if run_at is not None and not _YEARS[0] <= run_at.year < _YEARS[1]:
        raise Invalid("run_at", f"the year {run_at.year} must be between {_YEARS[0]} and {_YEARS[1]}")
    return Submission(
        task=_task(task),
        payload=encoded_payload(payload),
        queue=_optional_name("queue", queue),
        lane=None if priority is None else int(Lane.of(priority)),
        tenant=_optional_name("tenant", tenant),
        name=_optional_name("name", name),
        run_at=run_at if run_at is None or run_at.tzinfo is UTC else run_at.astimezone(UTC),  # `==` ignores fold
        delay_s=_optional_seconds("delay", delay),
        timeout_s=_optional_seconds("timeout", timeout),
        at_most_once=_at_most_once(delivery),
        policy=policy(None if isinstance(task, str) else task, **policies),
        tags=_tags(tags),
        submitted_by=_optional_name("submitted_by", submitted_by),
        trace=_optional_name("trace", trace),
        key=_optional_name("key", key),
        key_ttl_s=_optional_seconds("key_ttl", key_ttl),
        unique=_unique(unique, task),
        limit=None if limit is None else limit_of(limit),
    )


def policy(target: Target | None = None, /, **given: Any) -> Policy | None:
    """The policy, or `None` if all of it is the default. Only given options are stored, and they override those of the task."""
    chosen: dict[str, Any] = {} if target is None else {"target": target}
    for name, value in given.items():
        rule = _POLICY_RULES.get(name)
        if rule is None:
            raise TypeError(f"a job has no option {name!r}")
        if value is not None:
            key, is_span, bounds = rule
            if bounds is not None and not bounds[0] <= value <= bounds[1]:
                raise Invalid(name, f"{value} must be between {bounds[0]} and {bounds[1]}")
            chosen[key] = seconds(value, field=name) if is_span else value
    return Policy(**chosen) if chosen else None


def encoded_payload(payload: Any) -> msgspec.Raw:
    """The payload as JSON; rejected if it is too large or PostgreSQL could not store it exactly."""
    try:
        encoded = _encode(payload)
        _one_value(encoded)  # a msgspec.Raw in it may hold two, and its list would have one payload more than jobs
        # JSON has no infinities and no NaN; the encoder silently writes null for them. A payload that arrived as JSON has none.
        if b"null" in encoded and not isinstance(payload, msgspec.Raw):
            _refuse_infinite("payload", msgspec.to_builtins(payload))
    except Invalid:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid("payload", f"cannot be written as JSON: {error}") from None
    if len(encoded) > PAYLOAD_BYTES_LIMIT:
        raise Invalid(
            "payload",
            f"{len(encoded):,} bytes, the limit is {PAYLOAD_BYTES_LIMIT:,}; store the data elsewhere and submit a reference",
        )
    if has_escaped_nul(encoded):
        raise Invalid("payload", "holds a NUL character (U+0000), which PostgreSQL cannot store")
    return msgspec.Raw(encoded)


def has_escaped_nul(encoded: bytes) -> bool:
    """The plain search first: it takes 0.1 µs for 200 bytes, the expression 6 µs."""
    return rb"\u0000" in encoded and _ESCAPED_NUL.search(encoded) is not None


def _refuse_infinite(path: str, value: Any) -> None:
    match value:
        case float() if not math.isfinite(value):
            raise Invalid(path, f"{value} has no JSON form")
        case Mapping():
            for key, inner in value.items():
                _refuse_infinite(f"{path}.{key}", inner)
        case list() | tuple():
            for index, inner in enumerate(value):
                _refuse_infinite(f"{path}.{index}", inner)
        case _:
            pass


def _task(task: str | Target) -> str:
    if isinstance(task, Target):
        task.check()
        return task_of(task)
    if str(task).startswith(RESERVED):
        raise Invalid(
            "task", f"names that begin with {RESERVED!r} are reserved; give the target to call as an object with a type"
        )
    return _name("task", task)


def _unique(unique: Unique | bool | None, task: str | Target) -> Unique | None:
    match unique:
        case True:
            chosen = Unique()
        case None | False:
            return None
        case Unique():
            chosen = unique
        case _:
            raise Invalid("unique", f"give True or Unique.of(...), not {unique!r}")
    if "task" in chosen.by and not isinstance(task, str):  # all calls of a kind have one task, and differ by their target
        return msgspec.structs.replace(chosen, by=(*chosen.by, "policy.target"))
    return chosen


def _at_most_once(delivery: str | None) -> bool | None:
    match delivery:
        case None:
            return None
        case "at_least_once":
            return False
        case "at_most_once":
            return True
        case _:
            raise Invalid("delivery", f"{delivery!r} is unknown; use at_least_once or at_most_once")


def _tags(tags: Sequence[str] | None) -> tuple[str, ...] | None:
    if not tags:
        return None
    if isinstance(tags, str):
        raise Invalid("tags", f'give a list of words, such as ["{tags}"]')
    if len(tags) > TAG_LIMIT:
        raise Invalid("tags", f"{len(tags)} tags, the limit is {TAG_LIMIT}")
    return tuple(_name(f"tags.{index}", tag) for index, tag in enumerate(tags))


def _name(field: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise Invalid(field, f"give a non-empty text, not {value!r}")
    if len(value) > NAME_LIMIT:
        raise Invalid(field, f"{len(value)} characters, the limit is {NAME_LIMIT}")
    if "\x00" in value:
        raise Invalid(field, "holds a NUL character (U+0000), which PostgreSQL cannot store")
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise Invalid(field, "holds half of a surrogate pair, which is not valid text")
    return value


def _optional_name(field: str, value: str | None) -> str | None:
    return None if value is None else _name(field, value)


def _optional_seconds(field: str, value: Duration | timedelta | None) -> float | None:
    return None if value is None else seconds(value, field=field)
