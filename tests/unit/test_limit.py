"""Limits by key, the settings of tenants and queues, the order of a worker's queues: valid and invalid values."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sexton.domain.fault import Invalid
from sexton.domain.job import submission
from sexton.domain.limit import Limit, limit, limit_of, standing_limit
from sexton.domain.queue_order import QueueOrder, queue_order
from sexton.domain.retry import Retry
from sexton.domain.sharing import TenantSettings, plain_name, queue_settings, tenant_settings


def test_a_limit_is_a_key_and_the_numbers_that_create_it() -> None:
    """C10."""
    assert limit("stripe") == Limit("stripe")
    assert limit("stripe", running=5) == Limit("stripe", running=5)
    assert limit("api:{payload.user.id}", count=100, per="1m") == Limit("api:{payload.user.id}", None, 100, 60.0, 10)
    assert limit("x", count=3, per=1).burst == 1
    assert limit("x", count=3, per=0.001, burst=7).burst == 7
    assert limit("x", ordered=True) == limit("x", running=1, ordered=True) == Limit("x", running=1, ordered=True)


@pytest.mark.parametrize(
    ("field", "words", "given"),
    [
        ("limit.key", "non-empty", {"key": ""}),
        ("limit.key", "non-empty", {"key": 5}),
        ("limit.key", "limit is 200", {"key": "x" * 201}),
        ("limit.key", "begins with '@'", {"key": "@tenant:a"}),
        ("limit.key", "control character", {"key": "a\nb"}),
        ("limit.key", "control character", {"key": "a\x00b"}),
        ("limit.key", "brace", {"key": "a{payload.x"}),
        ("limit.key", "brace", {"key": "a}"}),
        ("limit.key", "brace", {"key": "{user}"}),
        ("limit.key", "brace", {"key": "{payload}"}),
        ("limit.key", "brace", {"key": "{payload..x}"}),
        ("limit.running", "between 1 and 10,000", {"key": "a", "running": 0}),
        ("limit.running", "between 1 and 10,000", {"key": "a", "running": 10_001}),
        ("limit.running", "whole number", {"key": "a", "running": True}),
        ("limit.running", "whole number", {"key": "a", "running": 2.5}),
        ("limit.running", "an ordered limit cannot allow 2 at once", {"key": "a", "running": 2, "ordered": True}),
        ("limit.ordered", "true or false", {"key": "a", "ordered": "yes"}),
        ("limit.per", "belong together", {"key": "a", "count": 5}),
        ("limit.count", "belong together", {"key": "a", "per": "1s"}),
        ("limit.count", "whole number", {"key": "a", "count": 0, "per": "1s"}),
        ("limit.per", "1ms and 1d", {"key": "a", "count": 1, "per": 0}),
        ("limit.per", "1ms and 1d", {"key": "a", "count": 1, "per": "2d"}),
        ("limit.per", "not a duration", {"key": "a", "count": 1, "per": "soon"}),
        ("limit.burst", "needs a rate", {"key": "a", "running": 1, "burst": 2}),
        ("limit.burst", "whole number", {"key": "a", "count": 1, "per": "1s", "burst": 0}),
        ("limit.max", "no such field", {"key": "a", "max": 2}),
        ("limit.key", "is required", {"running": 2}),
    ],
)
def test_an_invalid_limit_is_rejected_with_its_field(field: str, words: str, given: dict[str, Any]) -> None:
    """F2."""
    with pytest.raises(Invalid, match=words) as raised:
        limit_of(given)
    assert raised.value.field == field


def test_a_limit_is_written_as_a_key_a_mapping_or_a_limit() -> None:
    """C10: and validated again."""
    expected = Limit("a", running=5)
    assert limit_of(None) is None
    assert limit_of("a") == Limit("a")
    assert limit_of({"key": "a", "running": 5}) == limit_of(expected) == expected
    with pytest.raises(Invalid):
        limit_of(Limit("@a"))
    with pytest.raises(Invalid, match="write"):
        limit_of(5)
    document = submission("t", {}, limit={"key": "a", "count": 10, "per": "2s"}).limit
    assert msgspec.to_builtins(document) == {"key": "a", "count": 10, "per_s": 2.0, "burst": 1}


def test_a_limit_that_is_set_has_numbers_and_no_template() -> None:
    """C10: a key made from a payload may contain braces."""
    assert standing_limit("a{b}", running=2) == Limit("a{b}", running=2)
    with pytest.raises(Invalid, match="template"):
        standing_limit("a:{payload.x}", running=2)
    with pytest.raises(Invalid, match="give running") as raised:
        standing_limit("a")
    assert raised.value.field == "running"


def test_settings_of_a_tenant_have_defaults() -> None:
    """C8, C9."""
    assert tenant_settings().weight == TenantSettings().weight == 1
    assert tenant_settings(submit_rate=0.5).submit_burst == 1
    assert tenant_settings(submit_rate=100, jitter="30s").submit_burst == 100
    assert queue_settings(release_rate=100).release_burst == 10
    assert queue_settings(timeout=0, ageing="10m", retry=Retry.never()).timeout_s == 0


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("weight", {"weight": 0}),
        ("weight", {"weight": 1001}),
        ("weight", {"weight": 1.5}),
        ("running_max", {"running_max": 0}),
        ("waiting_max", {"waiting_max": 1_000_001}),
        ("submit_rate", {"submit_rate": 0}),
        ("submit_rate", {"submit_rate": float("nan")}),
        ("submit_rate", {"submit_rate": True}),
        ("submit_burst", {"submit_burst": 5}),
        ("submit_burst", {"submit_rate": 5, "submit_burst": 0}),
        ("jitter", {"jitter": "31m"}),
    ],
)
def test_an_invalid_setting_of_a_tenant_is_rejected(field: str, given: dict[str, Any]) -> None:
    """F2."""
    with pytest.raises(Invalid) as raised:
        tenant_settings(**given)
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("release_rate", {"release_rate": -1}),
        ("release_burst", {"release_burst": 5}),
        ("ageing", {"ageing": 0}),
        ("ageing", {"ageing": "8d"}),
        ("timeout", {"timeout": "never"}),
        ("jitter", {"jitter": "1h"}),
        ("retry", {"retry": {"max_attempts": 2}}),
    ],
)
def test_an_invalid_setting_of_a_queue_is_rejected(field: str, given: dict[str, Any]) -> None:
    """F2."""
    with pytest.raises(Invalid) as raised:
        queue_settings(**given)
    assert raised.value.field == field


def test_a_name_that_a_job_could_not_have_is_rejected() -> None:
    """F2."""
    assert plain_name("a/b") == "a/b"
    for name in ("", "x" * 201, "a\x00", "\ud800"):
        with pytest.raises(Invalid):
            plain_name(name)


@pytest.mark.parametrize(
    ("given", "order"),
    [
        ("mail", QueueOrder(("mail",), (1,))),
        (" mail , default ,", QueueOrder(("mail", "default"), (1, 1))),
        ("mail:3,default:1", QueueOrder(("mail", "default"), (3, 1))),
        ("mail:3,default", QueueOrder(("mail", "default"), (3, 1))),
        ("mail > default", QueueOrder(("mail", "default"), (1, 1), strict=True)),
        ("eu:mail:2,urn:x", QueueOrder(("eu:mail", "urn:x"), (2, 1))),
        (["mail:3", "default"], QueueOrder(("mail", "default"), (3, 1))),
        (("mail:3", "default"), QueueOrder(("mail:3", "default"), (1, 1))),
    ],
)
def test_a_worker_gets_the_order_of_its_queues(given: Any, order: QueueOrder) -> None:
    """C11."""
    assert queue_order(given) == order


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", "has no queue"),
        (" , ", "has no queue"),
        ("a>b,c", "mixes"),
        ("a:2>b", "no weights"),
        ("a:0,b", "a weight must be"),
        ("a:1001,b", "a weight must be"),
        (f"a:{10**30}", "a weight must be"),
        ("a,b,a", "twice"),
        (":3", "the name of a queue"),
        ("x" * 201, "the name of a queue"),
        (",".join(f"q{n}" for n in range(201)), "the limit is 200"),
    ],
)
def test_an_invalid_order_of_queues_is_rejected(given: str, words: str) -> None:
    """C11, F2."""
    with pytest.raises(Invalid, match=words):
        queue_order(given)
