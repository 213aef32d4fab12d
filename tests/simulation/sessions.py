"""The sessions of workers and sweepers as the server knows them, and what ends them: a death, an outage, an administrator, a
network that resets connections, a server that gives up a silent host."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import TYPE_CHECKING

from sexton.store.database import ClientEnd

from .actors import Actor, SchedulerActor, WorkerActor

if TYPE_CHECKING:
    from .world import World

KEEPALIVE_S = 8.0  # until the server ends the session of a host that it cannot reach; the host is not told
FAULT_RATE = 0.01  # per step
RESET_S = (0.5, 2.0, 10.0)

PREPARE = """
CREATE TABLE public.ended_sessions (session text PRIMARY KEY);
CREATE OR REPLACE FUNCTION sexton.own_session(address inet, port int) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT port::text
$$;
CREATE OR REPLACE FUNCTION sexton.has_ended(session text) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT FROM public.ended_sessions e WHERE e.session = $1)
$$;
"""


class Sessions:
    def __init__(self, world: World) -> None:
        self._world = world
        self.rng = Random(world.seed + 7_000_000)  # its own, so that a seed means the same with sessions and without
        self.is_on = self.rng.random() < 0.7  # else as behind a pooler
        self.fault_rate = FAULT_RATE
        self._numbers = count(1)
        self._open: dict[Actor, int] = {}
        self._ended: list[int] = []

    def end_of(self, actor: Actor) -> ClientEnd | None:
        """Its end of the session that it has now, or opens."""
        if not self.is_on or not isinstance(actor, SchedulerActor | WorkerActor):
            return None
        number = self._open.setdefault(actor, 0) or next(self._numbers)
        self._open[actor] = number
        return ClientEnd(number, None, number)

    def end(self, actor: Actor, *, is_told: bool = True) -> None:
        number = self._open.pop(actor, 0)
        if number:
            self._ended.append(number)
            if is_told and isinstance(actor, WorkerActor):
                actor.session_ended(number)

    def end_all(self) -> None:
        for actor in [*self._open]:
            self.end(actor)

    async def settle(self) -> None:
        """The server gives up silent hosts; then the database knows what has ended."""
        now_s = self._world.clock.monotonic()
        for actor in [*self._open]:
            if actor.cut_off_for_s(now_s) > KEEPALIVE_S:
                self.end(actor, is_told=False)
        if self._ended:
            await self._world.observer.fetch("INSERT INTO public.ended_sessions SELECT unnest($1::int[])::text", self._ended)
            self._ended = []

    def make_fault(self) -> None:
        """Sometimes."""
        if not self.is_on or self.rng.random() >= self.fault_rate:
            return
        victims = [actor for actor in self._world.live_workers() if actor.executing_count] or self._world.live_workers()
        victim, now_s = self.rng.choice(victims), self._world.clock.monotonic()
        what = self.rng.choice(["terminated", "reset", "all terminated"])
        match what:
            case "terminated":
                self.end(victim)
            case "reset":
                victim.cut_off(now_s, now_s + self.rng.choice(RESET_S))
                self.end(victim)
            case _:
                for worker in self._world.live_workers():
                    self.end(worker)
        self._world.journal.seen[f"sessions {what}"] += 1
        self._world.note(f"SESSIONS {what}: {victim.name}")
