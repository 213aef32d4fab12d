"""One entry of the nemesis's log, by which everything is explained later."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Fault:
    """Times are monotonic."""

    number: int
    kind: str
    began_at: float
    ended_at: float
    members: tuple[str, ...] = ()
    note: str = ""
    counts_from: str = "end"  # from when on the others are expected to carry on
    explains: bool = True  # a repetition

    @property
    def since(self) -> float:
        return self.began_at if self.counts_from == "begin" else self.ended_at
