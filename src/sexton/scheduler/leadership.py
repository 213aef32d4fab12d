"""Decides which partitions this node handles.

Leadership only saves work: any number of nodes may promote at once, and any scheduler does what a leader leaves undone for two
seconds (rule "any node does overdue work"). Every node computes the same fair shares from the nodes with a recent heartbeat. On
a direct connection it also takes a session advisory lock per partition. So two nodes with different views do not work on the
same rows, and a dead node releases its partitions as soon as its connection breaks; the others see with their next heartbeat
that its session has ended. Behind a pooler a session lock would belong to the next client of the connection, so only the shares
decide: rule "session state only on direct connections".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from sexton.clock import Clock
from sexton.domain import partition
from sexton.store.database import Database
from sexton.store.fleet import workers
from sexton.telemetry.events import Emit, LeadershipChanged

BEAT_S = 1.0
ALONE_BEAT_S = 3.0  # no node waits for a heartbeat; a new node sees this one at once, and is seen a second later
AGAIN_S = 0.5  # a partition whose last leader has not released it yet


class Locks(Protocol):
    """Session locks on partitions. `None` in its place: session locks are not available."""

    async def session(self) -> int:
        """The server process that holds them: it ends with the node."""

    async def hold(self, wanted: frozenset[int]) -> frozenset[int]:
        """Releases the locks that are not wanted, tries to take those that are, and returns those that it holds."""

    async def close(self) -> None: ...


class Leadership:
    name = "leadership"

    def __init__(
        self,
        database: Database,
        node_id: UUID,
        node_name: str,
        locks: Locks | None,
        *,
        clock: Clock,
        emit: Emit,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._changed = changed
        self._database, self._locks, self._clock, self._emit = database, locks, clock, emit
        self.node_id = node_id
        self._node_name = node_name
        self.partitions: frozenset[int] = frozenset()

    async def run_once(self) -> float:
        session = None if self._locks is None else await self._locks.session()
        async with self._database.connection() as connection:
            nodes = await workers.node_beat(
                connection,
                self.node_id,
                name=self._node_name,
                partitions=sorted(self.partitions),
                session=session,
                now=self._clock.database_now(),
            )
        share = partition.share_of(self.node_id, nodes)
        led = share if self._locks is None else await self._locks.hold(share)
        if led != self.partitions:
            self.partitions = led
            self._emit(LeadershipChanged(self.node_id, tuple(sorted(led)), len(nodes)))
            self._changed()
        if led != share:
            return AGAIN_S
        return BEAT_S if len(nodes) > 1 else ALONE_BEAT_S

    async def close(self) -> None:
        if self._locks is not None:
            await self._locks.close()
        async with self._database.connection() as connection:
            await workers.node_leave(connection, self.node_id)
