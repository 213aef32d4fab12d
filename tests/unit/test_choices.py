"""F2: a wrong choice is answered with the right ones, wherever in a body it stands."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sexton.api.answers.problems import Refused
from sexton.api.requests.bodies import decoded
from sexton.api.requests.choices import choices_at
from sexton.wire import JobRequest


@pytest.mark.parametrize(
    ("said", "detail"),
    [
        ({"priority": "urgent"}, "'urgent' is unknown; use critical, high, low or normal"),
        ({"overlap": "x"}, "'x' is unknown; use "),
        ({"catch_up": {"policy": "x"}}, "'x' is unknown; use "),
        ({"handler": {"type": "smtp"}}, "'smtp' is unknown; use "),
        ({"retry": {"backoff": "slowly"}}, "'slowly' is unknown; use "),
    ],
)
def test_what_may_stand_there_is_said(said: dict[str, Any], detail: str) -> None:
    with pytest.raises(Refused) as refused:
        decoded(msgspec.json.encode({"handler": "a", **said}), JobRequest)
    assert refused.value.faults[0].detail.startswith(detail)


def test_every_type_of_handler_is_named() -> None:
    assert set(choices_at(JobRequest, ("handler", "type"))) == {"python", "http", "grpc", "script"}


@pytest.mark.parametrize("path", [("name",), ("nothing",), ("tags", "..."), ("handler", "url", "deeper")])
def test_where_anything_may_stand_nothing_is_said(path: tuple[str, ...]) -> None:
    assert choices_at(JobRequest, path) == ()
