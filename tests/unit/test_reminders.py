"""What lasts is logged again after a while, and not in between."""

from __future__ import annotations

from sexton.domain.reminders import Reminders


def test_it_is_due_at_once_and_again_after_its_time() -> None:
    reminders = Reminders(30.0)
    assert [at for at in (5.0, 5.1, 34.9, 35.0, 64.9, 65.0) if reminders.is_due("lock", at)] == [5.0, 35.0, 65.0]


def test_each_is_reminded_of_by_itself() -> None:
    reminders = Reminders(30.0)
    assert reminders.is_due("lock", 0.0)
    assert reminders.is_due("row", 10.0)
    assert reminders.is_due("lock", 30.0)
    assert not reminders.is_due("row", 30.0)


def test_what_came_to_an_end_is_due_at_once_when_it_comes_back() -> None:
    reminders = Reminders(30.0)
    assert reminders.is_due("lock", 0.0)
    assert reminders.is_due("row", 0.0)
    reminders.keep({"row"})
    assert reminders.is_due("lock", 1.0)
    assert not reminders.is_due("row", 1.0)
