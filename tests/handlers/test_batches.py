"""One call of a batch function for several runs: decisions from threads and child processes, and stops on the way."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from sexton.handlers.context import Call, Context, Stopped, live_output_of
from sexton.handlers.python.batch.context import BatchContext, Run
from sexton.handlers.python.batch.functions import BatchFunction
from sexton.handlers.python.batch.shared_call import FailedTogether, Share, SharedCall
from sexton.handlers.python.process_pool import ProcessPool
from sexton.handlers.python.threads import ThreadSlots
from tests.rig import LONG_S

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


def until_cancelled(ctx: BatchContext, runs: list[Run[dict[str, int]]]) -> list[int]:
    """The first run is cancelled by the test. Then the others go on."""
    ctx.log("started")
    while not runs[0].cancelled:
        time.sleep(0.002)
    assert not ctx.cancelled
    assert not ctx.succeed(runs[0])
    return [run.args["n"] for run in runs]


def until_stopped(ctx: BatchContext, runs: list[Run[dict[str, int]]]) -> None:
    ctx.log("started")
    while True:
        ctx.check_cancelled()
        time.sleep(0.002)


def ignores_all(ctx: BatchContext, runs: list[Run[dict[str, int]]]) -> None:
    ctx.log("started")
    time.sleep(LONG_S * 10)


async def returns_at_once(ctx: BatchContext, runs: list[Run[dict[str, int]]]) -> None: ...


class Kit:
    def __init__(self) -> None:
        self.threads, self.processes = ThreadSlots(4), ProcessPool(1)

    def begin(self, fn: Callable[..., Any], count: int, *, process: bool = False) -> tuple[SharedCall, list[Share]]:
        where = (__name__, fn.__name__)
        function = BatchFunction("send", fn, process=process, threads=self.threads, processes=self.processes, where=where)
        shared = function.open()
        for n in range(count):
            call = Call(UUID(int=n), UUID(int=n), 1, "send", None, "t", "q", NOW, NOW, None, None, {"n": n})
            function.start(call, Context(call))
        shared.begin()
        return shared, list(shared.shares)


@pytest.fixture
async def kit() -> AsyncIterator[Kit]:
    kit = Kit()
    yield kit
    await kit.processes.close()
    kit.threads.close()


async def has_started(share: Share) -> None:
    async with asyncio.timeout(LONG_S):
        while (output := live_output_of(share.context)) is None or output.output != "started":  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def ended(shares: list[Share]) -> list[Any]:
    async with asyncio.timeout(LONG_S):
        return await asyncio.gather(*(share.done for share in shares), return_exceptions=True)


@pytest.mark.parametrize("process", [False, True], ids=["thread", "process"])
async def test_a_run_that_has_left_is_cancelled_for_the_handler_and_the_others_go_on(kit: Kit, process: bool) -> None:
    shared, shares = kit.begin(until_cancelled, 3, process=process)
    await has_started(shares[2])
    assert shares[0].leave()
    assert not shares[0].leave()
    first, *others = await ended(shares)
    assert isinstance(first, Stopped)
    assert others == [1, 2]
    async with asyncio.timeout(LONG_S):
        await shared.freed


@pytest.mark.parametrize("process", [False, True], ids=["thread", "process"])
async def test_a_stop_reaches_the_call_and_its_runs_have_failed_together(kit: Kit, process: bool) -> None:
    shared, shares = kit.begin(until_stopped, 2, process=process)
    await has_started(shares[1])
    shares[0].ask_to_stop()
    errors = await ended(shares)
    assert [type(error) for error in errors] == [FailedTogether] * 2
    assert [error.batch_limit for error in errors] == [1, 1]
    async with asyncio.timeout(LONG_S):
        await shared.freed


async def test_a_process_that_does_not_stop_is_killed_for_all_its_runs(kit: Kit) -> None:
    shared, shares = kit.begin(ignores_all, 2, process=True)
    await has_started(shares[1])
    shares[0].ask_to_stop()
    shares[0].force_stop()
    assert all(share.done.done() for share in shares)
    await ended(shares)
    async with asyncio.timeout(LONG_S):
        await shared.freed


async def test_a_run_that_leaves_before_a_process_is_free_is_cancelled_from_the_start(kit: Kit) -> None:
    first, its_shares = kit.begin(until_stopped, 1, process=True)
    await has_started(its_shares[0])
    _, shares = kit.begin(until_cancelled, 2, process=True)
    assert shares[0].leave()
    first.ask_to_stop()
    await ended(its_shares)
    assert (await ended(shares))[1] == 1


async def test_a_call_that_has_ended_is_freed_without_the_garbage_collector(kit: Kit) -> None:
    """As executions are: a worker makes thousands of them."""
    shared, shares = kit.begin(returns_at_once, 2)
    await ended(shares)
    await shared.freed
    await asyncio.sleep(0)
    gone = weakref.ref(shared)
    gc.disable()
    try:
        del shared, shares
        await asyncio.sleep(0)
        assert gone() is None
    finally:
        gc.enable()
