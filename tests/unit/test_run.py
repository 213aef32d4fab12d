"""A lease, and the report that ends it or hands the run back."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

import msgspec
import pytest

from sexton.domain.job import policy
from sexton.domain.outcome import Cancelled, ErrorInfo, Failed, Lost, Missed, Released, Snoozed, Succeeded, TimedOut
from sexton.domain.retry import Retry
from sexton.domain.run import Lease, Report, policy_of, report, retry_state

ERROR = ErrorInfo("ValueError", "broken", kinds=("ValueError",))


def _lease(**options: Any) -> Lease:
    fields: dict[str, Any] = {
        "run_id": UUID(int=1),
        "job_id": UUID(int=2),
        "worker_id": UUID(int=3),
        "token": 4,
        "attempt": 1,
        "lost_count": 0,
        "at_most_once": False,
        "seq": 0,
        "origin": "now",
        "deadline_left_s": None,
        "policy_json": None,
    }
    return Lease(**fields | options)


def _document(made: Report) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(made))
    return document


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Succeeded(), {"next": "end", "status": "succeeded", "ending": "completed"}),
        (
            Succeeded(reason="done before"),
            {"next": "end", "status": "succeeded", "ending": "completed", "reason": "done before"},
        ),
        (Cancelled("by ada"), {"next": "end", "status": "cancelled", "ending": "cancelled", "reason": "by ada"}),
        (Snoozed(5.0), {"next": "again", "status": "snoozed", "delay_s": 5.0, "spends": "nothing"}),
        (Released("drain"), {"next": "again", "status": "released", "delay_s": 0.0, "spends": "nothing", "reason": "drain"}),
        (Lost("gone"), {"next": "again", "status": "lost", "delay_s": 0.0, "spends": "loss", "reason": "gone", "held": 1}),
        (
            Lost("gone", held=7),
            {"next": "again", "status": "lost", "delay_s": 0.0, "spends": "nothing", "reason": "gone", "held": 7},
        ),
        (Missed("late"), {"next": "end", "status": "missed", "ending": "failed", "reason": "late", "permanent": True}),
        (
            Failed(ERROR, permanent=True),
            {
                "next": "end",
                "status": "failed",
                "ending": "failed",
                "permanent": True,
                "reason": "permanent error: ValueError: broken",
                "error": {"type": "ValueError", "message": "broken", "kinds": ["ValueError"]},
            },
        ),
    ],
    ids=str,
)
def test_each_outcome_becomes_one_document(outcome: Any, expected: dict[str, Any]) -> None:
    """Rule "one path in, one path out": the fence, what happened, and what follows."""
    fence = {"run_id": str(UUID(int=1)), "worker_id": str(UUID(int=3)), "token": 4}
    assert _document(report(_lease(), outcome, Random(1))) == fence | expected


def test_a_report_contains_the_output() -> None:
    """A9, C13, C14."""
    made = report(
        _lease(),
        Succeeded(1),
        Random(1),
        started_s=0.5,
        took_s=2.0,
        result=msgspec.Raw(b"1"),
        progress=msgspec.Raw(b"0.5"),
        output="o",
        key="k",
    )
    document = _document(made)
    assert [document[name] for name in ("started_s", "took_s", "result", "progress", "output", "key")] == [
        0.5,
        2.0,
        1,
        0.5,
        "o",
        "k",
    ]


def test_the_last_output_of_a_lost_handler_is_reported() -> None:
    """C13: unless newer output is known."""
    lease = _lease(progress_json='{"n": 1}', output="old")
    document = _document(report(lease, Lost("gone"), Random(1)))
    assert (document["progress"], document["output"]) == ({"n": 1}, "old")
    assert _document(report(lease, Lost("gone"), Random(1), output="new"))["output"] == "new"


def test_the_time_spent_counts_against_the_deadline() -> None:
    """C3: what was left at the claim, minus the time since then."""
    chosen = policy(retry=Retry.after("10s", jitter=0))
    lease = _lease(deadline_left_s=60.0, policy_json=msgspec.json.encode(chosen).decode())
    assert report(lease, Failed(ERROR), Random(1), started_s=1.0, took_s=48.9).next == "again"
    buried = report(lease, Failed(ERROR), Random(1), started_s=1.0, took_s=49.1)
    assert (buried.next, buried.ending) == ("end", "failed")
    assert buried.reason is not None
    assert "deadline" in buried.reason


def test_the_budgets_of_a_lease_are_those_of_its_run() -> None:
    """C5, C7: the policy from the job, the counts from the run, replays from its number."""
    text = msgspec.json.encode(policy(max_lost=9, retry=Retry.never())).decode()
    found = retry_state(
        _lease(attempt=3, lost_count=2, policy_json=text, origin="replay", seq=4, at_most_once=True), deadline_left_s=1.0
    )
    assert (found.attempt, found.lost_count, found.max_lost, found.retry) == (3, 2, 9, Retry.never())
    assert (found.replay_count, found.at_most_once, found.deadline_left_s) == (4, True, 1.0)
    assert retry_state(_lease(seq=4, origin="backfill"), deadline_left_s=None).replay_count == 0


def test_without_a_policy_the_default_applies() -> None:
    """C5."""
    assert policy_of(None) == policy_of("{}")
    assert policy_of(None).retry == Retry()


def test_a_timeout_is_retried_like_a_failure() -> None:
    """C3, C5."""
    made = report(_lease(), TimedOut("over 30 s"), Random(1))
    assert (made.next, made.status, made.spends) == ("again", "timed_out", "attempt")
    assert made.delay_s == pytest.approx(30, rel=0.25)
