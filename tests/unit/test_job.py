"""A job as it is submitted: errors name the field and what to write instead."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.domain.fault import Invalid
from sexton.domain.job import (
    NAME_LIMIT,
    PAYLOAD_BYTES_LIMIT,
    TAG_LIMIT,
    Lane,
    Policy,
    Submission,
    Unique,
    encoded_payload,
    policy,
    submission,
)
from sexton.domain.retry import Retry

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def _document(**options: Any) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(submission("a", {}, **options)))
    return document


def test_unset_options_are_not_written() -> None:
    """A12: so that the task's options, then the defaults, fill it in."""
    assert {key: value for key, value in _document().items() if key != "payload"} == {"task": "a"}


def test_every_option_is_written_with_its_unit() -> None:
    """A1."""
    document = _document(
        run_at=NOON,
        queue="q",
        priority="high",
        tenant="t",
        name="n",
        key="k",
        key_ttl="1d",
        unique=True,
        timeout="1m",
        deadline="1h",
        start_within="5m",
        delivery="at_most_once",
        lease="10s",
        progress_within="30s",
        max_lost=1,
        grace="2s",
        tags=["x"],
        submitted_by="me",
        trace="tr",
    )
    assert document | {"payload": None} == {
        "task": "a",
        "payload": None,
        "run_at": "2026-03-01T12:00:00Z",
        "queue": "q",
        "lane": 1,
        "tenant": "t",
        "name": "n",
        "key": "k",
        "key_ttl_s": 86400.0,
        "unique": {"by": ["task", "payload"], "holds_s": None, "replace": False},
        "timeout_s": 60.0,
        "at_most_once": True,
        "tags": ["x"],
        "submitted_by": "me",
        "trace": "tr",
        "policy": {
            "deadline_s": 3600.0,
            "start_within_s": 300.0,
            "lease_s": 10.0,
            "progress_within_s": 30.0,
            "max_lost": 1,
            "grace_s": 2.0,
        },
    }


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"run_at": NOON, "delay": "1s"}, "delay"),
        ({"run_at": NOON.replace(tzinfo=None)}, "run_at"),
        ({"run_at": "2026-03-01T12:00:00Z"}, "run_at"),
        ({"delay": "-1s"}, "delay"),
        ({"delay": "soon"}, "delay"),
        ({"timeout": "x"}, "timeout"),
        ({"deadline": -1}, "deadline"),
        ({"start_within": None, "lease": "?"}, "lease"),
        ({"progress_within": float("nan")}, "progress_within"),
        ({"grace": "-2s"}, "grace"),
        ({"key_ttl": "11y"}, "key_ttl"),
        ({"priority": "urgent"}, "priority"),
        ({"priority": 1}, "priority"),
        ({"priority": ""}, "priority"),
        ({"delivery": "exactly_once"}, "delivery"),
        ({"queue": ""}, "queue"),
        ({"queue": "q" * (NAME_LIMIT + 1)}, "queue"),
        ({"tenant": "a\x00b"}, "tenant"),
        ({"name": "\ud800"}, "name"),
        ({"name": 7}, "name"),
        ({"key": ""}, "key"),
        ({"submitted_by": "a\x00b"}, "submitted_by"),
        ({"trace": "\ud800"}, "trace"),
        ({"max_lost": 0}, "max_lost"),
        ({"max_lost": 1001}, "max_lost"),
        ({"tags": "one"}, "tags"),
        ({"tags": ["t"] * (TAG_LIMIT + 1)}, "tags"),
        ({"tags": ["ok", ""]}, "tags.1"),
        ({"unique": "task"}, "unique"),
    ],
    ids=str,
)
def test_an_invalid_option_is_rejected_by_name(options: dict[str, Any], field: str) -> None:
    """F2: the field, and what to write instead."""
    with pytest.raises(Invalid) as refused:
        submission("a", {}, **options)
    assert refused.value.field == field
    assert len(refused.value.message) > 10


@pytest.mark.parametrize("task", ["", None, 7, "x" * (NAME_LIMIT + 1), "a\x00", "\udfff"], ids=repr)
def test_a_task_needs_a_name(task: Any) -> None:
    """F2."""
    with pytest.raises(Invalid) as refused:
        submission(task, {})
    assert refused.value.field == "task"


@pytest.mark.parametrize("priority", ["critical", "high", "normal", "low"])
def test_the_priority_names_the_lane(priority: Any) -> None:
    """C8: 0 is the most urgent."""
    assert Lane.of(priority) == ["critical", "high", "normal", "low"].index(priority)


# Payloads.


@dataclasses.dataclass
class _Reading:
    value: float


class _Struct(msgspec.Struct):
    value: float


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: x,
        lambda x: {"a": x},
        lambda x: [0, (1, x)],
        lambda x: {x},
        lambda x: {"a": _Reading(x)},
        lambda x: [_Struct(x)],
    ],
    ids=["bare", "dict", "tuple", "set", "dataclass", "struct"],
)
def test_numbers_that_json_does_not_have_are_rejected_at_any_depth(bad: float, wrap: Any) -> None:
    """F2: the encoder would write null without an error."""
    with pytest.raises(Invalid) as refused:
        encoded_payload(wrap(bad))
    assert refused.value.field.startswith("payload")


def test_the_path_of_an_invalid_number_is_named() -> None:
    """F2."""
    with pytest.raises(Invalid) as refused:
        encoded_payload({"rows": [{"x": 1.0}, {"x": float("nan")}]})
    assert refused.value.field == "payload.rows.1.x"


@pytest.mark.parametrize("payload", ["\x00", {"a": ["b\x00"]}, {"\x00": 1}, "\\\x00", "\\\\\x00"], ids=repr)
def test_a_nul_character_is_rejected(payload: Any) -> None:
    """Rule "bisect bad batches": PostgreSQL cannot keep it."""
    with pytest.raises(Invalid, match="NUL"):
        encoded_payload(payload)


@pytest.mark.parametrize("payload", ["\\u0000", "\\\\u0000", {"\\u0000": "u0000"}, "\x01"], ids=repr)
def test_a_text_that_only_looks_like_a_nul_is_kept(payload: Any) -> None:
    """Rule "bisect bad batches": a backslash and some letters are not a NUL."""
    assert msgspec.json.decode(encoded_payload(payload)) == payload


@pytest.mark.parametrize(
    "payload",
    ["\ud800", {"a": "\udfff"}, object(), {"f": print}, {1j: 1}],
    ids=["surrogate", "nested", "object", "function", "complex"],
)
def test_a_value_without_a_json_form_is_rejected(payload: Any) -> None:
    """F2."""
    with pytest.raises(Invalid, match="payload"):
        encoded_payload(payload)


def test_a_payload_that_contains_itself_is_rejected() -> None:
    """F2: a typed error, not a crash."""
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(Invalid, match="payload"):
        encoded_payload(loop)


def test_a_payload_is_at_most_256_kib_as_it_is_written() -> None:
    """F4: to the byte."""
    assert len(bytes(encoded_payload("x" * (PAYLOAD_BYTES_LIMIT - 2)))) == PAYLOAD_BYTES_LIMIT
    with pytest.raises(Invalid, match="262,145 bytes, the limit is 262,144"):
        encoded_payload("x" * (PAYLOAD_BYTES_LIMIT - 1))
    with pytest.raises(Invalid, match="limit"):
        encoded_payload("é" * (PAYLOAD_BYTES_LIMIT // 2))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_a_payload_is_kept_exactly_or_rejected(payload: Any) -> None:
    """A1, F2: never changed."""
    try:
        encoded = encoded_payload(payload)
    except Invalid:
        return
    assert msgspec.json.decode(encoded) == payload


# Policies.


def test_a_policy_of_defaults_is_none() -> None:
    """A12."""
    assert policy() is None
    assert policy(max_lost=3) == Policy(max_lost=3)  # an explicit default counts: it overrides the registered value of the task


def test_an_unset_retry_is_not_written_so_the_task_keeps_its_own() -> None:
    """C5, A12: a deadline does not set retries."""
    assert msgspec.to_builtins(policy(deadline="1h")) == {"deadline_s": 3600.0}


def test_an_explicit_retry_is_written_even_if_it_equals_the_default() -> None:
    """C5, A12: the submitter's value overrides the task's options."""
    assert msgspec.to_builtins(policy(retry=Retry())) == {"retry": {}}


def test_a_policy_is_read_back_from_json() -> None:
    """C5: rules by exception included."""
    chosen = policy(
        retry=Retry.linear(base="1s").on(ValueError, "never").on(OSError, Retry.immediate()), deadline="1h", max_lost=9
    )
    assert msgspec.json.decode(msgspec.json.encode(chosen), type=Policy) == chosen


# Uniqueness.


def test_equal_means_task_and_payload_by_default() -> None:
    """A10."""
    assert Unique.of() == Unique() == Unique(("task", "payload"), None, replace=False)
    assert Unique.of("name", "payload.user.id", period="1h", on_conflict="replace") == Unique(
        ("name", "payload.user.id"), 3600.0, replace=True
    )


@pytest.mark.parametrize("part", ["tenant", "payloads", "payload.", "", "Task"])
def test_an_unknown_part_is_rejected(part: str) -> None:
    """F2."""
    with pytest.raises(Invalid) as refused:
        Unique.of(part)
    assert refused.value.field == "unique"


def test_an_unknown_conflict_policy_is_rejected() -> None:
    """F2."""
    with pytest.raises(Invalid, match="keep or replace"):
        Unique.of(on_conflict="merge")  # type: ignore[arg-type]
    with pytest.raises(Invalid, match=r"unique\.period"):
        Unique.of(period="long")


def test_a_document_is_read_back_unchanged() -> None:
    """A11: a remote client sends what a local one would."""
    document = submission(
        "a", {"n": 1}, unique=Unique.of("name"), tags=["x"], retry=Retry.after("1s"), delay=timedelta(hours=1)
    )
    again = msgspec.json.decode(msgspec.json.encode(document), type=Submission)
    assert msgspec.json.encode(again) == msgspec.json.encode(document)
