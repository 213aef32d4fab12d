"""The checker accepts possible histories and rejects falsified ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from . import journal
from .checker import Findings, History, Try, judge

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
JOB, ONE, TWO = UUID(int=1), UUID(int=101), UUID(int=102)


def tried(token: int, status: str, began_s: float, ended_s: float, *, attempt: int = 1, worker: UUID = ONE) -> Try:
    return Try(JOB, JOB, worker, token, attempt, status, at(began_s), at(ended_s))


def wrote(what: str, s: float, *, pid: int = 1, attempt: int = 1) -> journal.Line:
    return journal.Line(what, JOB, JOB, attempt, pid, s, at(s).timestamp(), 0)


def at(s: float) -> datetime:
    return NOON + timedelta(seconds=s)


def story(*parts: Try | journal.Line, ending: str | None = "completed", live: bool = False) -> Findings:
    return judge(
        History(
            [JOB],
            {} if ending is None else {JOB: ending},
            {JOB} if live else set(),
            [part for part in parts if isinstance(part, Try)],
            [part for part in parts if isinstance(part, journal.Line)],
        )
    )


def test_a_run_that_is_executed_once_is_sound() -> None:
    found = story(tried(1, "succeeded", 0, 1), wrote("start", 0), wrote("end", 1))
    assert found.all_completed
    assert found.repeated_because == {}


def test_a_handler_that_lost_its_lease_may_still_run_while_the_next_one_works() -> None:
    found = story(
        tried(1, "lost", 0, 6),
        tried(2, "succeeded", 6.5, 20, worker=TWO),
        wrote("start", 0),
        wrote("start", 6.5, pid=2),
        wrote("end", 15),
        wrote("end", 20, pid=2),
    )
    assert found.all_completed, str(found)
    assert found.repeated_because == {"lost": 1}


def test_a_paused_worker_may_begin_while_the_next_one_works() -> None:
    """Found by chaos: both starts match both executions, and only one of the handlers ended."""
    found = story(
        tried(1, "lost", 0, 4),
        tried(2, "succeeded", 5, 9, worker=TWO),
        wrote("start", 5.2, pid=2),
        wrote("start", 8),
        wrote("end", 9, pid=2),
    )
    assert found.all_completed, str(found)


def test_a_run_that_was_handed_back_may_never_have_begun() -> None:
    found = story(tried(1, "released", 0, 0.1), tried(2, "succeeded", 0.2, 1), wrote("start", 0.2), wrote("end", 1))
    assert found.all_completed, str(found)
    assert found.repeated_because == {"released": 1}


def test_a_process_that_tries_a_run_twice_ends_each_try_separately() -> None:
    found = story(
        tried(1, "released", 0, 1), tried(2, "succeeded", 9, 10), wrote("start", 0), wrote("start", 9), wrote("end", 10)
    )
    assert found.all_completed, str(found)


def test_a_live_run_has_a_start_that_history_does_not_show_yet() -> None:
    assert story(tried(1, "lost", 0, 6), wrote("start", 0), wrote("start", 7), ending=None, live=True).is_sound
    assert story(wrote("start", 0), ending=None, live=True).is_sound


FALSIFIED = {
    "neither live nor ended": (story(ending=None), "lost"),
    "ended and live": (story(tried(1, "succeeded", 0, 1), wrote("start", 0), wrote("end", 1), live=True), "unexplained"),
    "two executions under one token": (
        story(tried(1, "lost", 0, 1), tried(1, "succeeded", 0, 1, worker=TWO), wrote("start", 0), wrote("end", 1)),
        "double_leases",
    ),
    "overlapping executions by history": (
        story(
            tried(1, "failed", 0, 9),
            tried(2, "succeeded", 5, 6, attempt=2, worker=TWO),
            wrote("start", 0),
            wrote("start", 5, pid=2, attempt=2),
            wrote("end", 6, pid=2, attempt=2),
        ),
        "double_leases",
    ),
    "overlapping work by the journal alone": (
        story(
            tried(1, "failed", 0, 1),
            tried(2, "succeeded", 0.5, 2, attempt=2, worker=TWO),
            wrote("start", 0),
            wrote("start", 0.5, pid=2, attempt=2),
            wrote("end", 1),
            wrote("end", 2, pid=2, attempt=2),
        ),
        "double_leases",
    ),
    "a second execution after a success": (
        story(
            tried(1, "succeeded", 0, 1),
            tried(2, "succeeded", 2, 3, attempt=2),
            wrote("start", 0),
            wrote("end", 1),
            wrote("start", 2, attempt=2),
            wrote("end", 3, attempt=2),
        ),
        "unexplained",
    ),
    "a claim without history": (story(tried(2, "succeeded", 0, 1), wrote("start", 0), wrote("end", 1)), "unexplained"),
    "work that history does not know": (
        story(tried(1, "succeeded", 0, 1), wrote("start", 0), wrote("end", 1), wrote("start", 0.5, pid=2)),
        "unexplained",
    ),
    "work though nothing is recorded": (story(wrote("start", 0)), "unexplained"),
    "a success that no worker executed": (story(tried(1, "succeeded", 0, 1)), "unexplained"),
    "a success whose handler did not come to its end": (story(tried(1, "succeeded", 0, 1), wrote("start", 0)), "unexplained"),
}


@pytest.mark.parametrize("name", FALSIFIED)
def test_a_falsified_history_is_rejected(name: str) -> None:
    found, fault = FALSIFIED[name]
    assert not found.is_sound
    assert getattr(found, fault), str(found)
