"""F2: the error of a wrong choice lists the right ones, anywhere in a body."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sexton.api.answers.problems import Refused
from sexton.api.requests.bodies import decoded
from sexton.api.requests.choices import choices_at
from sexton.wire import JobRequest


@pytest.mark.parametrize(
    ("given", "detail"),
    [
        ({"priority": "urgent"}, "'urgent' is unknown; use critical, high, low or normal"),
        ({"overlap": "x"}, "'x' is unknown; use "),
        ({"catch_up": {"policy": "x"}}, "'x' is unknown; use "),
        ({"handler": {"type": "smtp"}}, "'smtp' is unknown; use "),
        ({"retry": {"backoff": "slowly"}}, "'slowly' is unknown; use "),
    ],
)
def test_the_allowed_values_are_listed(given: dict[str, Any], detail: str) -> None:
    with pytest.raises(Refused) as refused:
        decoded(msgspec.json.encode({"handler": "a", **given}), JobRequest)
    assert refused.value.faults[0].detail.startswith(detail)


def test_every_type_of_handler_is_named() -> None:
    assert set(choices_at(JobRequest, ("handler", "type"))) == {"python", "http", "grpc", "script"}


@pytest.mark.parametrize("path", [("name",), ("nothing",), ("tags", "..."), ("handler", "url", "deeper")])
def test_without_a_fixed_list_nothing_is_listed(path: tuple[str, ...]) -> None:
    assert choices_at(JobRequest, path) == ()
