"""A limit by key: a number of runs at once, or of starts per span, over the whole cluster. The job names the key. The numbers
are in the store, and those in a job only create them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict, Unpack

import msgspec

from .duration import Duration, seconds
from .fault import Invalid

KEY_LIMIT = 200
RUNNING_LIMIT = 10_000
COUNT_LIMIT = 1_000_000
PER_S = (0.001, 86_400.0)

_PLACE = re.compile(r"\{payload(?:\.[^.{}]+)+\}")


class Limit(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limit of a job, as `sexton.submit_jobs` takes it. A key may contain `{payload.path.to.field}`."""

    key: str
    running: int | None = None  # runs at once
    count: int | None = None  # starts per `per_s`
    per_s: float | None = None
    burst: int | None = None  # starts that may come at once after a pause
    ordered: bool = False  # one at a time, by due time


class LimitOptions(TypedDict, total=False):
    """The numbers of a limit, each with what it means."""

    running: Annotated[int | None, "Runs at once."]
    count: Annotated[int | None, "Starts per `per`."]
    per: Annotated[Duration | None, "The span that `count` is of: at most a day."]
    burst: Annotated[int | None, "Starts that may come at once after a pause; a tenth of `count` by default."]
    ordered: Annotated[bool, "One at a time and by due time, retries included."]


def limit(key: str, **numbers: Unpack[LimitOptions]) -> Limit:
    """The checked limit of a job; `Invalid` names the field and the fix."""
    _template("limit.key", key)
    return _numbers("limit.", key, **numbers)


def standing_limit(key: str, **numbers: Unpack[LimitOptions]) -> Limit:
    """The checked limit of a key, for all jobs that name it: its key has no template in it."""
    plain_key(key)
    if _PLACE.search(key):
        raise Invalid("key", f"{key!r} is a template; give a key with its values filled in, such as stripe:42")
    checked = _numbers("", key, **numbers)
    if checked.running is None and checked.count is None:
        raise Invalid("running", "give running (runs at once), or count and per (starts per span), or both")
    return checked


def limit_of(given: object) -> Limit | None:
    """From the forms that callers use: a key, a mapping, or a `Limit`."""
    match given:
        case None:
            return None
        case str():
            return limit(given)
        case Limit():
            numbers = {name: getattr(given, name) for name in ("running", "count", "burst", "ordered")}
            return limit(given.key, per=given.per_s, **numbers)
        case Mapping():
            return limit(**_named(given))
        case _:
            raise Invalid("limit", 'write "stripe", or {"key": "stripe", "running": 5}')


def plain_key(key: object, field: str = "key") -> str:
    if not isinstance(key, str) or not key:
        raise Invalid(field, f"give a non-empty text, not {key!r}")
    if len(key) > KEY_LIMIT:
        raise Invalid(field, f"{len(key)} characters, the limit is {KEY_LIMIT}")
    if key.startswith("@"):
        raise Invalid(field, "begins with '@', which is reserved for Sexton; begin with another character")
    if any(ord(letter) < 32 or ord(letter) == 127 or "\ud800" <= letter <= "\udfff" for letter in key):
        raise Invalid(field, "holds a control character; use printable ones")
    return key


def default_burst(count: float) -> int:
    """A tenth of the count, and at least one: enough to use the rate fully, too little for a large burst."""
    return max(1, math.ceil(count / 10))


def _named(given: Mapping[str, Any]) -> Any:
    unknown = sorted(map(str, set(given) - {"key", *LimitOptions.__optional_keys__}))
    if unknown:
        raise Invalid(f"limit.{unknown[0]}", "there is no such field; use key, running, count, per, burst, ordered")
    if "key" not in given:
        raise Invalid("limit.key", "is required")
    return given


def _template(field: str, key: object) -> None:
    text = plain_key(key, field)
    rest = _PLACE.sub("", text)
    if "{" in rest or "}" in rest:
        raise Invalid(
            field, f"{text!r} has a brace that opens no path; write {{payload.path.to.field}}, as in stripe:{{payload.account}}"
        )


def _numbers(at: str, key: str, *, per: Duration | None = None, **numbers: Any) -> Limit:
    given = Limit(key, **numbers)
    if type(given.ordered) is not bool:
        raise Invalid(f"{at}ordered", f"give true or false, not {given.ordered!r}")
    if given.ordered and given.running not in (None, 1):
        raise Invalid(f"{at}running", f"an ordered limit cannot allow {given.running} at once; leave it out, or give 1")
    per_s, burst = _rate(at, given.count, per, given.burst)
    running = 1 if given.ordered else whole(f"{at}running", given.running, RUNNING_LIMIT)
    return msgspec.structs.replace(given, running=running, per_s=per_s, burst=burst)


def _rate(at: str, count: int | None, per: Duration | None, burst: int | None) -> tuple[float | None, int | None]:
    if (count is None) != (per is None):
        missing = "per" if per is None else "count"
        raise Invalid(f"{at}{missing}", "count and per belong together: a number of starts per span, such as 10 per 1s")
    if count is None or per is None:
        if burst is not None:
            raise Invalid(f"{at}burst", "needs a rate; give count and per as well")
        return None, None
    whole(f"{at}count", count, COUNT_LIMIT)
    per_s = seconds(per, field=f"{at}per")
    if not PER_S[0] <= per_s <= PER_S[1]:
        raise Invalid(f"{at}per", f"{per!r} must be between 1ms and 1d")
    return per_s, default_burst(count) if burst is None else whole(f"{at}burst", burst, COUNT_LIMIT)


def whole(field: str, value: int | None, most: int) -> int | None:
    """A whole number from one up to `most`, or none."""
    if value is not None and (type(value) is not int or not 1 <= value <= most):
        raise Invalid(field, f"{value!r} must be a whole number between 1 and {most:,}")
    return value
