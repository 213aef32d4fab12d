"""Which node leads which of the 64 partitions of the jobs: the same answer on every node that sees the same nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from typing import NamedTuple
from uuid import UUID

PARTITION_COUNT = 64
ALL: tuple[int, ...] = tuple(range(PARTITION_COUNT))


class Scan(NamedTuple):
    """Which due work one pass looks for: of these partitions, so many rows at most, overdue by at least this long."""

    partitions: Collection[int]
    limit: int
    overdue_s: float = 0.0

    @property
    def is_for_others(self) -> bool:
        """Only work that is overdue: the nodes that lead its partitions have left it undone."""
        return self.overdue_s > 0


def of(job_id: UUID | None) -> int:
    """The partition of a job. What belongs to no job is in the first."""
    return 0 if job_id is None else job_id.int % PARTITION_COUNT


def assign(nodes: Iterable[UUID]) -> dict[UUID, frozenset[int]]:
    """An equal share for each node: shares differ by at most one, and few partitions move when a node starts or stops.

        Rendezvous hashing with an upper limit: a partition goes to the node with the highest hash for it among those below the
    limit.
    """
    shares: dict[UUID, set[int]] = {node: set() for node in sorted(nodes)}
    if not shares:
        return {}
    floor, spare = divmod(PARTITION_COUNT, len(shares))
    for partition in ALL:
        full = sum(len(share) > floor for share in shares.values())
        ceiling = floor + (1 if full < spare else 0)
        roomy = [node for node, share in shares.items() if len(share) < ceiling]
        shares[max(roomy, key=lambda node: _draw(node, partition))].add(partition)
    return {node: frozenset(share) for node, share in shares.items()}


def share_of(node: UUID, nodes: Collection[UUID]) -> frozenset[int]:
    return assign({node, *nodes})[node]


def _draw(node: UUID, partition: int) -> bytes:
    return hashlib.blake2b(node.bytes + partition.to_bytes(2, "big"), digest_size=8).digest()
