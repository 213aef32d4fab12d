"""One entry of the nemesis's log. The checker explains repetitions and delays by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple
from uuid import UUID

How = Literal["exit", "block"]


class Poison(NamedTuple):
    """A job that takes down its workers, and the innocent jobs that were submitted with it."""

    culprit: UUID
    beside: frozenset[UUID]
    how: How


@dataclass
class Fault:
    """Times are monotonic."""

    number: int
    kind: str
    began_at: float
    ended_at: float
    members: tuple[str, ...] = ()
    note: str = ""
    counts_from: str = "end"  # `end` or `begin`: from which moment the other processes must work normally
    explains: bool = True  # whether it can explain a repetition
    harmed: frozenset[UUID] = frozenset()  # jobs that it may delay while it lasts
    poison: Poison | None = None

    @property
    def since(self) -> float:
        return self.began_at if self.counts_from == "begin" else self.ended_at
