"""What a claim of a recurring run returns about the previous fire; one-time jobs pay nothing for it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import pytest

from sexton.domain.outcome import Succeeded
from sexton.domain.run import Previous
from sexton.store import uuid7
from sexton.store.database import _SERVER_SETTINGS
from sexton.store.sql import statements
from tests.store.support import BROKEN, NOW, after, claim, enlist, finish, submit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sexton.store.database import Row
    from tests.store.support import Conn

pytestmark = pytest.mark.made_up_rows

JOB = UUID(int=1 << 127 | 7 << 76 | 2 << 62)


class Counting:
    def __init__(self, connection: Conn) -> None:
        self._connection = connection
        self.count = 0

    async def fetch(self, query: str, *args: Any) -> Sequence[Row]:
        self.count += 1
        return await self._connection.fetch(query, *args)


async def fire(connection: Conn, minute: int, state: str = "ready") -> UUID:
    at = after(minutes=minute)
    run_id = UUID(int=uuid7.floor(at).int + minute)
    await connection.execute(
        """INSERT INTO sexton.runs (id, job_id, fire_at, due_at, lane, partition, at_most_once, state, origin, queue, tenant,
             task)
           VALUES ($1, $2, $3, $3, 2, 0, false, $4, 'schedule', 'default', 'default', 'a')""",
        run_id,
        JOB,
        at,
        state,
    )
    return run_id


async def ledger(connection: Conn, minute: int, status: str) -> None:
    await connection.execute(
        """INSERT INTO sexton.executions (id, job_id, run_id, fire_at, due_at, ended_at, token, job_version, seq, attempt, lane,
             origin, status, queue, tenant, task)
           VALUES (sexton.uuid7((extract(epoch FROM $1::timestamptz) * 1000000)::bigint), $2, gen_random_uuid(), $1, $1, $1, 0,
             1, 0, 0, 2, 'schedule', $3, 'default', 'default', 'a')""",
        after(minutes=minute),
        JOB,
        status,
    )


async def test_the_last_try_of_the_previous_fire_is_part_of_the_claim(connection: Conn) -> None:
    """A3: fires that did not start do not count, and neither do earlier attempts of the same fire."""
    worker_id = await enlist(connection)
    await fire(connection, 1)
    (first,) = await claim(connection, worker_id, now=after(minutes=1))
    assert first.previous is None
    await finish(connection, first.lease, BROKEN, now=after(minutes=1))
    await ledger(connection, 2, "missed")
    await ledger(connection, 3, "skipped")
    await fire(connection, 4)
    (second,) = await claim(connection, worker_id, now=after(minutes=4))
    assert second.previous == Previous("failed", after(minutes=1))
    await finish(connection, second.lease, Succeeded(), now=after(minutes=4))
    await fire(connection, 5)
    (third,) = await claim(connection, worker_id, now=after(minutes=5))
    assert third.previous == Previous("succeeded", after(minutes=4))


async def test_a_claim_of_one_time_jobs_is_one_statement(connection: Conn) -> None:
    """C1."""
    worker_id = await enlist(connection)
    counting: Any = Counting(connection)
    await submit(connection)
    assert [claimed.previous for claimed in await claim(counting, worker_id)] == [None]
    assert counting.count == 1


async def test_it_is_found_by_index_in_the_newest_partition_that_has_one(database_url: str) -> None:
    """C1: however long the history behind it."""
    connection = await asyncpg.connect(database_url, server_settings=_SERVER_SETTINGS)
    await connection.execute("SELECT sexton.make_partitions($1, $2)", after(days=-10), NOW)
    for minute in (-1440, -1, 0):
        await ledger(connection, minute, "missed")
        await connection.execute("UPDATE sexton.executions SET token = 1")
    await connection.execute(f"PREPARE previous AS {statements('sexton.store.work.runs')['previous']}")
    newest = uuid7.floor(NOW + timedelta(hours=1))
    rows = await connection.fetch(
        f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) EXECUTE previous ('{{{JOB}}}', '{{{UUID(int=0)}}}', '{newest}', '{{NULL}}')"
    )
    plan = "\n".join(row[0] for row in rows)
    await connection.close()
    assert "Seq Scan" not in plan
    assert "Sort" not in plan
    assert plan.count("(never executed)") >= 10  # the older partitions
