"""Draws from the seed which faults happen and when, injects them, and keeps the log that the checker uses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple

from .fault import Fault
from .fault_context import FaultContext
from .faults import KINDS, Kind
from .plan import Plan


class Planned(NamedTuple):
    kind: str
    hold_s: float
    quiet_s: float  # after the end of the fault
    seed: int  # of the rng that choose the target


def draw(plan: Plan, names: Sequence[str], kinds: Mapping[str, Kind] = KINDS) -> list[Planned]:
    """Draws every kind once in random order before any kind is repeated, as many as fit. The same plan draws the same
    faults."""
    rng, planned, left_s = Random(plan.seed), [], plan.seconds - plan.warm_up_s
    bag: list[str] = []
    while names:
        bag = bag or rng.sample(sorted(names), k=len(names))
        name = bag.pop()
        hold_s, quiet_s = round(rng.uniform(*kinds[name].hold_s), 2), round(rng.uniform(*plan.quiet_s), 2)
        left_s -= hold_s + quiet_s
        if left_s < 0:
            break
        planned.append(Planned(name, hold_s, quiet_s, rng.randrange(2**32)))
    return planned


class Nemesis:
    def __init__(self, context: FaultContext, say: Callable[[str], None]) -> None:
        self._context, self._say = context, say
        wanted = context.plan.faults or tuple(KINDS)
        lacking = {name: KINDS[name].lacks(context) for name in wanted}
        self.not_done = {name: why for name, why in lacking.items() if why is not None}
        self.planned = draw(context.plan, [name for name in wanted if name not in self.not_done])
        self.log: list[Fault] = []

    async def run(self, until: float) -> None:
        """Injects the faults one after the other until all are done or the time is up."""
        await asyncio.sleep(self._context.plan.warm_up_s)
        for number, planned in enumerate(self.planned, 1):
            if time.monotonic() + planned.hold_s + self._context.plan.quiet_s[0] / 2 > until:
                break
            await self._inflict(number, planned)
            await asyncio.sleep(planned.quiet_s)

    async def _inflict(self, number: int, planned: Planned) -> None:
        kind = KINDS[planned.kind]
        began_at = time.monotonic()
        applied = await kind.do(replace(self._context, rng=Random(planned.seed)), planned.hold_s)
        fault = Fault(
            number,
            planned.kind,
            began_at,
            time.monotonic(),
            applied.members,
            applied.note,
            kind.counts_from,
            kind.explains,
            applied.harmed,
            applied.poison,
        )
        self.log.append(fault)
        self._say(f"{number}/{len(self.planned)} {planned.kind}: {applied.note}")
