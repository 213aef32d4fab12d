"""A worker for jobs that call targets, stepped by the test; its configuration comes from settings, as in production."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sexton.handlers.targets import TargetHandlers
from sexton.registry import Registry
from sexton.settings import Settings
from sexton.worker.other_workers import OtherWorkers
from sexton.worker.worker import Worker
from tests.rig import HandWorker, Rig, Stage


@asynccontextmanager
async def target_worker(rig: Rig, **chosen: Any) -> AsyncIterator[HandWorker]:
    settings = Settings(**{"worker_concurrency": 4, "worker_grace_s": 2.0, **chosen})
    targets = TargetHandlers(settings, clock=rig.clock, rng=rig.rng, elsewhere=OtherWorkers(rig.database, clock=rig.clock))
    worker = Worker(
        rig.database,
        Registry(),
        settings,
        timers=rig.timers,
        clock=rig.clock,
        emit=rig.heard,
        rng=rig.rng,
        poll_s=2.0,
        targets=targets.handlers,
    )
    hand = HandWorker(rig, worker, worker.make_heartbeat(rig.database, lambda call: call()), Stage())
    await hand.beat()
    try:
        yield hand
    finally:
        await targets.close()
