"""Which node leads which of the 64 slices of all jobs: the same answer on every node that sees the same nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from uuid import UUID

PARTITION_COUNT = 64
ALL: tuple[int, ...] = tuple(range(PARTITION_COUNT))


def assign(nodes: Iterable[UUID]) -> dict[UUID, frozenset[int]]:
    """A fair share for each node: at most one apart, and few partitions move when a node comes or goes.

    Rendezvous hashing with a ceiling: every partition goes to the node that draws the highest number for it among those
    that still have room.
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
