"""Every parser with unlikely input: it returns a value or raises `Invalid`, and takes no longer than allowed (F2, F4). A minute
or more: SEXTON_TEST_EXAMPLES=20000, and SEXTON_TEST_RANDOM=1 for new examples each time."""

from __future__ import annotations

import base64
import gc
import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sexton.api.answers import problems, responses
from sexton.api.answers.problems import Refused
from sexton.api.requests import bodies, cursors, faults, parameters, queries, submissions
from sexton.api.resources import events
from sexton.domain import job, limit, queue_order
from sexton.domain.duration import seconds
from sexton.domain.fault import Invalid
from sexton.domain.schedule import Schedule, describe, fires, last_fire, next_fire, schedule
from sexton.domain.schedule.catch_up import CatchUp, plan
from sexton.domain.schedule.zone import zone
from sexton.store.views.search import JobFilter
from sexton.wire import JobEdit, JobRequest, PreviewRequest
from tests.sizes import size

from . import words

EXAMPLES = size("EXAMPLES", 100)
SLOW_S = 0.25  # of CPU. The slowest takes 30 ms on a quiet core, twice that on a busy machine; without a budget, seconds
NOW = datetime(2026, 3, 7, 12, 0, 0, tzinfo=UTC)
FAULTS = (Invalid, Refused)

thorough = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

CRON = words.texts("0123456789*/,-?LWH#() ", words.CRON_WORDS, words.CRONS)
RRULE = words.texts("FREQ=;BYDAILWOMNTHU0123456789,:-\n", words.RRULE_WORDS, words.RRULES, (";", ";", "\n", " "))
SPAN = words.texts("0123456789.mshdPT ", words.SPAN_WORDS, words.SPANS, ("",))
EXCLUDE = st.lists(words.texts("0123456789:-", words.EXCLUDE_WORDS, words.EXCLUDE_WORDS[:5], ("",)), max_size=6)
JSON_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def forget() -> None:
    """Clears caches, which would make a second measurement look fast."""
    for module in [module for name, module in sys.modules.items() if name.startswith("sexton.domain")]:
        for value in list(vars(module).values()):
            getattr(value, "cache_clear", lambda: None)()


def answered(call: Callable[[], Any]) -> Any:
    """The parser's result; `None` if it rejects the input. Slow means slow twice."""
    result = None
    took_s = 0.0
    for _ in range(2):
        forget()
        gc.disable()
        began_s = time.process_time()
        try:
            result = call()
        except FAULTS:
            result = None
        finally:
            took_s = time.process_time() - began_s
            gc.enable()
        if took_s <= SLOW_S:
            return result
    raise AssertionError(f"took {1000 * took_s:.0f} ms, twice")


def walked(made: Schedule, seed: str = "x") -> None:
    """Everything that is computed from an accepted schedule. A single search is bounded; a walk makes many."""
    answered(lambda: next_fire(made, after=NOW, seed=seed))
    answered(lambda: next_fire(made, after=datetime(2149, 12, 30, tzinfo=UTC), seed=seed))
    answered(lambda: next_fire(made, after=datetime(1971, 1, 1, tzinfo=UTC), seed=seed))
    answered(lambda: describe(made, seed))
    found = list(islice(fires(made, after=NOW, seed=seed), 3))
    assert found == sorted(set(found))
    assert all(at > NOW for at in found)


@thorough
@given(text=CRON, dialect=st.sampled_from(["cron", "quartz"]), name=st.sampled_from(words.ZONES))
def test_cron(text: str, dialect: Literal["cron", "quartz"], name: str) -> None:
    """A2, F2."""
    made = answered(lambda: schedule(now=NOW, cron=text, dialect=dialect, timezone=name, seed="x"))
    if made is not None:
        walked(made)


@thorough
@given(text=RRULE, name=st.none() | st.sampled_from(words.ZONES))
def test_rrule(text: str, name: str | None) -> None:
    """A3, F2."""
    made = answered(lambda: schedule(now=NOW, rrule=text, timezone=name))
    if made is not None:
        walked(made)


@thorough
@given(
    rule=CRON.map(lambda text: {"cron": text})
    | RRULE.map(lambda text: {"rrule": text})
    | SPAN.map(lambda text: {"every": text}),
    exclude=EXCLUDE,
    jitter=SPAN | st.floats() | st.none(),
    name=st.sampled_from(words.ZONES) | words.NOISE,
    bounds=st.tuples(st.none() | st.datetimes(timezones=st.just(UTC)), st.none() | st.datetimes(timezones=st.just(UTC))),
    most=st.none() | st.integers(),
)
def test_whole_schedules(
    rule: dict[str, Any], exclude: list[str], jitter: Any, name: str, bounds: tuple[Any, Any], most: int | None
) -> None:
    """A2, A3, A5, F2: with long gaps, in which a search may not end."""
    made = answered(
        lambda: schedule(
            now=NOW, exclude=exclude, jitter=jitter, timezone=name, start_at=bounds[0], end_at=bounds[1], max_fires=most, **rule
        )
    )
    if made is not None:
        walked(made)


# Chosen by hand, not at random: rules that fire often, but never when they are allowed to.
_ALL_DAY = {"exclude": ["00:00-23:59:59"]}
_MANY = "BYHOUR=0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23"
_MINUTES = "BYMINUTE=" + ",".join(map(str, range(60)))
_DATES = [f"20{26 + n // 336}{n // 28 % 12 + 1:02}{n % 28 + 1:02}" for n in range(500)]
LOST: list[dict[str, Any]] = [
    {"cron": "* * * * * *", **_ALL_DAY},
    {"cron": "0 0 1 1 *", "exclude": ["00:00-12:00"]},
    {"cron": "* * * * *", "exclude": [f"{2026 + n // 360}-{n // 30 % 12 + 1:02}-{n % 30 % 28 + 1:02}" for n in range(500)]},
    {"every": "1s", **_ALL_DAY},
    {"every": "7s", "exclude": ["00:00-12:00", "12:00-24:00"]},
    {"rrule": "FREQ=SECONDLY", **_ALL_DAY},
    {"rrule": "FREQ=MINUTELY;INTERVAL=7", **_ALL_DAY},
    {"rrule": f"FREQ=DAILY;{_MANY};{_MINUTES};BYSECOND=0,1,2,3,4,5;BYSETPOS=1,2,3", "exclude": ["00:00-23:59"]},
    {"rrule": f"FREQ=MONTHLY;{_MANY};BYMINUTE=0,1,2,3,4,5,6,7,8,9;BYSETPOS=1,2,3", "exclude": ["00:00-23:59"]},
    {"rrule": f"FREQ=WEEKLY;BYDAY=MO,TU;{_MANY};{_MINUTES};BYSETPOS=366", "exclude": ["00:00-23:59"]},
    {"rrule": "FREQ=YEARLY;BYMONTHDAY=29;BYMONTH=2;BYDAY=MO;BYHOUR=3", "exclude": ["02:00-04:00"]},
    {"rrule": "FREQ=HOURLY;INTERVAL=9999991"},
    {"rrule": "FREQ=SECONDLY;INTERVAL=9999999;BYMONTH=2;BYMONTHDAY=29;BYHOUR=3;BYMINUTE=7;BYSECOND=11"},
    {"rrule": "DTSTART:19000101T000000Z\nRRULE:FREQ=DAILY;COUNT=10000;BYMONTH=2;BYMONTHDAY=29"},
    {"rrule": "FREQ=DAILY;BYHOUR=9\nRDATE:" + ",".join(f"{date}T000000" for date in _DATES)},
    {"rrule": "FREQ=DAILY;BYHOUR=9\nEXDATE:" + ",".join(_DATES)},
]  # fmt: skip


@pytest.mark.parametrize("rule", LOST, ids=lambda rule: f"{' '.join(map(str, rule))}{str(next(iter(rule.values())))[:40]!r}")
def test_a_search_without_a_result_ends_soon(rule: dict[str, Any]) -> None:
    """F4: without this, a submission would stop the API, and each planner permanently."""
    made = answered(lambda: schedule(now=NOW, timezone="Europe/Paris", **rule))
    if made is not None:
        walked(made)


@thorough
@given(
    rule=CRON.map(lambda text: {"cron": text}) | RRULE.map(lambda text: {"rrule": text}),
    away=st.timedeltas(timedelta(0), timedelta(days=4_000)),
    policy=st.sampled_from(["skip", "latest", "all"]),
)
def test_catching_up_after_any_downtime(
    rule: dict[str, Any], away: timedelta, policy: Literal["skip", "latest", "all"]
) -> None:
    """C5, F4: a planner decides about all missed fires at a bounded cost; a second is what a pass may take."""
    try:
        made = schedule(now=NOW, **rule)
    except Invalid:
        return
    began_s = time.process_time()
    decided = plan(made, cursor_at=NOW, now=NOW + away, horizon_at=NOW + away, policy=CatchUp(policy=policy))
    assert time.process_time() - began_s < 1.0
    assert list(decided.fires) == sorted(set(decided.fires))
    last_fire(made, after=NOW, until=NOW + away)


@thorough
@given(given_span=SPAN | st.integers() | st.floats() | st.booleans() | st.none() | st.timedeltas())
def test_spans(given_span: Any) -> None:
    """F2."""
    found = answered(lambda: seconds(given_span))
    assert found is None or 0 <= found <= 10 * 366 * 86400
    answered(lambda: parameters.span_of(str(given_span), "?wait", most_s=60))


@thorough
@given(
    name=words.NOISE | st.sampled_from(["../../etc/passwd", "UTC\x00", "europe/paris", "x" * 5_000, "/", "."]) | st.integers()
)
def test_zones(name: Any) -> None:
    answered(lambda: zone(name))


@thorough
@given(
    key=words.texts("{}payload.@:ab", words.LIMIT_WORDS, words.LIMITS, ("",)) | st.integers(),
    numbers=st.dictionaries(
        st.sampled_from(["running", "count", "per", "burst", "ordered", "colour"]),
        st.none() | st.booleans() | st.integers() | st.floats() | SPAN | st.lists(st.integers(), max_size=2),
    ),
)
def test_limits(key: Any, numbers: dict[str, Any]) -> None:
    """C9, F2: templates and numbers."""
    answered(lambda: limit.limit_of({"key": key, **numbers}))
    answered(lambda: limit.limit_of(key))
    if "colour" not in numbers:
        answered(lambda: limit.standing_limit(key, **numbers))


@thorough
@given(text=words.texts("mail:123,>", words.QUEUE_WORDS, ("mail", "mail:3,default:1", "mail>default"), ("", ",", ">")))
def test_orders_of_queues(text: str) -> None:
    """C11, F2."""
    order = answered(lambda: queue_order.queue_order(text))
    assert order is None or all(1 <= weight <= queue_order.WEIGHT_LIMIT for weight in order.weights)


@thorough
@given(
    parts=st.lists(
        words.NOISE | st.sampled_from(["task", "name", "payload", "payload.a", "payload.", "payload..a"]), max_size=4
    )
)
def test_paths_of_uniqueness(parts: list[str]) -> None:
    answered(lambda: job.Unique.of(*parts))


CURSOR = st.one_of(
    words.NOISE,
    st.text("ABCDEFabcdef0123456789-_=+/", max_size=64),
    st.binary(max_size=40).map(lambda raw: base64.urlsafe_b64encode(b"\x01" + raw).decode().rstrip("=")),
)


@thorough
@given(cursor=CURSOR)
def test_cursors(cursor: str) -> None:
    """A13, F2."""
    answered(lambda: cursors.decode(cursor, JobFilter()))
    answered(lambda: cursors.decode_text(cursor))


@thorough
@given(text=st.text(min_size=1, max_size=50).filter(lambda text: "\x00" not in text and text.isprintable()))
def test_a_valid_cursor_is_read_back(text: str) -> None:
    """A13."""
    assert cursors.decode_text(cursors.encode_text(text)) == text


@thorough
@given(header=words.NOISE | st.text('"W/*0123456789abc., ', max_size=30), body=st.none() | st.text(min_size=1, max_size=20))
def test_headers(header: str, body: str | None) -> None:
    """A10, F2: keys, tags, traces, and the position in a stream."""
    names = ("idempotency-key", "if-match", "traceparent", "last-event-id")
    request: Any = SimpleNamespace(headers=dict.fromkeys(names, header))
    answered(lambda: submissions.key_of(request, body))
    answered(lambda: responses.expected_version(request))
    answered(lambda: submissions.trace_of(request))
    answered(lambda: events._resume_at(request))


QUERIES: list[Any] = [
    queries.JobsQuery,
    queries.ExecutionsQuery,
    queries.DeadLettersQuery,
    queries.LimitsQuery,
    queries.JobQuery,
    queries.EventsQuery,
]


@thorough
@given(query=st.binary(max_size=60) | st.text("=&%limtcursor0123456789+;", max_size=60).map(str.encode))
def test_queries(query: bytes) -> None:
    """A13, F2."""
    request: Any = SimpleNamespace(scope={"query_string": query})
    answered(lambda: parameters.query_of(request, parameters.Nothing))
    for kind in QUERIES:
        answered(lambda kind=kind: parameters.query_of(request, kind))  # type: ignore[misc]


@thorough
@given(path=st.lists(st.text(max_size=10) | st.integers(), max_size=5), message=words.NOISE)
def test_pointers(path: list[str | int], message: str) -> None:
    """F2: RFC 6901, written and read back."""
    text = problems.pointer(*path)
    back = [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]
    assert back == [str(part) for part in path]
    answered(lambda: faults.fault_in(message))
    answered(lambda: faults.fault_in(f"{message} - at `$.{message}[3]`"))


FIELDS = st.sampled_from([*JobRequest.__struct_fields__, *JobEdit.__struct_fields__, *PreviewRequest.__struct_fields__])


@thorough
@given(body=st.dictionaries(FIELDS, JSON_VALUE | CRON | RRULE | SPAN | EXCLUDE, max_size=6), noise=st.binary(max_size=60))
def test_bodies(body: dict[str, Any], noise: bytes) -> None:
    """A1, F2: anything in any field of a job."""
    encoded = json.dumps({"handler": "a", **body}).encode("utf-8", "surrogatepass")
    for text in (encoded, noise, encoded[: len(encoded) // 2], encoded.replace(b'"', noise[:2])):
        answered(lambda text=text: _judged(text))  # type: ignore[misc]
        answered(lambda text=text: bodies.decoded(text, JobEdit))  # type: ignore[misc]
        answered(lambda text=text: bodies.decoded(text, PreviewRequest))  # type: ignore[misc]


def _judged(text: bytes) -> Any:
    asked = bodies.decoded(text, JobRequest)
    if asked.is_recurring:
        return submissions.schedule_of(asked, now=NOW, on_name="refuse", submitted_by="api")
    return submissions.submission_of(asked, submitted_by="api")


def test_a_slow_parser_is_detected() -> None:
    """The check works: a parser that is slow twice is reported."""

    def slow() -> None:
        until_s = time.process_time() + 1.2 * SLOW_S
        while time.process_time() < until_s:
            pass

    with pytest.raises(AssertionError, match="twice"):
        answered(slow)
