"""The variables of a failed handler are freed when its failure is reported, without the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import UUID

import pytest

from sexton.errors import PermanentError, RetryLater, Snooze
from sexton.handlers.context import Call, Context
from sexton.handlers.python.child import Attempt, Link
from sexton.handlers.python.messages import Start
from tests.rig import LONG_S, Rig

Function = Callable[..., Any]


class Ballast:
    """As 200 MB in a local variable. `alive` has those that were not freed."""

    alive: ClassVar[weakref.WeakSet[Ballast]] = weakref.WeakSet()

    def __init__(self) -> None:
        self.alive.add(self)


@pytest.fixture(autouse=True)
def _uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    Ballast.alive.clear()
    yield
    gc.enable()


def raises(ctx: Context) -> None:
    ballast = Ballast()
    raise ValueError(f"no luck with {ballast}")


def raises_from_another(ctx: Context) -> None:
    try:
        raises(ctx)
    except ValueError as error:
        ballast = Ballast()
        raise RuntimeError(f"no luck with {ballast}") from error


def raises_during_another(ctx: Context) -> None:
    try:
        raises(ctx)
    finally:
        raises_from_another(ctx)


def raises_a_group(ctx: Context) -> None:
    errors: list[Exception] = []
    for function in (raises, raises_from_another):
        try:
            function(ctx)
        except Exception as error:
            errors.append(error)
    raise ExceptionGroup("both", errors)


def keeps_its_error(ctx: Context) -> None:
    try:
        raises(ctx)
    except ValueError as error:
        kept, ballast = error, Ballast()
        raise kept from ValueError(f"not without {ballast}")


@dataclass(frozen=True)
class Frozen(Exception):
    """It forbids assignments, also to its traceback."""

    what: object


def raises_a_frozen_one(ctx: Context) -> None:
    ballast = Ballast()
    raise Frozen(str(ballast))


def exits(ctx: Context) -> None:
    ballast = Ballast()
    sys.exit(f"no luck with {ballast}")


def gives_up(ctx: Context) -> None:
    ballast = Ballast()
    raise PermanentError(f"no luck with {ballast}")


def comes_back(ctx: Context) -> None:
    ballast = Ballast()
    raise RetryLater(f"no luck with {ballast}", delay_s=60)


def snoozes(ctx: Context) -> None:
    _ballast = Ballast()
    raise Snooze(60)


async def fails_on_the_loop(ctx: Context) -> None:
    _ballast = Ballast()
    await asyncio.sleep(0)
    raises_during_another(ctx)


async def knows_its_task(ctx: Context) -> None:
    """The task refers to the exception, the exception to this frame, and the frame to the task."""
    ballast, task = Ballast(), asyncio.current_task()
    raise ValueError(f"{ballast} {task}")


async def cancels_itself(ctx: Context) -> None:
    ballast, task = Ballast(), asyncio.current_task()
    raise asyncio.CancelledError(f"{ballast} {task}")


async def exits_on_the_loop(ctx: Context) -> None:
    exits(ctx)


async def fails_in_a_task_group(ctx: Context) -> None:
    _ballast = Ballast()
    async with asyncio.TaskGroup() as group:
        group.create_task(fails_on_the_loop(ctx))
        group.create_task(fails_later(ctx))


async def fails_later(ctx: Context) -> None:
    ballast = Ballast()
    await asyncio.sleep(0)
    raise ValueError(f"no luck with {ballast}")


IN_A_THREAD: list[Function] = [
    raises,
    raises_from_another,
    raises_during_another,
    raises_a_group,
    keeps_its_error,
    raises_a_frozen_one,
    exits,
    gives_up,
    comes_back,
    snoozes,
]
ON_THE_LOOP: list[Function] = [
    fails_on_the_loop,
    knows_its_task,
    cancels_itself,
    exits_on_the_loop,
    fails_in_a_task_group,
]


async def test_the_variables_of_failed_handlers_are_freed_when_the_failures_are_reported(rig: Rig) -> None:
    """C18: five failures with 200 MB each must not keep 1 GB."""
    functions = IN_A_THREAD + ON_THE_LOOP
    hand = await rig.worker(*functions, tasks=(), worker_concurrency=len(functions))
    ids = {function.__name__: await rig.submit(function.__name__) for function in functions}
    await hand.take()
    while hand.held:
        await hand.ends()
    for name, job_id in ids.items():
        assert (await rig.last(job_id)).status == ("snoozed" if name == "snoozes" else "failed"), name
    await until_freed()


async def test_a_handler_that_failed_when_it_was_asked_to_stop_is_freed_as_well(rig: Rig) -> None:
    async def stubborn(ctx: Context) -> None:
        ballast, task = Ballast(), asyncio.current_task()
        try:
            await asyncio.sleep(LONG_S)
        finally:
            raise ValueError(f"{ballast} {task}")

    hand = await rig.worker(stubborn, tasks=())
    job_id = await rig.submit("stubborn", timeout=5)
    await hand.take()
    await asyncio.sleep(0)
    rig.move(5)
    await hand.ends()
    assert (await rig.last(job_id)).status == "timed_out"
    await until_freed()


async def test_a_forced_handler_that_fails_later_is_freed_then(rig: Rig) -> None:
    """It ignored its cancel, so its run ended without it."""
    go_on = asyncio.Event()

    async def deaf(ctx: Context) -> None:
        ballast, task = Ballast(), asyncio.current_task()
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await go_on.wait()
        raise ValueError(f"{ballast} {task}")

    hand = await rig.worker(deaf, tasks=())
    job_id = await rig.submit("deaf", timeout=5)
    await hand.take()
    await asyncio.sleep(0)
    rig.move(5)
    await asyncio.sleep(0)
    rig.move(LONG_S)
    await hand.ends()
    assert (await rig.last(job_id)).status == "timed_out"
    go_on.set()
    await until_freed()


@pytest.mark.parametrize("function", IN_A_THREAD + ON_THE_LOOP)
def test_a_child_process_frees_them_too(function: Function) -> None:
    """It executes call after call."""
    near, far = socket.socketpair()
    with near, far:
        at = datetime(2026, 3, 4, tzinfo=UTC)
        call = Call(UUID(int=1), UUID(int=2), 1, "a", None, "t", "q", at, at, None, None, {})
        attempt = Attempt(Start(__name__, None, function.__name__, call), Link(near))
        assert b"Raised" in attempt.run()
        assert not Ballast.alive, "the process keeps the attempt until the next one comes"


async def until_freed() -> None:
    """The thread of a handler releases it shortly after its end was reported."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LONG_S):
            while Ballast.alive:  # noqa: ASYNC110  no event tells that an object was freed
                await asyncio.sleep(0.001)
    assert not Ballast.alive, [gc.get_referrers(ballast) for ballast in Ballast.alive]
