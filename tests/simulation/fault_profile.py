"""The faults of a seed: which kinds, and how many."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from .actors import SETTINGS
from .faults import ALL_FAULTS, FLAWS_OF_THE_LINE, Fault

LONG_S = 4 * SETTINGS.lease_s  # longer than any process may be silent


@dataclass(frozen=True)
class FaultProfile:
    """Each seed has its own profile. Half of them have few faults that last long: many short faults would hide the effect of
    one long silence, a crash removes the effect of a lost reply, and a handler that ends at once is seldom hit by a fault."""

    faults: tuple[Fault, ...]
    fault_rate: float  # per statement
    process_fault_rate: float  # per step
    process_fault_s: tuple[float, ...]
    aim: float  # share of process faults that hit a worker that executes something
    handler_s: tuple[float, float]
    clock_is_set: bool  # else some jobs have a lease of their own, which is measured by the database's clock
    only: str | None = None  # the only kind of process fault, if set

    @classmethod
    def of(cls, rng: Random) -> FaultProfile:
        return cls._many_faults(rng) if rng.random() < 0.5 else cls._few_long_faults(rng)

    @classmethod
    def _many_faults(cls, rng: Random) -> FaultProfile:
        return cls(
            faults=rng.choice([FLAWS_OF_THE_LINE, ALL_FAULTS]),
            fault_rate=rng.choice([0.01, 0.03, 0.05]),
            process_fault_rate=rng.choice([0.01, 0.03, 0.06]),
            process_fault_s=(1.0, 4.0, LONG_S),
            aim=rng.choice([0.2, 0.9]),
            handler_s=rng.choice([(0.0, 3.0), (1.0, 8.0), (5.0, 30.0)]),
            clock_is_set=rng.choice([True, False]),
        )

    @classmethod
    def _few_long_faults(cls, rng: Random) -> FaultProfile:
        return cls(
            faults=ALL_FAULTS,
            fault_rate=rng.choice([0.0, 0.002]),
            process_fault_rate=rng.choice([0.015, 0.03]),
            process_fault_s=(4.0, LONG_S, LONG_S),
            aim=0.9,
            handler_s=rng.choice([(5.0, 30.0), (10.0, 40.0)]),
            clock_is_set=False,
        )
