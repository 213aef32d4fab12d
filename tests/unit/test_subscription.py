"""C15: valid subscriptions, and the options of their deliveries."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sexton.domain.fault import Invalid
from sexton.domain.job import Policy
from sexton.domain.subscription import KINDS, RETRY, Runs, job_name, subscription
from sexton.domain.targets import HTTP_TASK, HttpTarget

HOOK = HttpTarget("https://hooks.example/sexton")


def test_unset_fields_mean_all_kinds_of_all_runs() -> None:
    made = subscription("orders", HOOK)
    assert (made.kinds, made.runs, made.paused) == (KINDS, Runs(), False)


def test_kinds_are_kept_once_each_and_in_one_order() -> None:
    assert subscription("orders", HOOK, kinds=["missed", "failed", "missed"]).kinds == ("failed", "missed")


def test_deliveries_are_tried_eight_times_over_more_than_a_day() -> None:
    """C15: their own retries."""
    assert RETRY.max_attempts == 8
    assert 24 <= sum(RETRY.delays_s) / 3600 <= 36
    document = msgspec.json.decode(msgspec.json.encode(subscription("orders", HOOK).delivery))
    assert document["task"] == HTTP_TASK
    assert document["timeout_s"] == 15.0
    assert msgspec.convert(document["policy"], Policy).retry == RETRY


def test_any_rejection_by_a_receiver_is_retried_and_202_is_success() -> None:
    """C15: a receiver may be under repair, and none of them calls back."""
    policy = subscription("orders", HOOK).delivery.policy
    assert policy is not None
    assert isinstance(policy.target, HttpTarget)
    assert policy.target.retries_on == ("4xx", "5xx")
    assert not policy.target.calls_back


def test_its_deliveries_are_found_by_their_name() -> None:
    assert job_name("orders") == "webhook:orders"
    assert len(job_name("x" * 100)) <= 200


@pytest.mark.parametrize("name", ["", "-a", ".a", "a b", "a/b", "a\n", "ä", "x" * 101])
def test_a_name_that_is_invalid_in_a_path_is_rejected(name: str) -> None:
    with pytest.raises(Invalid, match="is not a name"):
        subscription(name, HOOK)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"target": HttpTarget("ftp://x")}, "url"),
        ({"target": HttpTarget("https://x", headers={"a": "b\n"})}, "headers.a"),
        ({"target": HttpTarget("https://x", signed_with=("A B",))}, "signed_with"),
        ({"kinds": []}, "kinds"),
        ({"kinds": ["completed", "started"]}, "kinds.1"),
        ({"runs": Runs(tenant="")}, "filter.tenant"),
        ({"runs": Runs(queue="a\x00")}, "filter.queue"),
        ({"queue": ""}, "queue"),
        ({"priority": "urgent"}, "priority"),
        ({"timeout": "soon"}, "timeout"),
    ],
)
def test_each_fault_is_named(given: dict[str, Any], field: str) -> None:
    """F2."""
    with pytest.raises(Invalid) as refused:
        subscription("orders", given.pop("target", HOOK), **given)
    assert refused.value.field == field
