"""Runs for a host that is down are postponed without spending an attempt, and no host uses more of a worker than its share.
Through the real client; the test controls time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from uuid import UUID

import pytest

from sexton.clock import ManualClock
from sexton.domain.targets import HTTP_TASK, HttpTarget
from sexton.errors import Snooze, TargetFailed
from sexton.handlers.breaker import Patience
from sexton.handlers.handle import Handle
from sexton.handlers.http.hosts import FIRST_PERMITS
from sexton.handlers.targets import TargetHandlers
from sexton.settings import Settings
from tests.rig import Rig

from .http_target import NOON, Calling, Received, Server, answer, callers, serving

PATIENCE = Patience(failures=3)
LONG_S = 10.0


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as server:
        yield server


@pytest.fixture
async def calling() -> AsyncIterator[Calling]:
    async with callers() as make:
        yield make


@pytest.fixture
def closed_port() -> Iterator[str]:
    """A port that is bound but does not listen, so that no other program can take it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


async def outcomes(handles: list[Handle]) -> list[type]:
    ended = await asyncio.gather(*(handle.done for handle in handles), return_exceptions=True)
    return [type(end) for end in ended]


async def test_after_several_failures_runs_are_postponed_and_spend_no_attempt(calling: Calling, closed_port: str) -> None:
    caller = calling(patience=PATIENCE)
    for _ in range(3):
        with pytest.raises(TargetFailed):
            await caller.call(HttpTarget(closed_port))
    with pytest.raises(Snooze) as parked:
        await caller.call(HttpTarget(f"{closed_port}/another/path"))
    assert parked.value.reason == f"{closed_port} is down"
    assert 4.0 <= parked.value.delay_s <= 6.0


@pytest.mark.parametrize(
    ("status", "is_down"), [(502, True), (503, True), (504, True), (500, False), (429, False), (404, False)]
)
async def test_a_gateways_answer_counts_as_a_host_that_is_down(
    calling: Calling, server: Server, status: int, is_down: bool
) -> None:
    """500 is an answer of the host itself: it is up, and the next job may succeed."""
    caller = calling(patience=PATIENCE)
    server.says(answer(status))
    ended = [(await outcomes([caller.start(HttpTarget(server.url))]))[0] for _ in range(4)]
    assert (ended[-1] is Snooze) is is_down


async def test_another_host_is_called_in_the_meantime(calling: Calling, server: Server, closed_port: str) -> None:
    caller = calling(patience=PATIENCE)
    await outcomes([caller.start(HttpTarget(closed_port)) for _ in range(4)])
    assert (await caller.call(HttpTarget(server.url)))["status"] == 200


async def test_when_it_is_up_again_one_run_tests_it_and_the_others_follow(calling: Calling, server: Server) -> None:
    clock = ManualClock(NOON)
    caller = calling(patience=PATIENCE, clock=clock)
    server.says(answer(503))
    await outcomes([caller.start(HttpTarget(server.url)) for _ in range(3)])
    clock.move(timedelta(seconds=10))
    server.says(answer(200))
    first, second = caller.start(HttpTarget(server.url)), caller.start(HttpTarget(server.url))
    assert await outcomes([first, second]) == [dict, Snooze]
    assert await outcomes([caller.start(HttpTarget(server.url)) for _ in range(2)]) == [dict, dict]


async def test_when_it_is_up_again_each_answer_makes_two_postponed_runs_due(calling: Calling, server: Server) -> None:
    """The runs that have waited longest come first; a run that was claimed again in the meantime is left out."""
    clock = ManualClock(NOON)
    called: list[tuple[UUID, int]] = []
    caller = calling(patience=PATIENCE, clock=clock, make_due=called.extend)
    server.says(answer(503))
    await outcomes([caller.start(HttpTarget(server.url)) for _ in range(3)])
    away = [caller.start(HttpTarget(server.url), run_id=UUID(int=n), token=n) for n in (10, 11, 12, 13)]
    assert await outcomes([*away, caller.start(HttpTarget(server.url), run_id=UUID(int=10), token=14)]) == [Snooze] * 5
    clock.move(timedelta(seconds=10))
    server.says(answer(200))
    assert await outcomes([caller.start(HttpTarget(server.url), run_id=UUID(int=12), token=15)]) == [dict]
    assert called == [(UUID(int=11), 11), (UUID(int=13), 13)]
    assert await outcomes([caller.start(HttpTarget(server.url))]) == [dict]
    assert called[2:] == [(UUID(int=10), 14)]
    assert await outcomes([caller.start(HttpTarget(server.url))]) == [dict]
    assert len(called) == 3


async def test_a_run_that_is_stopped_after_a_long_silence_counts_against_the_host(calling: Calling, server: Server) -> None:
    """A host that accepts connections and never answers: runs end by their own timeout, which counts as a failure of the
    host."""
    clock = ManualClock(NOON)
    caller = calling(patience=PATIENCE, clock=clock)
    reached = asyncio.Semaphore(0)

    async def silent(_: Received, writer: asyncio.StreamWriter) -> None:
        reached.release()
        await asyncio.sleep(LONG_S)

    server.answering = silent
    handles = [caller.start(HttpTarget(server.url), timeout_s=30.0) for _ in range(3)]
    for _ in handles:
        await reached.acquire()
    clock.move(timedelta(seconds=30))
    for handle in handles:
        handle.ask_to_stop()
    assert await outcomes(handles) == [asyncio.CancelledError] * 3
    assert await outcomes([caller.start(HttpTarget(server.url))]) == [Snooze]


async def test_a_run_that_is_stopped_at_once_does_not_count_against_the_host(calling: Calling, server: Server) -> None:
    caller = calling(patience=PATIENCE)
    handles = [caller.start(HttpTarget(server.url)) for _ in range(5)]
    for handle in handles:
        handle.ask_to_stop()  # before its task has taken a single step
    assert await outcomes(handles) == [asyncio.CancelledError] * 5
    ended = await outcomes([caller.start(HttpTarget(server.url)) for _ in range(FIRST_PERMITS)])
    assert ended == [dict] * FIRST_PERMITS, "permits were lost"


async def test_a_silent_host_uses_no_more_than_its_share(calling: Calling, server: Server, closed_port: str) -> None:
    """Of a hundred runs a few are active, a few wait for a moment, and the rest are postponed at once."""
    caller = calling(permit_limit=33)

    async def silent(_: Received, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(LONG_S)

    server.answering = silent
    handles = [caller.start(HttpTarget(server.url)) for _ in range(100)]
    held = [handle for handle in handles if not handle.done.done()]
    assert len(held) <= 33
    under_way = {handle.done for handle in held}
    async with asyncio.timeout(LONG_S):
        while len(under_way) > FIRST_PERMITS:  # runs that wait for a place leave after a moment
            _, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
    assert len(under_way) == FIRST_PERMITS
    for handle in held:
        handle.ask_to_stop()
    await outcomes(handles)


async def test_a_host_that_answers_is_called_without_postponing_runs(
    calling: Calling, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sexton.handlers.http.calls.ROW_S", LONG_S)  # however slow this machine is
    caller = calling(permit_limit=33)
    for _ in range(40):
        await caller.call(HttpTarget(server.url))
    ended = await outcomes([caller.start(HttpTarget(server.url)) for _ in range(100)])
    assert ended == [dict] * 100
    assert server.connections <= 33


async def test_a_worker_postpones_a_run_with_its_reason_and_claims_it_again(rig: Rig, closed_port: str) -> None:
    """Through the store: three attempts of other runs are spent, none of this run."""
    settings = Settings(outbound_allow=("127.0.0.1:*",), http_host_failures=3)
    targets = TargetHandlers(settings, clock=rig.clock, rng=rig.rng)
    hand = await rig.worker(tasks=[HTTP_TASK])
    hand.stage.start = targets.handlers[HTTP_TASK].start  # type: ignore[method-assign,assignment]
    others = []
    for _ in range(3):
        others.append(await rig.submit(HttpTarget(closed_port)))
        await hand.take()
        await hand.ends()
    job_id = await rig.submit(HttpTarget(closed_port))
    await hand.take()
    await hand.report()
    failed = await rig.last(others[0])
    assert failed.error is not None
    assert failed.error.message == f"POST {closed_port}: no connection: Connection refused"
    assert failed.error.traceback == f"sexton.errors.TargetFailed: {failed.error.message}\n"
    execution = await rig.last(job_id)
    assert (execution.status, execution.reason) == ("snoozed", f"{closed_port} is down")
    run = await rig.run(job_id)
    assert run is not None
    assert (run["state"], run["attempt"]) == ("waiting", 0)
    await targets.close()
