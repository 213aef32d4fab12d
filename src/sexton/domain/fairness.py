"""Which tenant is served next: weighted round robin. The tenants of one queue and lane form a circle by name, and a worker
walks it. Each tenant has `weight` turns in a row; a turn is one start. The claim does this in SQL (`sexton.pick_runs`);
`share_out` is the same for readers and tests. `Turns` and `QueueTurns` are all that a worker remembers between claims.

How fair it is, for tenants that always have enough waiting, with W the sum of their weights, over any sequence of consecutive
starts of one worker:

- A share is off its ideal, starts x weight / W, by at most weight x (1 - weight / W) starts. Proof: the starts repeat every W,
  so only shorter sequences matter. The worst of them are the tenant's own turns and no others (weight starts, ideally
  weight² / W) and all turns of the others and none of its own (none, ideally weight x (W - weight) / W).
- Starts per weight of two such tenants differ by at most 1, even while other tenants come and go. Proof: their rounds
  alternate, and only the first and the last round of the sequence may be incomplete, with f and g of a whole one. So they have
  f + m + g and m + 1, or f + m and m + g.

Over k workers each bound is k times that: every worker's part of the sequence is a sequence of its own circle. Under load a
worker claims in two loops, each with its own circle, and counts as two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from .claim_cursors import ClaimCursors, Cursor, Queued

NOWHERE = ("", 0)  # before the first tenant: where a worker without memory begins
TURNS_LIMIT = 1000  # queues and lanes remembered; above it, the ones not served for the longest time restart their circle

_encode = msgspec.json.Encoder().encode


def share_out(
    waiting: Mapping[str, int],
    weights: Mapping[str, int],
    wanted: int,
    last: tuple[str, int] = NOWHERE,
    rooms: Mapping[str, int] | None = None,
) -> list[tuple[str, int]]:
    """The tenants of the next `wanted` starts in order, each with the turns of its round that it has used by then (0: all).

    `waiting` has every tenant with ready runs, and how many of them this worker may take, which may be 0; `last` is the last
    start of the previous claim; `rooms` says how many more runs a tenant with a limit may have at once.

    Tenants without runs are skipped, so the result has fewer than `wanted` starts only if there are no more runs.
    """
    rooms = rooms or {}
    left = {tenant: min(count, rooms.get(tenant, count)) for tenant, count in waiting.items()}
    starts: list[tuple[str, int]] = []
    tenant, turn = last if last[1] < weights.get(last[0], 1) else (last[0], 0)
    circle = _circle(left, tenant, is_included=turn > 0)
    if circle[:1] != [tenant]:
        turn = 0
    while any(left.values()) and len(starts) < wanted:
        for tenant in circle:
            weight = weights.get(tenant, 1)
            while turn < weight and left[tenant] > 0 and len(starts) < wanted:
                turn += 1
                left[tenant] -= 1
                starts.append((tenant, turn % weight))
            turn = 0
    return starts


def _circle(names: Iterable[str], tenant: str, *, is_included: bool) -> list[str]:
    """All names, starting with the one after the tenant, or with the tenant itself."""
    return sorted(names, key=lambda name: (name < tenant if is_included else name <= tenant, name))


class Started(Queued, Protocol):
    """What of a claimed run counts for the turns."""

    @property
    def turn(self) -> int: ...


class Turns:
    """Where a worker's last claim stopped, by queue and lane. Only its own: workers need not agree to be fair together. Claims
    for different tasks need one each; otherwise runs that one has skipped would be lost to the other."""

    def __init__(self, limit: int = TURNS_LIMIT) -> None:
        self._limit = limit
        self._last: dict[tuple[str, int], tuple[str, int]] = {}  # the longest unused first

    def note(self, claimed: Iterable[Started]) -> None:
        """From the runs of a claim, in order: the last of each queue and lane."""
        for flow, run in {(run.queue, run.lane): run for run in claimed}.items():
            self._last.pop(flow, None)
            self._last[flow] = (run.tenant, run.turn)
        while len(self._last) > self._limit:
            del self._last[next(iter(self._last))]

    def last(self, queue: str, lane: int) -> tuple[str, int]:
        return self._last.get((queue, lane), NOWHERE)

    def as_json(
        self, queues: Iterable[str] | None = None, cursors: ClaimCursors | None = None, *, only_ahead: bool = False
    ) -> str:
        """The `turns` of `sexton.claim_runs`: {queue: {lane: [tenant, turn, cursors, only]}}, of these queues or of all."""
        wanted = None if queues is None else set(queues)
        flows: dict[str, dict[str, tuple[str, int] | tuple[str, int, Mapping[str, Cursor], bool]]] = {}
        for (queue, lane), last in self._last.items():
            if wanted is None or queue in wanted:
                passed = cursors.of(queue, lane) if cursors is not None else None
                flows.setdefault(queue, {})[str(lane)] = (*last, passed, only_ahead) if passed else last
        return _encode(flows).decode()


class QueueTurns:
    """In which order a worker lists its queues, claim after claim: the second gets the capacity that the first leaves. Strict:
    always as given. Otherwise the first place rotates by weight, evenly spread (nginx's smooth weighted round robin): in any
    `sum of weights` claims in a row each queue is first exactly `weight` times."""

    def __init__(self, names: Sequence[str], weights: Sequence[int] | None = None, *, strict: bool = False) -> None:
        self._credits = dict.fromkeys(names, 0)
        self._weights = dict(zip(names, weights or [1] * len(names), strict=True))
        self._total = sum(self._weights.values())
        self._strict = strict

    def following(self) -> list[str]:
        """The order for the next claim; every call counts as a claim."""
        if self._strict or len(self._credits) < 2:
            return list(self._credits)
        for name, weight in self._weights.items():
            self._credits[name] += weight
        order = sorted(self._credits, key=lambda name: -self._credits[name])  # stable: of equal ones, the first in the list
        self._credits[order[0]] -= self._total
        return order
