"""Runs of batch tasks in the database: the most runs of their next call, and what decides which of them may share one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import pytest

from sexton.domain.outcome import Lost, Outcome, Released, Snoozed, TimedOut
from sexton.domain.run import report
from sexton.store.work import runs
from tests.store.support import FLAKY, NOW, claim, enlist, finish, run_row, submit
from tests.store.test_finish import RNG

if TYPE_CHECKING:
    from tests.store.support import Conn


async def limit_of(connection: Conn, job_id: UUID) -> int | None:
    row = await run_row(connection, job_id)
    assert row is not None
    limit: int | None = row["batch_limit"]
    return limit


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Released("drain"), 8),
        (Released("failed together", batch_limit=4), 4),
        (Snoozed(5), 8),
        (Lost("gone", held=9), 8),
        (FLAKY, None),
        (TimedOut("slow"), None),
    ],
    ids=str,
)
async def test_what_keeps_the_limit_of_a_run_and_what_ends_it(connection: Conn, outcome: Outcome, expected: int | None) -> None:
    """Rule "a failed call is halved": an attempt that is charged begins anew."""
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    (claimed,) = await claim(connection, worker_id)
    await finish(connection, claimed.lease, Released("failed together", batch_limit=8))
    (claimed,) = await claim(connection, worker_id)
    assert await limit_of(connection, job_id) == 8, "a claim keeps it"
    await finish(connection, claimed.lease, outcome)
    assert await limit_of(connection, job_id) == expected


async def test_a_report_of_the_last_release_keeps_it(connection: Conn) -> None:
    """Its documents do not have the field."""
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    (claimed,) = await claim(connection, worker_id)
    await finish(connection, claimed.lease, Released("failed together", batch_limit=8))
    (claimed,) = await claim(connection, worker_id)
    document: dict[str, Any] = msgspec.to_builtins(report(claimed.lease, Released("drain"), RNG))
    assert "batch_limit" not in document
    await connection.fetch("SELECT * FROM sexton.finish_runs($1::jsonb, $2)", msgspec.json.encode([document]).decode(), NOW)
    assert await limit_of(connection, job_id) == 8


async def test_only_runs_with_a_limit_have_facts(connection: Conn) -> None:
    worker_id = await enlist(connection)
    await submit(connection)
    (claimed,) = await claim(connection, worker_id)
    assert await runs.batch_facts(connection, [claimed.run_id]) == {}
    await finish(connection, claimed.lease, Released("failed together", batch_limit=8))
    (claimed,) = await claim(connection, worker_id)
    assert await runs.batch_facts(connection, [claimed.run_id]) == {claimed.run_id: (8, None)}
