"""A webhook subscription: which kinds of events, of which runs, and the job that delivers each event."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, get_args
from uuid import UUID

import msgspec

from .duration import Duration
from .fault import Invalid
from .job import Priority, Submission, submission
from .retry import Retry
from .sharing import plain_name
from .targets import HttpTarget

# completed: a run succeeded. failed: a try failed, timed out or was lost with its worker; `will_retry` says whether another
# try follows. dead_lettered: no automatic retry follows. missed: a run never started, or a schedule left out fires.
Kind = Literal["completed", "failed", "dead_lettered", "missed"]
KINDS: tuple[Kind, ...] = get_args(Kind)

RETRY = Retry.after("5s", "5m", "30m", "2h", "5h", "10h", "10h")  # eight attempts in about 28 hours
TIMEOUT_S = 15.0
RETRIES_ON = ("4xx", "5xx")  # a receiver that is being deployed or repaired may answer with any of them
BY = "subscription"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Delivers(msgspec.Struct, frozen=True):
    """The origin of a delivery, in its policy. Only `sexton.tell_subscribers` writes it, so it can be trusted."""

    subscription: str
    kind: Kind
    execution_id: UUID


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of runs: every field that is set must match; null matches all."""

    tenant: str | None = None
    queue: str | None = None
    job_id: UUID | None = None


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kinds: tuple[Kind, ...]
    runs: Runs
    delivery: Submission  # without its payload, which is the event
    paused: bool


def subscription(
    name: str,
    target: HttpTarget,
    *,
    kinds: Sequence[Kind] = KINDS,
    runs: Runs | None = None,
    queue: str | None = None,
    priority: Priority | None = None,
    retry: Retry | None = None,
    timeout: Duration | None = None,
    paused: bool = False,
) -> Subscription:
    """`Invalid` names the field and the fix."""
    runs = runs or Runs()
    target = msgspec.structs.replace(target, retries_on=RETRIES_ON, calls_back=False)
    target.check()
    for field, value in (("tenant", runs.tenant), ("queue", runs.queue)):
        if value is not None:
            plain_name(value, f"filter.{field}")
    return Subscription(
        name=checked_name(name),
        kinds=_kinds(kinds),
        runs=runs,
        delivery=submission(
            target,
            {},
            queue=queue,
            priority=priority,
            retry=RETRY if retry is None else retry,
            timeout=TIMEOUT_S if timeout is None else timeout,
            submitted_by=BY,
        ),
        paused=paused,
    )


def checked_name(name: str) -> str:
    """The name is part of a URL and of job names."""
    if not _NAME.fullmatch(name):
        raise Invalid(
            "name", f"{name[:100]!r} is not a name; use up to 100 letters, digits, '.', '-' and '_', such as orders-done"
        )
    return name


def job_name(name: str) -> str:
    """The name of the jobs that deliver for a subscription, so that they can be searched."""
    return f"webhook:{name}"


def _kinds(kinds: Sequence[Kind]) -> tuple[Kind, ...]:
    if not kinds:
        raise Invalid("kinds", f"give at least one of {', '.join(KINDS)}")
    for index, kind in enumerate(kinds):
        if kind not in KINDS:
            raise Invalid(f"kinds.{index}", f"{kind!r} is not one of {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in kinds)
