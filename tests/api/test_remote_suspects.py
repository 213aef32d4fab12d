"""Suspects and workers over HTTP, which have no child process to execute them in (C18, rule "suspects apart")."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sexton.operations.remote import claims
from tests.api.remote_hand import Hand
from tests.api.support import Api
from tests.api.test_remote_workers import until


async def quarantine(api: Api, *companies: int) -> list[str]:
    """Suspects; their jobs."""
    jobs = [(await api.submit(delay="1h"))["id"] for _ in companies]
    async with api.database.connection() as connection:
        await connection.fetch("ALTER TABLE sexton.runs DISABLE TRIGGER test_only_watch")
        for job_id, company in zip(jobs, companies, strict=True):
            due = "due_at = due_at - interval '2 hours'"
            change = (
                f"UPDATE sexton.runs SET state = 'quarantined', company = $2, token = 2, {due} WHERE job_id = $1::text::uuid"
            )
            await connection.fetch(change, job_id, company)
        await connection.fetch("ALTER TABLE sexton.runs ENABLE TRIGGER test_only_watch")
    return jobs


def ids(runs: list[dict[str, Any]]) -> list[str]:
    return [run["job_id"] for run in runs]


async def test_a_worker_that_holds_nothing_gets_suspects_and_then_nothing_else(api: Api) -> None:
    """C18: until they have ended. Without this, tasks that only remote workers know would wait for ever."""
    hand = Hand(api)
    suspects = await quarantine(api, 2, 2)
    taken = await hand.acquire(limit=10)
    assert ids(taken) == suspects
    ordinary = (await api.submit())["id"]
    assert await hand.acquire(limit=10) == []
    for run in taken:
        await hand.report(run, "complete")
    assert ids(await hand.acquire(limit=10)) == [ordinary]


async def test_other_runs_come_first_until_suspects_have_waited(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """C18: they do not overtake other runs, and do not starve."""
    hand = Hand(api)
    (suspect,) = await quarantine(api, 1)
    ordinary = [(await api.submit())["id"] for _ in range(2)]
    (first,) = await hand.acquire()
    assert first["job_id"] == ordinary[0]
    monkeypatch.setattr(claims, "SUSPECTS_WAIT_S", -1.0)
    (second,) = await hand.acquire()
    assert second["job_id"] == ordinary[1], "it holds an ordinary run"
    for run in (first, second):
        await hand.report(run, "complete")
    await api.submit()
    assert ids(await hand.acquire()) == [suspect]


async def test_a_worker_that_waits_is_woken_for_a_suspect(api: Api) -> None:
    """C18: by the same poll that looks for ready runs."""
    waiting = asyncio.create_task(Hand(api).acquire(wait=20))
    await until(lambda: api.state.long_polling.waiting_count == 1)
    (suspect,) = await quarantine(api, 1)
    assert ids(await waiting) == [suspect]
