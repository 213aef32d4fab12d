"""A batch that meets contention is halved until the locked row is alone; the others are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from sexton.domain.partition import ALL
from sexton.errors import Contention
from sexton.operations.bisection import in_parts
from sexton.operations.caller import SCHEDULER
from sexton.operations.recurring.admit import AGAIN_S, admit
from sexton.operations.recurring.recurring_jobs import submit as submit_schedules
from sexton.store.work import schedules
from tests.callers import TESTER
from tests.store.support import NOW, after

if TYPE_CHECKING:
    from sexton.store.database import Connection, Postgres
    from tests.store.support import Conn


async def test_only_the_locked_row_is_left(database: Postgres, connection: Conn, rival: Conn) -> None:
    """C19, rule "bisect bad batches": one of a hundred."""
    await connection.execute("CREATE TABLE public.things AS SELECT n, false AS done FROM generate_series(1, 100) AS n")
    tries: list[int] = []

    async def write(connection: Connection, part: Sequence[int]) -> int:
        tries.append(len(part))
        await connection.execute("SET LOCAL lock_timeout = '10ms'")
        await connection.fetch("UPDATE public.things SET done = true WHERE n = ANY ($1::int[])", list(part))
        return len(part)

    async with rival.transaction():
        await rival.execute("SELECT FROM public.things WHERE n = 77 FOR UPDATE")
        divided = await in_parts(database, range(1, 101), write, atomic=True)
        assert divided.left == [77]
        assert sum(divided.answers) == 99
    assert len(tries) <= 2 * 7 + 1, "as many as a bisection needs"
    assert await connection.fetchval("SELECT count(*) FROM public.things WHERE done") == 99


async def test_admission_continues_in_the_partitions_without_contention(
    database: Postgres, connection: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B5: for example a deadlock in one partition of 64."""
    async with connection.transaction():
        documents = [{"task": "a", "schedule": {"cron": "*/15 * * * *"}} for _ in range(30)]
        ids = [one.id for one in await submit_schedules(connection, TESTER, documents, now=NOW)]
    usual, bad = schedules.promote_alone, ids[0].int % 64

    async def promote_alone(connection: Any, *, partitions: Sequence[int], **options: Any) -> Any:
        if bad in partitions:
            raise Contention("deadlock detected")
        return await usual(connection, partitions=partitions, **options)

    monkeypatch.setattr(schedules, "promote_alone", promote_alone)
    admitted = await admit(database, SCHEDULER, ALL, limit=100, now=after(minutes=15))
    assert admitted.admitted_count == sum(one.int % 64 != bad for one in ids)
    assert admitted.again_in_s == AGAIN_S
