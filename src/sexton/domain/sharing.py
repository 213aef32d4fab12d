"""Settings of a tenant and of a queue, checked once, for every caller."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, TypedDict

import msgspec

from .duration import Duration, seconds
from .fault import Invalid
from .job import NAME_LIMIT
from .limit import COUNT_LIMIT, default_burst, whole
from .retry import Retry

WEIGHT_LIMIT = 1_000
RUNNING_MAX_LIMIT = 100_000
WAITING_MAX_LIMIT = 1_000_000  # runs that have not started are counted, so the count needs a maximum
RATE_MIN, RATE_MAX = 0.001, 1_000_000.0
AGEING_S = (1.0, 7 * 86_400.0)
JITTER_LIMIT_S = 1_800.0  # the same as for a schedule


class TenantOptions(TypedDict, total=False):
    """The settings of a tenant, each with its meaning. `None` means no limit."""

    weight: Annotated[
        int, "Its share, relative to the weights of the tenants that have work in the same lane of the same queue."
    ]
    running_max: Annotated[int | None, "Runs at once, over the whole cluster."]
    waiting_max: Annotated[int | None, "Runs that have not started; a submission above it is rejected (429)."]
    submit_rate: Annotated[float | None, "Jobs per second; a submission above it is rejected (429)."]
    submit_burst: Annotated[int | None, "Jobs that may come at once after a pause; one second of `submit_rate` by default."]
    jitter: Annotated[Duration | None, "The jitter of its schedules that set none: at most 30 minutes."]


class QueueOptions(TypedDict, total=False):
    """The settings of a queue, each with its meaning; from `timeout` on, defaults of its jobs."""

    release_rate: Annotated[float | None, "Runs per second that the queue releases, over the whole cluster."]
    release_burst: Annotated[int | None, "Runs that may start at once after a pause; a tenth of `release_rate` by default."]
    ageing: Annotated[Duration | None, "A run that has waited this long moves up one lane; without it never."]
    timeout: Annotated[Duration | None, "How long one attempt of a job that sets no timeout may take; 0: no limit."]
    jitter: Annotated[Duration | None, "The jitter of schedules that set none: at most 30 minutes."]
    retry: Annotated[Retry | None, "How many times jobs that set no retry policy are tried."]


class TenantSettings(msgspec.Struct, frozen=True, kw_only=True):
    """None: no limit."""

    weight: int = 1
    running_max: int | None = None
    waiting_max: int | None = None
    submit_rate: float | None = None
    submit_burst: int | None = None
    jitter_s: float | None = None


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    release_rate: float | None = None
    release_burst: int | None = None
    ageing_s: float | None = None
    timeout_s: float | None = None  # 0: no limit
    jitter_s: float | None = None
    retry: Retry | None = None


def tenant_settings(
    *,
    weight: int = 1,
    running_max: int | None = None,
    waiting_max: int | None = None,
    submit_rate: float | None = None,
    submit_burst: int | None = None,
    jitter: Duration | None = None,
) -> TenantSettings:
    """`Invalid` names the field and the fix."""
    if type(weight) is not int or not 1 <= weight <= WEIGHT_LIMIT:
        raise Invalid("weight", f"{weight!r} must be a whole number between 1 and {WEIGHT_LIMIT:,}")
    return TenantSettings(
        weight=weight,
        running_max=whole("running_max", running_max, RUNNING_MAX_LIMIT),
        waiting_max=whole("waiting_max", waiting_max, WAITING_MAX_LIMIT),
        submit_rate=_rate("submit_rate", submit_rate),
        submit_burst=_burst("submit", submit_rate, submit_burst, _second),
        jitter_s=_jitter(jitter),
    )


def queue_settings(
    *,
    release_rate: float | None = None,
    release_burst: int | None = None,
    ageing: Duration | None = None,
    timeout: Duration | None = None,
    jitter: Duration | None = None,
    retry: Retry | None = None,
) -> QueueSettings:
    """`Invalid` names the field and the fix."""
    ageing_s = None if ageing is None else seconds(ageing, field="ageing")
    if ageing_s is not None and not AGEING_S[0] <= ageing_s <= AGEING_S[1]:
        raise Invalid("ageing", f"{ageing!r} must be between 1s and 7d; leave it out for none")
    if retry is not None and not isinstance(retry, Retry):
        raise Invalid("retry", f"{retry!r} is not a Retry")
    return QueueSettings(
        release_rate=_rate("release_rate", release_rate),
        release_burst=_burst("release", release_rate, release_burst, default_burst),
        ageing_s=ageing_s,
        timeout_s=None if timeout is None else seconds(timeout, field="timeout"),
        jitter_s=_jitter(jitter),
        retry=retry,
    )


def plain_name(name: object, field: str = "name") -> str:
    """The name of a tenant or of a queue, as a job may have it."""
    if not isinstance(name, str) or not name:
        raise Invalid(field, f"give a non-empty text, not {name!r}")
    if len(name) > NAME_LIMIT:
        raise Invalid(field, f"{len(name)} characters, the limit is {NAME_LIMIT}")
    if "\x00" in name or any("\ud800" <= letter <= "\udfff" for letter in name):
        raise Invalid(field, "holds a character that PostgreSQL cannot store")
    return name


def _rate(field: str, rate: float | None) -> float | None:
    if rate is None:
        return None
    if type(rate) not in (int, float) or not RATE_MIN <= rate <= RATE_MAX:
        raise Invalid(field, f"{rate!r} per second must be between {RATE_MIN:g} and {RATE_MAX:,.0f}")
    return float(rate)


def _burst(of: str, rate: float | None, burst: int | None, default: Callable[[float], int]) -> int | None:
    if rate is None:
        if burst is not None:
            raise Invalid(f"{of}_burst", f"needs a rate; give {of}_rate as well")
        return None
    return default(rate) if burst is None else whole(f"{of}_burst", burst, COUNT_LIMIT)


def _second(rate: float) -> int:
    """The tokens of one second, so that a caller that keeps to the rate on average may send in bulk."""
    return max(1, math.ceil(rate))


def _jitter(jitter: Duration | None) -> float | None:
    if jitter is None:
        return None
    jitter_s = seconds(jitter, field="jitter")
    if jitter_s > JITTER_LIMIT_S:
        raise Invalid("jitter", "at most 30 minutes")
    return jitter_s
