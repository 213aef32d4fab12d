"""What happens to a fire that becomes due while an earlier run is live."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.domain.fault import Invalid
from sexton.domain.schedule.overlap import Live, Overlap, Queue, Replace, Skip, Start, admit, decide, overlap

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)
ids = st.lists(st.uuids(), unique=True, max_size=12)


def test_a_fire_alone_starts_under_every_policy() -> None:
    """B5."""
    for policy in ("skip", "queue", "parallel", "replace"):
        assert decide(overlap(policy), Live()) == Start()


def test_each_policy_with_a_live_run() -> None:
    """B5: a fire that did not start names the run that blocked it."""
    assert decide(Overlap("skip"), Live((A,))) == Skip("the previous run has not ended", A)
    assert decide(Overlap("queue"), Live((A,), (B,))) == Queue(A)
    assert decide(Overlap("queue", max_queued=1), Live((A,), (B,))) == Skip("1 runs are queued; the limit is 1", A)
    assert decide(Overlap("parallel", max_parallel=2), Live((A,))) == Start()
    assert decide(Overlap("parallel", max_parallel=2), Live((A, B))) == Skip("2 runs are alive; the limit is 2", A)
    assert decide(Overlap("replace"), Live((A,))) == Replace((A,), ())
    assert decide(Overlap("replace"), Live((A,), (B,))) == Replace((A,), (B,))


def test_a_changed_policy_handles_the_runs_of_the_old_one() -> None:
    """B5: the policy may change while runs are queued or parallel."""
    assert decide(Overlap("skip"), Live((), (B,))) == Skip("the previous run has not ended", B)
    assert decide(Overlap("parallel", max_parallel=1), Live((A, B, C))) == Skip("3 runs are alive; the limit is 1", A)
    assert admit(Overlap("queue"), Live((A, B), (C,))) == ()
    assert admit(Overlap("parallel", max_parallel=3), Live((A,), (B, C))) == (B, C)


policies = st.builds(Overlap, st.sampled_from(["skip", "queue", "parallel", "replace"]), st.integers(1, 12), st.integers(1, 12))


@given(policies, ids, ids)
def test_no_decision_exceeds_its_bound(policy: Overlap, running: list[UUID], queued: list[UUID]) -> None:
    """B5."""
    live = Live(running, queued)
    alive = [*running, *queued]
    match decide(policy, live):
        case Start():
            assert not alive or (policy.policy == "parallel" and len(alive) < policy.max_parallel)
        case Queue(blocker):
            assert policy.policy == "queue"
            assert len(queued) < policy.max_queued
            assert blocker == alive[0]
        case Skip(reason, blocker):
            assert reason
            assert blocker == alive[0]
        case Replace(cancel, drop):
            assert policy.policy == "replace"
            assert [*cancel, *drop] == alive
    admitted = admit(policy, live)
    assert list(admitted) == queued[: len(admitted)]
    room = policy.max_parallel if policy.policy == "parallel" else 1
    assert not admitted or len(running) + len(admitted) <= room
    assert admitted or not queued or len(running) >= room  # no run waits without a reason


class Line(NamedTuple):
    started: list[int]
    not_started: dict[int, str]


def _run(policy: Overlap, *, every: int, lasts: int, until: int) -> Line:
    """A job that runs for `lasts` minutes, every `every` minutes, simulated minute by minute; a cancelled run stops at once."""
    ends: dict[int, int] = {}
    queued: list[int] = []
    line = Line([], {})

    def start(fire: int, minute: int) -> None:
        ends[fire] = minute + lasts
        line.started.append(minute)

    for minute in range(until + 1):
        ends = {fire: end for fire, end in ends.items() if end > minute}
        for admitted in admit(policy, _live(ends, queued)):
            queued.remove(admitted.int)
            start(admitted.int, minute)
        if minute % every:
            continue
        match decide(policy, _live(ends, queued)):
            case Start():
                start(minute, minute)
            case Queue():
                queued.append(minute)
            case Skip(_, blocker):
                line.not_started[minute] = f"run of {blocker.int} in the way"
            case Replace(cancel, _):
                for run in cancel:
                    del ends[run.int]
                start(minute, minute)
    return line


def _live(ends: dict[int, int], queued: list[int]) -> Live:
    return Live([UUID(int=fire) for fire in sorted(ends)], [UUID(int=fire) for fire in queued])


@pytest.mark.parametrize(
    ("policy", "started", "not_started"),
    [
        (Overlap("skip"), [0, 30, 60, 90], {15: "run of 0 in the way", 45: "run of 30 in the way", 75: "run of 60 in the way"}),
        (Overlap("queue"), [0, 20, 40, 60, 80], {}),
        (Overlap("queue", max_queued=1), [0, 20, 40, 60, 80], {75: "run of 45 in the way"}),
        (Overlap("parallel"), [0, 15, 30, 45, 60, 75, 90], {}),
        (
            Overlap("parallel", max_parallel=1),
            [0, 30, 60, 90],
            {15: "run of 0 in the way", 45: "run of 30 in the way", 75: "run of 60 in the way"},
        ),
        (Overlap("replace"), [0, 15, 30, 45, 60, 75, 90], {}),
    ],
    ids=lambda value: f"{value.policy} {value.max_queued} {value.max_parallel}" if isinstance(value, Overlap) else "",
)
def test_twenty_minutes_of_work_every_fifteen(policy: Overlap, started: list[int], not_started: dict[int, str]) -> None:
    """B5: what ran when, and why the others did not."""
    line = _run(policy, every=15, lasts=20, until=90)
    assert line.started == started
    assert line.not_started == not_started


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"policy": "later"}, "overlap"),
        ({"policy": "queue", "max_queued": 0}, "overlap.max_queued"),
        ({"policy": "parallel", "max_parallel": 10_001}, "overlap.max_parallel"),
        ({"policy": "parallel", "max_parallel": True}, "overlap.max_parallel"),
    ],
    ids=str,
)
def test_an_invalid_policy_is_rejected(fields: dict[str, Any], field: str) -> None:
    """F2."""
    with pytest.raises(Invalid) as refused:
        overlap(**fields)
    assert refused.value.field == field


def test_a_policy_is_stored_without_its_defaults() -> None:
    """B5: the default is to skip."""
    assert msgspec.json.encode(overlap()) == b"{}"
    assert msgspec.json.encode(overlap("queue", max_queued=3)) == b'{"policy":"queue","max_queued":3}'
