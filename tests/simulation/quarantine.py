"""A worker in quarantine: the child of an ordinary worker, with which it ends. It claims only suspects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sexton.store.work import runs

from .actors import WorkerActor

if TYPE_CHECKING:
    from .world import World

IDLE_S = 15.0  # it ends after this time without suspects
CLAIM = runs._SQL["claim_suspects"]


class QuarantineActor(WorkerActor):
    def __init__(self, world: World, name: str, parent: WorkerActor) -> None:
        super().__init__(world, name, parent.tasks, parent=parent)
        self.parent = parent
        self.has_left = False
        self._idle_since_s = world.clock.monotonic()

    async def _beat(self) -> float:
        world, now_s = self._world, self._world.clock.monotonic()
        if self.worker.exhausted.is_set():  # the worker was declared lost
            world.replace(self)
            return 0.0
        if world.suspects_wait or len(self.worker.held_runs):
            self._idle_since_s = now_s
        if not len(self.worker.held_runs) and (self.worker.draining or now_s - self._idle_since_s > IDLE_S):
            self.has_left = True
            world.journal.seen["quarantine left"] += 1
            world.replace(self)
            return 0.0
        return await super()._beat()

    async def see_to_child(self) -> None:
        """It has none."""

    def answered(self, query: str) -> None:
        super().answered(query)
        self._world.journal.seen["suspects asked for"] += query == CLAIM
