"""Process state that handlers change is restored, and their tasks are named."""

from __future__ import annotations

import locale
import os
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sexton.clock import ManualClock
from sexton.handlers.python.process_state import ProcessState
from sexton.telemetry.events import Event, ProcessChanged
from sexton.worker.execution import Phase
from sexton.worker.process_guard import LOOK_S, PATIENCE_S, TELL_S, ProcessGuard

DIRECTORY = "working directory"


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = os.getcwd(), sys.stdout, sys.getrecursionlimit(), signal.getsignal(signal.SIGTERM)
    stderr, language, umask = sys.stderr, locale.setlocale(locale.LC_ALL), os.umask(0o22)
    os.umask(umask)
    yield
    sys.stderr = stderr
    locale.setlocale(locale.LC_ALL, language)
    os.umask(umask)
    os.chdir(before[0])
    sys.stdout = before[1]
    sys.setrecursionlimit(before[2])
    signal.signal(signal.SIGTERM, before[3])


class World:
    """A guard, and handlers that run and end as the test says."""

    def __init__(self) -> None:
        self.clock = ManualClock(datetime(2026, 3, 4, tzinfo=UTC))
        self.ran: set[str] = set()
        self.running: list[Any] = []
        self.events: list[Event] = []
        self.guard = ProcessGuard(ProcessState(), self.ran, lambda: self.running, clock=self.clock, emit=self.events.append)

    def start(self, task: str) -> Any:
        execution = SimpleNamespace(claimed=SimpleNamespace(task=task), phase=Phase.RUNNING)
        self.running.append(execution)
        return execution

    def end(self, execution: Any) -> None:
        self.running.remove(execution)
        execution.phase = Phase.REPORTING
        self.ran.add(execution.claimed.task)

    def runs(self, *tasks: str, does: Callable[[], object] = lambda: None) -> None:
        """One after the other, before the guard looks."""
        for task in tasks:
            self.end(self.start(task))
        does()

    def look(self, after_s: float = LOOK_S) -> None:
        self.clock.move(timedelta(seconds=after_s))
        self.guard.look()

    @property
    def named(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(event.what, event.tasks) for event in self.events if isinstance(event, ProcessChanged)]


@pytest.fixture
def world() -> World:
    return World()


def test_changed_state_is_restored_and_the_task_of_the_handler_is_named_once(world: World, tmp_path: Path) -> None:
    """C18."""
    before = os.getcwd()
    for _ in range(3):
        world.runs("bad", does=lambda: os.chdir(tmp_path))
        world.look()
        assert os.getcwd() == before
    assert world.named == [(DIRECTORY, ("bad",))]


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("recursion limit", lambda: sys.setrecursionlimit(5_000)),
        ("sys.stdout", lambda: setattr(sys, "stdout", StringIO())),
        ("sys.stderr", lambda: setattr(sys, "stderr", StringIO())),
        ("locale", lambda: locale.setlocale(locale.LC_ALL, "C" if locale.setlocale(locale.LC_ALL) != "C" else "C.UTF-8")),
        ("umask", lambda: os.umask(0o77)),
        ("signal handlers", lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN)),
    ],
)
def test_each_kind_is_restored(world: World, what: str, change: Callable[[], object]) -> None:
    """C18: and in a worker in tests/process/test_hostile_handlers.py."""
    before = ProcessState()
    world.runs("bad", does=change)
    assert set(before.changes()) == {what}
    world.look()
    assert world.named == [(what, ("bad",))]
    assert before.changes() == {}
    assert [event.not_restored for event in world.events if isinstance(event, ProcessChanged)] == [None]
    world.runs("good")
    world.look()
    assert len(world.named) == 1


class Rude(StringIO):
    """Whatever is asked of it raises."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    __ne__ = __eq__


def test_a_stream_that_cannot_be_compared_or_shown_is_replaced(world: World) -> None:
    """C18: and what other handlers change is still seen."""
    world.runs("bad", does=lambda: setattr(sys, "stdout", Rude()))
    world.look()
    assert world.named == [("sys.stdout", ("bad",))]
    assert ProcessState().changes() == {}


def test_further_changes_leave_fewer_possible_tasks(world: World, tmp_path: Path) -> None:
    """C18: if several ran at the time, it is unknown which one did it, until others are excluded."""
    for others in (("good", "fine"), ("fine", "well"), ("well", "good")):
        world.runs("bad", *others, does=lambda: os.chdir(tmp_path))
        world.look(TELL_S)
    assert world.named == [(DIRECTORY, ("bad", "fine", "good")), (DIRECTORY, ("bad", "fine")), (DIRECTORY, ("bad",))]


def test_with_several_possible_tasks_one_warning_per_minute_is_enough(world: World, tmp_path: Path) -> None:
    for _ in range(10):
        world.runs("bad", "good", does=lambda: os.chdir(tmp_path))
        world.look()
    assert world.named == [(DIRECTORY, ("bad", "good"))]


def test_a_handler_that_restores_it_itself_is_left_alone(world: World, tmp_path: Path) -> None:
    """C18: otherwise it would continue in the wrong directory."""
    before = os.getcwd()
    execution = world.start("polite")
    os.chdir(tmp_path)
    for _ in range(3):
        world.runs("good")
        world.look()
        assert os.getcwd() == str(tmp_path)
    os.chdir(before)
    world.end(execution)
    world.look()
    assert world.named == []


def test_but_only_for_a_limited_time(world: World, tmp_path: Path) -> None:
    """C18: the other handlers run in the wrong directory in the meantime."""
    before = os.getcwd()
    world.start("endless")
    os.chdir(tmp_path)
    world.runs("good")
    world.look()
    world.look(PATIENCE_S)
    assert os.getcwd() == before
    assert world.named == [(DIRECTORY, ("endless", "good"))]


def test_state_that_cannot_be_restored_is_logged(world: World, tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    for directory in (home, elsewhere):
        directory.mkdir()
    os.chdir(home)
    world = World()
    world.runs("bad", does=lambda: os.chdir(elsewhere))
    home.rmdir()
    world.look()
    (event,) = world.events
    assert isinstance(event, ProcessChanged)
    assert event.not_restored is not None
    assert "FileNotFoundError" in event.not_restored


def test_without_a_handler_nothing_is_checked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle worker, or one whose handlers have not ended, does no work."""
    monkeypatch.setattr(ProcessState, "changes", lambda _self: pytest.fail("looked"))
    world.start("long")
    world.look()
