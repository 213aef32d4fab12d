"""Rule "a waiting caller leaves the group": one busy key or locked run, beside callers and runs that do not depend on it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from tests.sizes import size

from .cluster import Cluster, StartCluster

if TYPE_CHECKING:
    from sexton import App
    from tests.store.support import Conn

INNOCENTS = 5
EACH = size("NEIGHBOUR_EACH", 10)  # submissions of each caller in one round
ROUNDS = 2
TIMES_SLOWER = 15  # without the rule they were 50 to 200 times slower
BUSY: dict[str, dict[str, Any]] = {
    "key": {"handler": "a", "idempotency_key": "busy"},
    "unique": {"handler": "b", "unique": True, "payload": {"user": 1}},
    "limit": {"handler": "c", "limit": {"key": "busy", "running": 3}},
}
HOLD = {
    "key": """SELECT sexton.submit('a', key => 'busy')""",
    "unique": """SELECT sexton.submit_jobs('[{"task": "b", "payload": {"user": 1}, "unique": {"by": ["task", "payload"]}}]')""",
    "limit": """SELECT sexton.submit_jobs('[{"task": "c", "limit": {"key": "busy", "running": 3}}]')""",
}


async def started(cluster: Cluster, **settings: object) -> str:
    api = cluster.api("api", **settings)
    await cluster.until(lambda: "api listening" in api.log, "the API to listen")
    found = re.search(r"http://127\.0\.0\.1:\d+", api.log)
    assert found is not None
    return found[0]


async def innocents(url: str) -> list[float]:
    """The duration of each submission of five concurrent callers with keys of their own."""
    took: list[float] = []

    async def submit(caller: int) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            for _ in range(EACH):
                began = time.monotonic()
                answer = await http.post("/v1/jobs", json={"handler": "a", "idempotency_key": f"{caller}-{began}"})
                assert answer.status_code == 201, answer.text
                took.append(time.monotonic() - began)

    await asyncio.gather(*(submit(caller) for caller in range(INNOCENTS)))
    return took


def repeating(url: str, *bodies: dict[str, Any]) -> AbstractAsyncContextManager[list[httpx.Response]]:
    return requesting(url, *[("POST", "/v1/jobs", body) for body in bodies])


@asynccontextmanager
async def requesting(url: str, *requests: tuple[str, str, dict[str, Any]]) -> AsyncIterator[list[httpx.Response]]:
    """Callers that repeat the same request as soon as the last one was answered."""
    answers: list[httpx.Response] = []

    async def repeat(method: str, path: str, body: dict[str, Any]) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=30) as http:
            while True:
                answers.append(await http.request(method, path, json=body))

    callers = [asyncio.create_task(repeat(*request)) for request in requests]
    try:
        yield answers
    finally:
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)


def told(alone: list[float], beside: list[float]) -> str:
    def times(took: list[float]) -> str:
        percentiles = quantiles(took, n=100)
        return f"{sum(took) / INNOCENTS:.1f} s (p50 {percentiles[49] * 1000:.1f} ms, p99 {percentiles[98] * 1000:.1f} ms)"

    return f"{len(alone)} submissions of {INNOCENTS} callers: alone {times(alone)}, beside busy keys {times(beside)}"


async def test_callers_of_busy_keys_do_not_slow_down_the_others(
    start_cluster: StartCluster, database_url: str, figure: Callable[[str], None]
) -> None:
    """C19, C9: open transactions hold an idempotency key, a unique key and a new limit."""
    cluster = start_cluster()
    url = await started(cluster)
    await innocents(url)
    alone, beside, seen = list[float](), list[float](), dict[str, str]()
    holders = [await asyncpg.connect(database_url) for _ in BUSY]
    try:
        for holder, statement in zip(holders, HOLD.values(), strict=True):
            await holder.execute("BEGIN")
            await holder.execute(statement)
        for _ in range(ROUNDS):  # in turn, because the other load of this machine varies
            alone += await innocents(url)
            async with repeating(url, *BUSY.values()) as answers:
                beside += await innocents(url)
                await cluster.until(lambda answers=answers: len(answers) >= len(BUSY), "the answers")  # type: ignore[misc]
                seen |= {answer.json()["code"]: answer.json()["detail"] for answer in answers}
    finally:
        for holder in holders:
            await holder.close()
    figure(told(alone, beside))
    assert median(beside) < TIMES_SLOWER * median(alone)
    assert set(seen) == {"idempotency_key_busy", "contention"}
    assert seen["idempotency_key_busy"].startswith('another transaction holds the idempotency key "busy"')


REPEATERS = 20
SCHEDULE = {"handler": "d", "name": "busy", "every": "2h"}
HOLD_SCHEDULE = "SELECT sexton.submit_schedule('d', name => 'busy', every => '1 hour')"


@pytest.mark.parametrize("is_known", [False, True])
async def test_callers_of_a_held_schedule_do_not_slow_down_the_others(
    start_cluster: StartCluster, database_url: str, figure: Callable[[str], None], is_known: bool
) -> None:
    """C19, C9: an open transaction has written a schedule, and others submit it by its name and change it by its id."""
    cluster = start_cluster()
    url = await started(cluster)
    await innocents(url)
    change: tuple[str, str, dict[str, Any]] = ("POST", "/v1/jobs", SCHEDULE)
    if is_known:
        async with httpx.AsyncClient(base_url=url) as http:
            job = (await http.post("/v1/jobs", json=SCHEDULE)).json()
        change = ("PATCH", f"/v1/jobs/{job['id']}/status", {"status": "paused"})
    alone, beside, answers = list[float](), list[float](), list[httpx.Response]()
    holder = await asyncpg.connect(database_url)
    try:
        await holder.execute("BEGIN")
        await holder.execute(HOLD_SCHEDULE)
        for _ in range(ROUNDS):
            alone += await innocents(url)
            async with requesting(url, *[change] * REPEATERS) as answers:
                beside += await innocents(url)
                await cluster.until(lambda answers=answers: answers, "an answer")  # type: ignore[misc]
    finally:
        await holder.close()
    figure(told(alone, beside))
    assert median(beside) < TIMES_SLOWER * median(alone)
    assert {answer.json()["code"] for answer in answers} == {"contention"}


async def test_a_locked_run_does_not_hold_up_the_reports_of_the_others(
    app: App, start_cluster: StartCluster, connection: Conn, database_url: str
) -> None:
    """C19, C4: one transaction has locked a running run, and another the key of a running job."""
    cluster = start_cluster(worker_concurrency=4)
    cluster.worker("worker")
    await cluster.until_ready()
    locked = await app.submit("tick", {"seconds": 0.5})
    keyed = await app.submit("tick", {"seconds": 0.5}, key="busy")
    ids = [locked.id, keyed.id]
    await cluster.until(lambda: len(cluster.lines("start")) == 2, "both to start")
    holder = await asyncpg.connect(database_url, server_settings={"application_name": "a report that is left open"})
    try:
        await holder.execute("BEGIN")
        await holder.fetch("SELECT FROM sexton.runs WHERE id = $1 FOR UPDATE", locked.id)
        await holder.execute("SELECT FROM sexton.idempotency_keys WHERE key = 'busy' FOR UPDATE")
        await cluster.until(lambda: len(cluster.lines("end")) == 2, "both to end")
        others = [submitted.id for submitted in await app.submit_many([app.request("tick", {"seconds": 0}) for _ in range(40)])]

        async def ended(job_ids: list[UUID]) -> bool:
            query = "SELECT count(*) FROM sexton.endings WHERE job_id = ANY ($1) AND status = 'completed'"
            return bool(await connection.fetchval(query, job_ids) == len(job_ids))

        await cluster.until(lambda: ended(others), "the others to be reported")
        await cluster.until(lambda: cluster["worker"].log.count("report held up") >= 2, "the warnings")
        assert not await connection.fetchval("SELECT EXISTS (SELECT FROM sexton.endings WHERE job_id = ANY ($1))", ids)
        log, pid = cluster["worker"].log, holder.get_server_pid()
        assert all(str(run_id) in log for run_id in ids)
        assert f"session {pid} of" in log
        assert "a report that is left open" in log
    finally:
        await holder.close()
    await cluster.until(lambda: ended(ids), "the locked ones to be reported")
