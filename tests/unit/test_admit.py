"""B5: how admission decides about runs that were planned under different policies of one job."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from sexton.operations.recurring.admit import _settled
from sexton.store.work.schedules import Sibling

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
PARALLEL = '{"overlap": {"policy": "parallel", "max_parallel": 2}}'


def sibling(number: int, state: str, *, token: int = 0, origin: str = "schedule", overlap: int) -> Sibling:
    return Sibling(UUID(int=1), UUID(int=number), state, token, NOON, NOON, "default", origin, overlap, PARALLEL)


def test_a_replay_of_an_exclusive_version_waits_for_a_run_of_that_version() -> None:
    """Rule "lock, then decide", found by the simulation (seeds 270 and 368): the job was edited to allow two at once; the index
    rejected the replay, and with it all decisions of the promoter about those partitions."""
    running = sibling(2, "running", token=2, overlap=1)
    replay = sibling(3, "blocked", origin="replay", overlap=1)
    later = sibling(4, "waiting", overlap=2)
    settled = _settled([replay, running, later])
    assert replay.run_id not in settled.start
    assert _settled([replay, later]).start[0] == replay.run_id


def test_of_two_exclusive_runs_one_starts() -> None:
    """Both are of the version that runs alone: the index would reject the second, and with it the whole batch."""
    replays = [sibling(number, "waiting", origin="replay", overlap=1) for number in (2, 3)]
    settled = _settled(replays)
    assert settled.start == [replays[0].run_id]
    assert settled.block == [replays[1].run_id]
