"""ClaimCursors: where a claim may begin, and when it must look from the beginning."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import pytest

from sexton.domain.claim_cursors import LOOK_AGAIN_S, MARK_AFTER, TENANTS_LIMIT, ClaimCursors, Look, Looking, WholeLooks
from sexton.domain.duty_cycle import PATIENCE_S, SHARE

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)


class Run(NamedTuple):
    run_id: UUID
    due_at: datetime
    tenant: str = "a"
    queue: str = "default"
    lane: int = 2


def runs(first: int, count: int, tenant: str = "a") -> list[Run]:
    return [Run(UUID(int=n), NOON + timedelta(seconds=n), tenant) for n in range(first, first + count)]


def seconds(marks: ClaimCursors) -> dict[str, int]:
    return {tenant: int((due_at - NOON).total_seconds()) for tenant, (due_at, _) in marks.of("default", 2).items()}


class TestMarks:
    def test_a_mark_is_where_the_last_claim_stopped(self) -> None:
        """B8."""
        marks = ClaimCursors()
        marks.note(runs(0, MARK_AFTER))
        marks.note(runs(MARK_AFTER, 5))
        assert seconds(marks) == {"a": MARK_AFTER + 4}

    def test_what_leaves_little_behind_gets_none(self) -> None:
        marks = ClaimCursors()
        marks.note([*runs(0, MARK_AFTER - 1), *runs(0, MARK_AFTER, "b")])
        assert list(seconds(marks)) == ["b"]

    def test_each_queue_and_lane_has_its_own(self) -> None:
        marks = ClaimCursors()
        marks.note([run._replace(lane=0) for run in runs(0, MARK_AFTER)])
        assert marks.of("default", 0)
        assert not marks.of("default", 2)
        assert not marks.of("mail", 0)

    def test_something_behind_is_noticed_and_moves_the_mark_back(self) -> None:
        """Rule "one clock reading per statement": there may be more of it."""
        marks = ClaimCursors()
        assert not marks.note(runs(100, MARK_AFTER))
        assert not marks.note(runs(100 + MARK_AFTER, 10))
        assert marks.note(runs(50, 10))
        assert seconds(marks) == {"a": 59}

    def test_of_runs_due_at_one_instant_the_id_tells_which_is_behind(self) -> None:
        at_once = [run._replace(due_at=NOON) for run in runs(0, MARK_AFTER)]
        marks = ClaimCursors()
        assert not marks.note(at_once[:50])
        assert not marks.note(at_once[50:])
        assert marks.note(at_once[49:50])

    def test_a_crowd_of_tenants_is_not_remembered(self) -> None:
        marks = ClaimCursors()
        for number in range(10 * TENANTS_LIMIT):
            marks.note(runs(number * MARK_AFTER, MARK_AFTER, f"t{number}"))
        assert len(marks.of("default", 2)) <= TENANTS_LIMIT


class TestLooking:
    def test_the_first_look_is_from_the_beginning(self) -> None:
        assert Looking().next(0.0) is Look.WHOLE

    def test_enough_ahead_is_enough_for_a_while_only(self) -> None:
        """Rule "one clock reading per statement": an older run may have been committed since."""
        looking = Looking()
        looking.note(Look.WHOLE, 5.0, 5.001, is_full=True, was_behind=False)
        for at in (5.0, 5.0 + LOOK_AGAIN_S * 0.9):
            assert looking.next(at) is Look.FROM_MARKS
            looking.note(Look.FROM_MARKS, at, at, is_full=True, was_behind=False)
        assert looking.next(5.01 + LOOK_AGAIN_S) is Look.WHOLE

    def test_after_too_little_it_looks_from_the_beginning(self) -> None:
        looking = Looking()
        looking.note(Look.WHOLE, 5.0, 5.001, is_full=True, was_behind=False)
        looking.note(Look.FROM_MARKS, 5.01, 5.011, is_full=False, was_behind=False)
        assert looking.next(5.02) is Look.WHOLE

    def test_whoever_found_something_behind_goes_on_looking_there(self) -> None:
        """C10: a limit that lets runs through again and again lets them through behind the mark."""
        looking = Looking()
        looking.note(Look.WHOLE, 5.0, 5.001, is_full=True, was_behind=True)
        assert looking.next(5.002) is Look.WHOLE

    def test_a_look_that_takes_long_is_rare_but_never_given_up(self) -> None:
        """B8: while somebody holds an old snapshot, it walks through everything that was taken since."""
        looking = Looking()
        for at in (4.0, 5.0):
            looking.note(Look.WHOLE, at, at + 0.05, is_full=True, was_behind=False)
        assert looking.next(5.0 + SHARE * 0.05 - 0.01) is Look.FROM_MARKS
        for at in (6.0, 16.0):
            looking.note(Look.WHOLE, at, at + 10.0, is_full=True, was_behind=False)
        assert looking.next(26.0 + PATIENCE_S - 0.1) is Look.AHEAD
        assert looking.next(26.0 + PATIENCE_S) is Look.WHOLE

    def test_one_slow_answer_does_not_make_it_dear(self) -> None:
        """C10, found by chaos: one claim held up by a fault, and for a minute the worker left alone what was behind its marks:
        runs that had lost their worker, and runs that a limit had let through."""
        looking = Looking()
        looking.note(Look.WHOLE, 4.0, 4.001, is_full=False, was_behind=False)
        looking.note(Look.WHOLE, 5.0, 9.0, is_full=False, was_behind=False)
        assert looking.next(9.0 + LOOK_AGAIN_S) is Look.WHOLE
        looking.note(Look.WHOLE, 9.1, 9.101, is_full=False, was_behind=False)
        assert looking.next(9.11) is Look.WHOLE

    def test_where_every_claim_is_slow_a_look_is_not_dear(self) -> None:
        """C10, found by chaos: a long way to the server, or a machine that is busy, is not for the look to pay."""
        looking = Looking()
        looking.note(Look.WHOLE, 4.0, 4.3, is_full=True, was_behind=False)
        looking.note(Look.FROM_MARKS, 4.35, 4.65, is_full=True, was_behind=False)
        for at in (5.0, 6.0):
            looking.note(Look.WHOLE, at, at + 0.3, is_full=False, was_behind=False)
        assert looking.next(6.31) is Look.WHOLE

    @pytest.mark.parametrize("look", [Look.WHOLE, Look.FROM_MARKS])
    def test_once_it_is_dear_it_is_rare_even_if_there_is_too_little_ahead(self, look: Look) -> None:
        """B8: where little waits, every claim would be such a look; one that began at the marks has ended with it."""
        looking = Looking()
        for at in (4.0, 5.0):
            looking.note(look, at, at + 0.2, is_full=False, was_behind=False)
        assert looking.next(5.3) is Look.AHEAD
        looking.note(Look.AHEAD, 5.3, 5.301, is_full=False, was_behind=False)
        assert looking.next(5.2 + SHARE * 0.2 - 0.1) is Look.AHEAD
        assert looking.next(5.2 + SHARE * 0.2 + 0.1) is Look.WHOLE

    def test_two_who_look_at_the_same_look_through_it_once(self) -> None:
        """B8: while a snapshot is held, each such look costs the server as much as hundreds of claims."""
        whole_looks = WholeLooks()
        first, second = Looking(whole_looks), Looking(whole_looks)
        for at in (4.0, 5.0):
            first.note(Look.WHOLE, at, at + 0.2, is_full=False, was_behind=False)
        due_at = 5.21 + SHARE * 0.2
        assert (first.next(due_at), second.next(due_at)) == (Look.WHOLE, Look.AHEAD)
        first.note(Look.WHOLE, due_at, due_at + 0.2, is_full=False, was_behind=False)
        assert second.next(due_at + 0.2 + SHARE * 0.2 - 0.1) is Look.AHEAD

    def test_a_look_that_never_came_back_is_made_up_for(self) -> None:
        whole_looks = WholeLooks()
        first, second = Looking(whole_looks), Looking(whole_looks)
        for at in (4.0, 5.0):
            first.note(Look.WHOLE, at, at + 0.2, is_full=False, was_behind=False)
        due_at = 5.21 + SHARE * 0.2
        assert first.next(due_at) is Look.WHOLE
        assert second.next(due_at + LOOK_AGAIN_S + 0.41) is Look.WHOLE

    def test_when_it_is_cheap_again_everything_is_as_before(self) -> None:
        looking = Looking()
        for at in (4.0, 5.0):
            looking.note(Look.WHOLE, at, at + 0.2, is_full=False, was_behind=False)
        looking.note(Look.WHOLE, 10.0, 10.001, is_full=False, was_behind=False)
        assert looking.next(10.01) is Look.WHOLE
