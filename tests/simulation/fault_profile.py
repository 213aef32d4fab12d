"""Which faults a seed has, and how many."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from .actors import SETTINGS
from .faults import ALL_FAULTS, FLAWS_OF_THE_LINE, Fault

LONG_S = 4 * SETTINGS.lease_s  # longer than anybody may be silent


@dataclass(frozen=True)
class FaultProfile:
    """Each seed has its own. Half of them have few faults that last long: many short ones would hide what one long silence
    shows, a crash forgets what a lost reply did, and a handler that ends at once is seldom hit by a fault."""

    faults: tuple[Fault, ...]
    fault_rate: float  # per statement
    process_fault_rate: float  # per step
    process_fault_s: tuple[float, ...]
    aim: float  # which share of process faults looks for a worker that executes something
    handler_s: tuple[float, float]
    clock_is_set: bool  # else some jobs have a lease of their own, which is measured by the database's clock
    only: str | None = None  # the one kind of process fault there is

    @classmethod
    def of(cls, dice: Random) -> FaultProfile:
        return cls._many_faults(dice) if dice.random() < 0.5 else cls._few_long_faults(dice)

    @classmethod
    def _many_faults(cls, dice: Random) -> FaultProfile:
        return cls(
            faults=dice.choice([FLAWS_OF_THE_LINE, ALL_FAULTS]),
            fault_rate=dice.choice([0.01, 0.03, 0.05]),
            process_fault_rate=dice.choice([0.01, 0.03, 0.06]),
            process_fault_s=(1.0, 4.0, LONG_S),
            aim=dice.choice([0.2, 0.9]),
            handler_s=dice.choice([(0.0, 3.0), (1.0, 8.0), (5.0, 30.0)]),
            clock_is_set=dice.choice([True, False]),
        )

    @classmethod
    def _few_long_faults(cls, dice: Random) -> FaultProfile:
        return cls(
            faults=ALL_FAULTS,
            fault_rate=dice.choice([0.0, 0.002]),
            process_fault_rate=dice.choice([0.015, 0.03]),
            process_fault_s=(4.0, LONG_S, LONG_S),
            aim=0.9,
            handler_s=dice.choice([(5.0, 30.0), (10.0, 40.0)]),
            clock_is_set=False,
        )
