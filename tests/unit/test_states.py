"""The table of transitions: complete, reachable, and equal to the schema's lists."""

from __future__ import annotations

import re

import pytest

from sexton.domain.outcome import Cancelled, ErrorInfo, Failed, Lost, Missed, Released, Snoozed, Succeeded, TimedOut, status_of
from sexton.domain.states import TRANSITIONS, Event, JobStatus, RunState, Status, legal
from sexton.store.migrations import steps

SCHEMA = "\n".join(step.sql for step in steps.known())


def _words(constraint: str) -> set[str]:
    *_, last = re.findall(rf"CONSTRAINT {constraint}\s+CHECK \(\w+ IN \(([^)]*)\)", SCHEMA)
    return set(re.findall(r"'(\w+)'", last))


def test_every_event_is_in_the_table() -> None:
    """B1."""
    assert {event for event, _, _ in TRANSITIONS} == set(Event)


def test_every_state_can_be_reached_and_left() -> None:
    """B1: no state is final by mistake."""
    assert {target for _, _, target in TRANSITIONS} - {None} == set(RunState)
    assert {source for _, source, _ in TRANSITIONS} - {None} == set(RunState)
    reached: set[RunState | None] = {None}
    for _ in RunState:
        reached |= {target for _, source, target in TRANSITIONS if source in reached}
    assert reached == {None, *RunState}


def test_only_a_claim_makes_a_run_running_and_only_from_ready_or_quarantined() -> None:
    """B1: one transition for all runs, and one for suspects."""
    assert {(event, source) for event, source, target in TRANSITIONS if target is RunState.RUNNING} == {
        (Event.CLAIMED, RunState.READY),
        (Event.CLAIMED, RunState.QUARANTINED),
    }


def test_no_transition_keeps_the_state() -> None:
    """B1."""
    assert all(source != target for _, source, target in TRANSITIONS)


def test_legal_returns_the_events_between_two_states() -> None:
    """B1."""
    assert legal(RunState.READY, RunState.RUNNING) == {Event.CLAIMED}
    assert legal(RunState.RUNNING, None) == {Event.SUCCEEDED, Event.BURIED, Event.CANCELLED}
    assert legal(RunState.WAITING, RunState.RUNNING) == frozenset()
    assert legal(None, RunState.RUNNING) == frozenset()


def test_the_schema_checks_exactly_these_words() -> None:
    """B1, A8: the CHECK lists of the tables."""
    assert _words("state_is_known") == set(RunState)
    assert _words("status_is_known") == set(Status)
    assert _words("status_is_final") <= set(JobStatus)


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Succeeded(), "succeeded"),
        (Failed(ErrorInfo("E", "m")), "failed"),
        (TimedOut("t"), "timed_out"),
        (Cancelled(), "cancelled"),
        (Snoozed(1), "snoozed"),
        (Released("r"), "released"),
        (Lost("l"), "lost"),
        (Missed("m"), "missed"),
    ],
)
def test_every_outcome_has_a_status_of_its_own(outcome: object, status: str) -> None:
    """A9."""
    assert status_of(outcome) == status  # type: ignore[arg-type]
