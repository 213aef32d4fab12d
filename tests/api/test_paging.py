"""Lists: filters, cursors, and a walk over all pages while other callers write."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import Any

import pytest

from tests.api.support import Api, bury, problem

WRITES = int(os.environ.get("SEXTON_TEST_WRITES", "2000"))


async def walked(api: Api, path: str, **query: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        response = await api.http.get(path, params={**query, **({"cursor": cursor} if cursor else {})})
        assert response.status_code == 200, response.text
        items += response.json()["items"]
        cursor = response.json()["next_cursor"]
        if cursor is None:
            return items


async def test_each_filter_finds_its_jobs(api: Api) -> None:
    """A13."""
    one = await api.submit(handler="x", name="n", tenant="t", queue="q", tags=["red", "blue"])
    two = await api.submit(tags=["blue"])
    await api.http.delete(f"/v1/jobs/{two['id']}")
    failed = await api.submit(handler="fails")
    await bury(api.database, "fails")
    for query, ids in (
        ({"handler": "x"}, [one]),
        ({"name": "n"}, [one]),
        ({"tenant": "t"}, [one]),
        ({"queue": "q"}, [one]),
        ({"tag": "red"}, [one]),
        ({"tag": "blue"}, [two, one]),
        ({"tag": "blue", "status": "cancelled"}, [two]),
        ({"status": "pending"}, [one]),
        ({"status": "failed"}, [failed]),
        ({"status": "completed"}, []),
        ({"status": "paused"}, []),
        ({}, [failed, two, one]),
        ({"submitted_from": two["submitted_at"]}, [failed, two]),
        ({"submitted_until": two["submitted_at"]}, [one]),
        ({"submitted_from": two["submitted_at"], "submitted_until": failed["submitted_at"]}, [two]),
    ):
        found = await walked(api, "/v1/jobs", limit=1, **query)
        assert [job["id"] for job in found] == [job["id"] for job in ids], query


async def test_executions_are_found_and_paged(api: Api) -> None:
    """A9."""
    jobs = [await api.submit(tenant="t" if n % 2 else "u") for n in range(5)]
    await bury(api.database)
    found = await walked(api, "/v1/executions", limit=2)
    assert sorted(one["job_id"] for one in found) == sorted(job["id"] for job in jobs)
    assert len(await walked(api, "/v1/executions", limit=1, tenant="t")) == 2
    assert len(await walked(api, "/v1/executions", job_id=jobs[0]["id"])) == 1
    assert await walked(api, "/v1/executions", status="succeeded") == []
    assert len(await walked(api, "/v1/dead-letters", limit=2)) == 5


async def test_a_cursor_belongs_to_its_filters(api: Api) -> None:
    """A13."""
    for _ in range(3):
        await api.submit(tenant="t")
    cursor = (await api.http.get("/v1/jobs?tenant=t&limit=1")).json()["next_cursor"]
    assert (await api.http.get(f"/v1/jobs?tenant=t&limit=2&cursor={cursor}")).status_code == 200
    for path in ("jobs?tenant=u", "jobs?limit=1", "executions?tenant=t", "dead-letters?tenant=t"):
        problem(await api.http.get(f"/v1/{path}&cursor={cursor}"), 422, "invalid", "?cursor")


@pytest.mark.timeout(120)
async def test_a_walk_during_writes_loses_and_repeats_nothing(api: Api) -> None:
    """A13: jobs are submitted and cancelled all the time; every job that existed at the start of the walk is returned exactly
    once."""
    before = {job["id"] for job in await _batch(api, WRITES // 4)}
    done = asyncio.Event()
    written: list[str] = []

    async def write() -> None:
        while len(written) < WRITES:
            ids = [job["id"] for job in await _batch(api, 50)]
            await asyncio.gather(*(api.http.delete(f"/v1/jobs/{job_id}") for job_id in ids[::5]))
            written.extend(ids)
        done.set()

    async def cancel_old() -> None:
        for job_id in sorted(before)[::3]:
            await api.http.delete(f"/v1/jobs/{job_id}")

    writers = [asyncio.create_task(write()), asyncio.create_task(cancel_old())]
    walks = 0
    while not done.is_set() or walks == 0:
        seen = Counter(job["id"] for job in await walked(api, "/v1/jobs", limit=97))
        assert max(seen.values()) == 1
        assert before <= seen.keys()
        walks += 1
    await asyncio.gather(*writers)
    everything = Counter(job["id"] for job in await walked(api, "/v1/jobs", limit=500))
    assert everything.keys() == before | set(written)
    pending = {job["id"] for job in await walked(api, "/v1/jobs", limit=500, status="pending")}
    cancelled = {job["id"] for job in await walked(api, "/v1/jobs", limit=500, status="cancelled")}
    assert not pending & cancelled
    assert pending | cancelled == everything.keys()


async def _batch(api: Api, count: int) -> list[dict[str, Any]]:
    response = await api.http.post("/v1/jobs/batch", json=[{"handler": "a"}] * count)
    items: list[dict[str, Any]] = response.json()["items"]
    return items
