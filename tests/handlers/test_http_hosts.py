"""Issue 8: a host that is down parks its runs instead of burning their attempts, and no host takes more of a worker than its
share. Through the real client, with time in the test's hands."""

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
from sexton.handlers.http.hosts import FIRST_SEATS
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
def nobody() -> Iterator[str]:
    """A port that is taken, and where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


async def outcomes(handles: list[Handle]) -> list[type]:
    ended = await asyncio.gather(*(handle.done for handle in handles), return_exceptions=True)
    return [type(end) for end in ended]


async def test_after_a_row_of_failures_runs_are_parked_and_spend_no_attempt(calling: Calling, nobody: str) -> None:
    caller = calling(patience=PATIENCE)
    for _ in range(3):
        with pytest.raises(TargetFailed):
            await caller.call(HttpTarget(nobody))
    with pytest.raises(Snooze) as parked:
        await caller.call(HttpTarget(f"{nobody}/another/path"))
    assert parked.value.reason == f"{nobody} is down"
    assert 4.0 <= parked.value.delay_s <= 6.0


@pytest.mark.parametrize(
    ("status", "is_down"), [(502, True), (503, True), (504, True), (500, False), (429, False), (404, False)]
)
async def test_what_counts_as_down_is_said_by_whoever_stands_before_it(
    calling: Calling, server: Server, status: int, is_down: bool
) -> None:
    """500 is an answer of the host itself: it is there, and the next job may fare better."""
    caller = calling(patience=PATIENCE)
    server.says(answer(status))
    ended = [(await outcomes([caller.start(HttpTarget(server.url))]))[0] for _ in range(4)]
    assert (ended[-1] is Snooze) is is_down


async def test_another_host_goes_on_meanwhile(calling: Calling, server: Server, nobody: str) -> None:
    caller = calling(patience=PATIENCE)
    await outcomes([caller.start(HttpTarget(nobody)) for _ in range(4)])
    assert (await caller.call(HttpTarget(server.url)))["status"] == 200


async def test_when_it_is_back_one_run_finds_out_and_the_others_follow(calling: Calling, server: Server) -> None:
    clock = ManualClock(NOON)
    caller = calling(patience=PATIENCE, clock=clock)
    server.says(answer(503))
    await outcomes([caller.start(HttpTarget(server.url)) for _ in range(3)])
    clock.move(timedelta(seconds=10))
    server.says(answer(200))
    first, second = caller.start(HttpTarget(server.url)), caller.start(HttpTarget(server.url))
    assert await outcomes([first, second]) == [dict, Snooze]
    assert await outcomes([caller.start(HttpTarget(server.url)) for _ in range(2)]) == [dict, dict]


async def test_when_it_is_back_those_sent_away_are_called_two_with_each_answer(calling: Calling, server: Server) -> None:
    """Those first who have been away longest; one that came back by itself is not called."""
    clock = ManualClock(NOON)
    called: list[tuple[UUID, int]] = []
    caller = calling(patience=PATIENCE, clock=clock, hasten=called.extend)
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


async def test_a_run_that_is_told_to_stop_after_a_long_silence_counts_against_the_host(
    calling: Calling, server: Server
) -> None:
    """A host that takes connections and never answers: runs end by their own timeout, and that is a failure of the host."""
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


async def test_a_run_that_is_told_to_stop_at_once_says_nothing_of_the_host(calling: Calling, server: Server) -> None:
    caller = calling(patience=PATIENCE)
    handles = [caller.start(HttpTarget(server.url)) for _ in range(5)]
    for handle in handles:
        handle.ask_to_stop()  # before its task has taken a single step
    assert await outcomes(handles) == [asyncio.CancelledError] * 5
    ended = await outcomes([caller.start(HttpTarget(server.url)) for _ in range(FIRST_SEATS)])
    assert ended == [dict] * FIRST_SEATS, "seats were lost"


async def test_a_host_that_is_silent_holds_no_more_than_its_share(calling: Calling, server: Server, nobody: str) -> None:
    """Of a hundred runs a few are under way, a few wait for a moment, and the rest are parked at once."""
    caller = calling(seat_limit=33)

    async def silent(_: Received, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(LONG_S)

    server.answering = silent
    handles = [caller.start(HttpTarget(server.url)) for _ in range(100)]
    held = [handle for handle in handles if not handle.done.done()]
    assert len(held) <= 33
    under_way = {handle.done for handle in held}
    async with asyncio.timeout(LONG_S):
        while len(under_way) > FIRST_SEATS:  # those who wait for a seat leave after a moment
            _, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
    assert len(under_way) == FIRST_SEATS
    for handle in held:
        handle.ask_to_stop()
    await outcomes(handles)


async def test_a_host_that_answers_serves_everybody_without_parking_them(
    calling: Calling, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sexton.handlers.http.calls.ROW_S", LONG_S)  # however slow this machine is today
    caller = calling(seat_limit=33)
    for _ in range(40):
        await caller.call(HttpTarget(server.url))
    ended = await outcomes([caller.start(HttpTarget(server.url)) for _ in range(100)])
    assert ended == [dict] * 100
    assert server.connections <= 33


async def test_a_worker_parks_a_run_with_its_reason_and_brings_it_back(rig: Rig, nobody: str) -> None:
    """The whole way through the store: three attempts of others are spent, none of this run."""
    settings = Settings(outbound_allow=("127.0.0.1:*",), http_host_failures=3)
    targets = TargetHandlers(settings, clock=rig.clock, dice=rig.dice)
    hand = await rig.worker(tasks=[HTTP_TASK])
    hand.stage.start = targets.handlers[HTTP_TASK].start  # type: ignore[method-assign,assignment]
    others = []
    for _ in range(3):
        others.append(await rig.submit(HttpTarget(nobody)))
        await hand.take()
        await hand.ends()
    job_id = await rig.submit(HttpTarget(nobody))
    await hand.take()
    await hand.report()
    failed = await rig.last(others[0])
    assert failed.error is not None
    assert failed.error.message == f"POST {nobody}: no connection: Connection refused"
    assert failed.error.traceback == f"sexton.errors.TargetFailed: {failed.error.message}\n"
    execution = await rig.last(job_id)
    assert (execution.status, execution.reason) == ("snoozed", f"{nobody} is down")
    run = await rig.run(job_id)
    assert run is not None
    assert (run["state"], run["attempt"]) == ("waiting", 0)
    await targets.close()
