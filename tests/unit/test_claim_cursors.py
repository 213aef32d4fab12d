"""ClaimCursors: where a claim may begin, and when it must scan from the beginning."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import pytest

from sexton.domain.claim_cursors import CURSOR_AFTER, LOOK_AGAIN_S, TENANTS_LIMIT, ClaimCursors, Look, Looking, WholeLooks
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


def seconds(cursors: ClaimCursors) -> dict[str, int]:
    return {tenant: int((due_at - NOON).total_seconds()) for tenant, (due_at, _) in cursors.of("default", 2).items()}


class TestMarks:
    def test_a_cursor_is_where_the_last_claim_stopped(self) -> None:
        """B8."""
        cursors = ClaimCursors()
        cursors.note(runs(0, CURSOR_AFTER))
        cursors.note(runs(CURSOR_AFTER, 5))
        assert seconds(cursors) == {"a": CURSOR_AFTER + 4}

    def test_a_short_scan_sets_no_mark(self) -> None:
        cursors = ClaimCursors()
        cursors.note([*runs(0, CURSOR_AFTER - 1), *runs(0, CURSOR_AFTER, "b")])
        assert list(seconds(cursors)) == ["b"]

    def test_each_queue_and_lane_has_its_own(self) -> None:
        cursors = ClaimCursors()
        cursors.note([run._replace(lane=0) for run in runs(0, CURSOR_AFTER)])
        assert cursors.of("default", 0)
        assert not cursors.of("default", 2)
        assert not cursors.of("mail", 0)

    def test_a_run_behind_the_mark_moves_the_cursor_back(self) -> None:
        """Rule "one clock reading per statement": there may be more of it."""
        cursors = ClaimCursors()
        assert not cursors.note(runs(100, CURSOR_AFTER))
        assert not cursors.note(runs(100 + CURSOR_AFTER, 10))
        assert cursors.note(runs(50, 10))
        assert seconds(cursors) == {"a": 59}

    def test_of_runs_due_at_one_instant_the_id_decides_which_is_behind(self) -> None:
        at_once = [run._replace(due_at=NOON) for run in runs(0, CURSOR_AFTER)]
        cursors = ClaimCursors()
        assert not cursors.note(at_once[:50])
        assert not cursors.note(at_once[50:])
        assert cursors.note(at_once[49:50])

    def test_the_number_of_remembered_tenants_is_bounded(self) -> None:
        cursors = ClaimCursors()
        for number in range(10 * TENANTS_LIMIT):
            cursors.note(runs(number * CURSOR_AFTER, CURSOR_AFTER, f"t{number}"))
        assert len(cursors.of("default", 2)) <= TENANTS_LIMIT


class TestLooking:
    def test_the_first_claim_scans_from_the_beginning(self) -> None:
        assert Looking().next(0.0) is Look.WHOLE

    def test_enough_runs_ahead_are_enough_for_a_limited_time(self) -> None:
        """Rule "one clock reading per statement": an older run may have been committed since."""
        looking = Looking()
        looking.note(Look.WHOLE, 5.0, 5.001, is_full=True, was_behind=False)
        for at in (5.0, 5.0 + LOOK_AGAIN_S * 0.9):
            assert looking.next(at) is Look.FROM_CURSORS
            looking.note(Look.FROM_CURSORS, at, at, is_full=True, was_behind=False)
        assert looking.next(5.01 + LOOK_AGAIN_S) is Look.WHOLE

    def test_after_too_few_runs_it_scans_from_the_beginning(self) -> None:
        looking = Looking()
        looking.note(Look.WHOLE, 5.0, 5.001, is_full=True, was_behind=False)
        looking.note(Look.FROM_CURSORS, 5.01, 5.011, is_full=False, was_behind=False)
        assert looking.next(5.02) is Look.WHOLE

    def test_after_a_run_behind_the_mark_it_scans_there_again(self) -> None:
        """C10: a limit that releases runs repeatedly releases them behind the cursor."""
        looking = Looking()
        looking.note(Look.WHOLE, 5.0, 5.001, is_full=True, was_behind=True)
        assert looking.next(5.002) is Look.WHOLE

    def test_a_slow_scan_is_rare_but_never_omitted(self) -> None:
        """B8: while another session holds an old snapshot, it walks through everything that was claimed since."""
        looking = Looking()
        for at in (4.0, 5.0):
            looking.note(Look.WHOLE, at, at + 0.05, is_full=True, was_behind=False)
        assert looking.next(5.0 + SHARE * 0.05 - 0.01) is Look.FROM_CURSORS
        for at in (6.0, 16.0):
            looking.note(Look.WHOLE, at, at + 10.0, is_full=True, was_behind=False)
        assert looking.next(26.0 + PATIENCE_S - 0.1) is Look.AHEAD
        assert looking.next(26.0 + PATIENCE_S) is Look.WHOLE

    def test_one_slow_answer_does_not_count_as_a_slow_scan(self) -> None:
        """C10, found by chaos: after one claim that a fault delayed, the worker ignored the runs behind its cursors for a
        minute: runs of a lost worker, and runs that a limit had released."""
        looking = Looking()
        looking.note(Look.WHOLE, 4.0, 4.001, is_full=False, was_behind=False)
        looking.note(Look.WHOLE, 5.0, 9.0, is_full=False, was_behind=False)
        assert looking.next(9.0 + LOOK_AGAIN_S) is Look.WHOLE
        looking.note(Look.WHOLE, 9.1, 9.101, is_full=False, was_behind=False)
        assert looking.next(9.11) is Look.WHOLE

    def test_where_every_claim_is_slow_a_scan_is_not_expensive(self) -> None:
        """C10, found by chaos: the latency of the network or of a busy machine must not count as the cost of the scan."""
        looking = Looking()
        looking.note(Look.WHOLE, 4.0, 4.3, is_full=True, was_behind=False)
        looking.note(Look.FROM_CURSORS, 4.35, 4.65, is_full=True, was_behind=False)
        for at in (5.0, 6.0):
            looking.note(Look.WHOLE, at, at + 0.3, is_full=False, was_behind=False)
        assert looking.next(6.31) is Look.WHOLE

    @pytest.mark.parametrize("look", [Look.WHOLE, Look.FROM_CURSORS])
    def test_an_expensive_scan_is_rare_even_with_too_few_runs_ahead(self, look: Look) -> None:
        """B8: with few waiting runs, every claim would scan; one that begins at the cursors does not."""
        looking = Looking()
        for at in (4.0, 5.0):
            looking.note(look, at, at + 0.2, is_full=False, was_behind=False)
        assert looking.next(5.3) is Look.AHEAD
        looking.note(Look.AHEAD, 5.3, 5.301, is_full=False, was_behind=False)
        assert looking.next(5.2 + SHARE * 0.2 - 0.1) is Look.AHEAD
        assert looking.next(5.2 + SHARE * 0.2 + 0.1) is Look.WHOLE

    def test_two_concurrent_claims_scan_once(self) -> None:
        """B8: while a snapshot is held, each scan costs the server as much as hundreds of claims."""
        whole_looks = WholeLooks()
        first, second = Looking(whole_looks), Looking(whole_looks)
        for at in (4.0, 5.0):
            first.note(Look.WHOLE, at, at + 0.2, is_full=False, was_behind=False)
        due_at = 5.21 + SHARE * 0.2
        assert (first.next(due_at), second.next(due_at)) == (Look.WHOLE, Look.AHEAD)
        first.note(Look.WHOLE, due_at, due_at + 0.2, is_full=False, was_behind=False)
        assert second.next(due_at + 0.2 + SHARE * 0.2 - 0.1) is Look.AHEAD

    def test_a_scan_without_a_reply_is_repeated(self) -> None:
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
