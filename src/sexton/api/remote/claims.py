"""Long polls of workers that use HTTP: a claim now, or as soon as runs are ready."""

from __future__ import annotations

import asyncio

from sexton.api.answers.problems import Refused
from sexton.api.state import ApiState
from sexton.domain.run import Claimed
from sexton.operations.caller import Caller
from sexton.operations.remote.claims import StopRun
from sexton.store.fleet.remote_workers import RemoteWorker

from .long_polling import Group


async def acquire(
    state: ApiState, caller: Caller, worker: RemoteWorker, wait_s: float, gone: asyncio.Future[None]
) -> tuple[list[Claimed], list[StopRun]]:
    """The runs that it may start now, and those that it must stop. Waits for the first of them as long as requested, unless
    `gone`."""
    claims, clock, polling = state.remote_claims, state.clock, state.long_polling
    group = Group.of(worker.queues, worker.tasks)
    until = clock.monotonic() + wait_s
    stop = await claims.attend(caller, worker)
    while True:
        heard = polling.heard(group)
        claimed = await claims.take(caller, worker, more_wait=lambda: polling.ring_one(group))
        if gone.done():
            await claims.give_back(caller, claimed)
            return [], stop
        left_s = until - clock.monotonic()
        if claimed or left_s <= 0 or polling.closed:
            return claimed, stop
        if not polling.has_room:
            raise Refused("overloaded", "too many workers are already waiting here; try again", headers={"Retry-After": "1"})
        if polling.heard(group) == heard:
            with state.load_shedder.aside():
                await polling.wait(group, left_s, gone)
