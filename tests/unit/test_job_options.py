"""One description of a job's options; these tests find a layer that lacks an option."""

from __future__ import annotations

from typing import Any

import pytest

from sexton import wire
from sexton.cli.main import load
from sexton.client.options import Options, ScheduleOptions
from sexton.domain.job import Policy
from sexton.domain.job_options import BY_NAME, FIXED, IN_POLICY, OPTIONS, RECURRENCE, Option
from sexton.domain.schedule.recurrence import Recurrence
from tools import job_options
from tools.reference import _openapi

ALL = pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)


def flags(command: str, *below: str) -> set[str]:
    found: Any = load(command)
    for name in below:
        found = found.commands[name]
    return {flag for parameter in found.params for flag in parameter.opts if flag.startswith("--")}


def test_every_submitted_option_is_in_the_table() -> None:
    assert set(wire.JobRequest.__struct_fields__) == BY_NAME.keys()
    assert {option.name for option in OPTIONS if option.in_schedule} == set(wire.Schedule.__struct_fields__)


@ALL
def test_every_submitted_option_is_shown_or_has_a_reason(option: Option) -> None:
    """`lease`, `progress_within`, `grace` and `max_lost` were once accepted and never shown."""
    if option.field is None:
        assert option.unseen
    elif option.in_schedule:
        assert option.field == f"schedule.{option.name}"
    else:
        assert option.field in wire.Job.__struct_fields__


@ALL
def test_every_shown_option_can_be_edited_or_has_a_reason(option: Option) -> None:
    """`limit` and `delivery` could once not be edited."""
    assert (option.name in wire.JobEdit.__struct_fields__) is not (option.name in FIXED)
    assert option.name not in FIXED or FIXED[option.name]


@ALL
def test_an_option_has_a_flag_or_a_reason(option: Option) -> None:
    assert (option.option is None) is bool(option.no_flag)
    if option.option is not None:
        assert option.option in flags("submit")
        assert (option.option in flags("jobs", "edit")) is not (option.name in FIXED)


@ALL
def test_an_option_is_a_keyword_of_the_sdk(option: Option) -> None:
    keywords = ScheduleOptions if option.jobs == "recurring" else Options
    assert option.kind in ("handler", "payload") or option.in_sdk in keywords.__optional_keys__


@ALL
def test_an_option_is_documented_wherever_it_is_shown(option: Option) -> None:
    assert option.means.endswith(".")
    rows = job_options.page()
    assert sum(row.startswith(f"| `{option.name}` |") for row in rows) == 2
    schemas = openapi_schemas()
    edges = [("JobRequest", option.name), ("JobEdit", None if option.fixed else option.name)]
    edges += [("Job", option.field), ("Submitted", option.field)] if option.has_own_field else []
    for struct, field in edges:
        if field is not None:
            assert schemas[struct][field]["description"].startswith(option.means), (struct, field)


def test_the_documents_agree_with_the_table() -> None:
    assert set(Policy.__struct_fields__) == {*IN_POLICY.values(), "target"}
    assert set(Recurrence.__struct_fields__) == set(RECURRENCE)


def openapi_schemas() -> dict[str, Any]:
    if not _SCHEMAS:
        _SCHEMAS.update({name: schema.get("properties") for name, schema in _openapi()["components"]["schemas"].items()})
    return _SCHEMAS


_SCHEMAS: dict[str, Any] = {}
