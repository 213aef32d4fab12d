"""Rule "leave in bounded time": the order and the limits of the end of a process, without ending one. With real processes in
tests/process/test_hostile_handlers.py."""

from __future__ import annotations

import _thread
import atexit
import faulthandler
import re
import time
from pathlib import Path
from typing import Any

import pytest

from sexton.cli import bounded_exit

RULES = Path(__file__).parents[2] / "docs/rules.md"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the module does to the process, in order."""
    done: list[tuple[Any, ...]] = []

    def instead(place: object, name: str) -> None:
        monkeypatch.setattr(place, name, lambda *given, **_named: done.append((name, *given)))

    monkeypatch.setattr(bounded_exit, "is_expected", lambda: True)
    monkeypatch.setattr(bounded_exit, "_children", list)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    for place, name in (
        (faulthandler, "dump_traceback_later"),
        (_thread, "start_new_thread"),
        (time, "sleep"),
        (atexit, "_run_exitfuncs"),
        (bounded_exit, "_join"),
        (bounded_exit, "_tell"),
        (bounded_exit, "_end"),
    ):
        instead(place, name)
    return done


def test_the_limits_hold_before_anything_is_waited_for(steps: list[tuple[Any, ...]]) -> None:
    bounded_exit.leave(7)
    assert steps == [
        ("dump_traceback_later", 5.0),
        ("start_new_thread", bounded_exit._end_after, (2.0, 7)),
        ("_join", 101.0),
        ("_tell",),
        ("_run_exitfuncs",),
        ("_end", 7),
    ]


def test_the_limit_ends_the_process_after_exactly_this_time(steps: list[tuple[Any, ...]]) -> None:
    bounded_exit._end_after(bounded_exit.EXIT_S, 7)
    assert steps == [
        ("sleep", bounded_exit.EXIT_S),
        ("dump_traceback_later", bounded_exit.THREADS_S),
        ("_tell", bounded_exit.EXIT_S),
        ("_end", 7),
    ]


def test_the_documented_limit_is_that_of_the_code() -> None:
    (promised_s,) = re.findall(r"After its drain a service has (\d+) s for threads", RULES.read_text())
    assert float(promised_s) == bounded_exit.EXIT_S
    assert bounded_exit.THREADS_S < bounded_exit.EXIT_S < bounded_exit.HARD_EXIT_S
