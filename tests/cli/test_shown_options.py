"""`sexton jobs show` prints every option that a job can have: what is not printed, its submitter cannot check."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sexton import wire
from sexton.api.openapi import examples
from sexton.cli.commands.jobs import fields
from sexton.cli.printing import print_fields
from sexton.domain.job_options import OPTIONS, Option

# For each option that has a value in the answer: the value, and how it is printed.
SHOWN: dict[str, tuple[Any, str]] = {
    "handler": ("report", "report"),
    "payload": ({"n": 1}, '{"n":1}'),
    "run_at": ("2030-01-01T09:00:00Z", "2030-01-01 09:00:00Z"),
    "delay": ("2030-01-01T09:00:00Z", "2030-01-01 09:00:00Z"),
    "tenant": ("acme", "acme"),
    "queue": ("mail", "mail"),
    "priority": ("high", "high"),
    "delivery": ("at_most_once", "at_most_once"),
    "name": ("morning", "morning"),
    "tags": (["x", "y"], "x,y"),
    "retry": ({"max_attempts": 2}, '{"max_attempts":2}'),
    "timeout": (60.0, "60 s"),
    "deadline": (3600.0, "3600 s"),
    "start_within": (300.0, "300 s"),
    "lease": (10.0, "10 s"),
    "progress_within": (30.0, "30 s"),
    "grace": (2.0, "2 s"),
    "max_lost": (7, "7"),
    "limit": ({"key": "stripe", "running": 2}, '{"key":"stripe","running":2}'),
    "idempotency_key": ("k-1", "k-1"),
    "cron": ("0 9 * * *", "0 9 * * *"),
    "rrule": ("FREQ=DAILY", "FREQ=DAILY"),
    "every": (900.0, "900 s"),
    "timezone": ("Asia/Tokyo", "Asia/Tokyo"),
    "dst": ({"gap": "skip"}, '"gap":"skip"'),
    "jitter": ({"max": 30.0}, '"max":30.0'),
    "start_at": ("2030-01-01T00:00:00Z", "2030-01-01 00:00:00Z"),
    "end_at": ("2031-01-01T00:00:00Z", "2031-01-01 00:00:00Z"),
    "max_fires": (5, "5"),
    "exclude": (["2030-12-25", "22:00-06:00"], "2030-12-25,22:00-06:00"),
    "dialect": ("quartz", "quartz"),
    "anchor_at": ("2026-01-01T00:00:00Z", "2026-01-01 00:00:00Z"),
    "overlap": ({"policy": "queue", "max_queued": 9}, '{"policy":"queue","max_queued":9}'),
    "catch_up": ({"policy": "all", "window": 60.0}, '{"policy":"all","window":60.0}'),
    "on_resume": ("latest", "latest"),
    "pause_after": (3, "3"),
}


def test_every_option_that_an_answer_shows_is_here() -> None:
    assert SHOWN.keys() == {option.name for option in OPTIONS if option.field is not None}


@pytest.mark.parametrize("option", [one for one in OPTIONS if one.field is not None], ids=lambda one: one.name)
def test_an_option_is_printed_with_its_value(option: Option, capsys: pytest.CaptureFixture[str]) -> None:
    """`on_resume`, `pause_after`, and of `overlap` and `catch_up` the numbers, were once accepted and never printed."""
    value, text = SHOWN[option.name]
    field, _, within = str(option.field).partition(".")
    document = {**examples.JOB, field: {within: value} if within else value}
    print_fields(fields(msgspec.json.decode(msgspec.json.encode(document), type=wire.Job)))
    printed = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    facts = {name.strip(): said.strip() for name, said in printed.items()}
    assert text in facts["run at" if option.name == "delay" else option.name.replace("_", " ")]
