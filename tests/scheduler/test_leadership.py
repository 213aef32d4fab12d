"""B2: which node leads which partitions, by session locks on direct connections or, behind a pooler, by fair shares alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from uuid import UUID, uuid4

import asyncpg
import pytest

from sexton.domain import partition
from sexton.errors import DatabaseUnavailable
from sexton.scheduler.leadership import AGAIN_S, ALONE_BEAT_S, BEAT_S, Leadership
from sexton.store.fleet import workers
from sexton.store.postgres.advisory_locks import PartitionLocks
from sexton.telemetry.events import LeadershipChanged
from tests.rig import Between, Rig

NODE_ALIVE_S = 6.0  # sexton.node_lease_s

ALL = frozenset(partition.ALL)
Join = Callable[[], Leadership]


class Nodes:
    def __init__(self, rig: Rig, url: str) -> None:
        self._rig, self._url = rig, url
        self.locks: dict[UUID, PartitionLocks] = {}

    def join(self, *, direct: bool = True) -> Leadership:
        locks = PartitionLocks(self._url) if direct else None
        node = Leadership(self._rig.database, uuid4(), "node", locks, clock=self._rig.clock, emit=self._rig.heard)
        if locks is not None:
            self.locks[node.node_id] = locks
        return node

    async def rounds(self, count: int, *nodes: Leadership) -> None:
        """Every node looks at that interval; two nodes never lead the same partition."""
        for _ in range(count):
            for node in nodes:
                await node.run_once()
                led = [number for each in nodes for number in each.partitions]
                assert len(led) == len(set(led)), "two leaders of one partition"
            self._rig.move(AGAIN_S)

    async def holders(self) -> dict[int, int]:
        """The number of sessions that hold the lock of each partition, from `pg_locks`."""
        rows = await self._rig.execute(
            "SELECT objid::int AS p, count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = 7308 "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) GROUP BY 1"
        )
        return {row["p"]: row["n"] for row in rows}

    async def cut(self) -> None:
        """Ends every session that holds a partition's lock, as the death of its host does."""
        await self._rig.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM (SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' "
            "AND classid = 7308 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS holders"
        )


@pytest.fixture
async def nodes(rig: Rig, database_url: str) -> AsyncIterator[Nodes]:
    nodes = Nodes(rig, database_url)
    yield nodes
    for locks in nodes.locks.values():
        await locks.close()


async def test_one_node_leads_everything_at_once(nodes: Nodes, rig: Rig) -> None:
    only = nodes.join()
    assert only.partitions == frozenset()
    assert await only.run_once() == ALONE_BEAT_S
    assert only.partitions == ALL
    assert await nodes.holders() == dict.fromkeys(ALL, 1)
    assert rig.events == [LeadershipChanged(only.node_id, partition.ALL, 1)]


async def test_a_second_node_gets_half_within_a_few_looks(nodes: Nodes, rig: Rig) -> None:
    first, second = nodes.join(), nodes.join()
    await nodes.rounds(1, first)
    await nodes.rounds(2, first, second)
    assert (len(first.partitions), len(second.partitions)) == (32, 32)
    assert first.partitions | second.partitions == ALL
    assert await nodes.holders() == dict.fromkeys(ALL, 1)


async def test_a_node_that_waits_for_its_share_looks_again_sooner(nodes: Nodes) -> None:
    """If the last leader has not released a lock yet, it is tried again in half a second, not in one."""
    first, second = nodes.join(), nodes.join()
    await first.run_once()
    assert await second.run_once() == AGAIN_S
    assert second.partitions == frozenset()
    await first.run_once()
    assert await second.run_once() == BEAT_S
    assert len(second.partitions) == 32


async def test_a_node_that_leaves_is_replaced_at_once(nodes: Nodes, rig: Rig) -> None:
    three = [nodes.join() for _ in range(3)]
    await nodes.rounds(3, *three)
    assert sorted(len(node.partitions) for node in three) == [21, 21, 22]
    leaving, *staying = three
    await leaving.close()
    leaving.partitions = frozenset()
    await nodes.rounds(2, *staying)
    assert [len(node.partitions) for node in staying] == [32, 32]
    assert await nodes.holders() == dict.fromkeys(ALL, 1)
    async with rig.database.connection() as connection:
        assert {node.id for node in await workers.nodes(connection)} == {node.node_id for node in staying}


async def test_the_partitions_of_a_node_are_shown(nodes: Nodes, rig: Rig) -> None:
    first, second = nodes.join(), nodes.join()
    await nodes.rounds(4, first, second)
    async with rig.database.connection() as connection:
        shown = {node.id: frozenset(node.partitions) for node in await workers.nodes(connection)}
    assert shown == {first.node_id: first.partitions, second.node_id: second.partitions}


async def test_a_dead_nodes_share_is_taken_over_with_the_next_look(nodes: Nodes) -> None:
    """B2, kill -9: its session ends with it, so its locks are free and its recent heartbeat no longer counts."""
    dead, heir = nodes.join(), nodes.join()
    await nodes.rounds(3, dead, heir)
    await nodes.locks[dead.node_id].close()
    dead.partitions = frozenset()
    await heir.run_once()
    assert heir.partitions == ALL
    assert await nodes.holders() == dict.fromkeys(ALL, 1)


async def test_a_host_that_vanished_is_replaced_when_its_heartbeat_has_expired(nodes: Nodes, rig: Rig) -> None:
    """Its session stays until the server notices; behind a pooler there is none."""
    vanished, heir = nodes.join(direct=False), nodes.join()
    for node in (vanished, heir):
        await node.run_once()
    assert len(heir.partitions) == 32
    rig.move(NODE_ALIVE_S)
    await heir.run_once()
    assert heir.partitions == ALL


async def test_locks_outlive_an_expired_heartbeat(nodes: Nodes, rig: Rig) -> None:
    """A node that was paused still holds its locks: others do not work on the same rows, and it continues to lead its share."""
    paused, other = nodes.join(), nodes.join()
    await nodes.rounds(3, paused, other)
    rig.move(NODE_ALIVE_S + 1)
    assert await other.run_once() == AGAIN_S
    assert len(other.partitions) == 32
    assert not paused.partitions & other.partitions
    await nodes.rounds(2, paused, other)
    assert (len(paused.partitions), len(other.partitions)) == (32, 32)


async def test_a_node_whose_connection_broke_takes_its_locks_again(nodes: Nodes) -> None:
    """D4: a restart of the database costs the leader one interval."""
    only = nodes.join()
    await only.run_once()
    await nodes.cut()
    assert await nodes.holders() == {}
    for _ in range(2):
        try:
            await only.run_once()
            break
        except DatabaseUnavailable:
            pass
    assert only.partitions == ALL
    assert await nodes.holders() == dict.fromkeys(ALL, 1)


async def test_a_lock_that_another_node_took_in_the_meantime_is_no_longer_led(nodes: Nodes, database_url: str) -> None:
    """A node leads the partitions whose locks it holds, not those it held before the connection broke."""
    only = nodes.join()
    await only.run_once()
    await nodes.cut()
    thief = await asyncpg.connect(database_url)
    await thief.fetch("SELECT pg_advisory_lock(7308, 5)")
    await only.run_once()
    assert only.partitions == ALL - {5}
    await thief.close()
    await only.run_once()
    assert only.partitions == ALL


async def test_behind_a_pooler_the_shares_alone_decide(nodes: Nodes, rig: Rig) -> None:
    """Rule "session state only on direct connections": no session lock on a pooled connection."""
    first, second = nodes.join(direct=False), nodes.join(direct=False)
    for node, rest_s in ((first, ALONE_BEAT_S), (second, BEAT_S), (first, BEAT_S)):
        assert await node.run_once() == rest_s
    assert (len(first.partitions), len(second.partitions)) == (32, 32)
    assert first.partitions | second.partitions == ALL
    assert await nodes.holders() == {}
    rig.move(NODE_ALIVE_S)
    await second.run_once()
    assert second.partitions == ALL
    await second.close()


async def test_a_change_is_reported_once(nodes: Nodes, rig: Rig) -> None:
    only = nodes.join(direct=False)
    for _ in range(3):
        await only.run_once()
    assert len(rig.of(LeadershipChanged)) == 1


async def test_a_heartbeat_is_one_statement(nodes: Nodes, rig: Rig) -> None:
    """B10."""
    between = Between(rig.database)
    node = Leadership(between, uuid4(), "node", None, clock=rig.clock, emit=rig.heard)
    await node.run_once()
    await node.run_once()
    assert between.statements == ["node_beat", "node_beat"]


async def test_a_node_that_cannot_reach_the_database_keeps_its_partitions_and_logs_nothing(rig: Rig) -> None:
    """Fires do not depend on leadership to be correct, so an outdated belief costs nothing; the loop logs the outage."""
    between = Between(rig.database)
    node = Leadership(between, uuid4(), "node", None, clock=rig.clock, emit=rig.heard)
    await node.run_once()
    between.away = True
    with pytest.raises(DatabaseUnavailable):
        await node.run_once()
    assert node.partitions == ALL
    assert len(rig.events) == 1
