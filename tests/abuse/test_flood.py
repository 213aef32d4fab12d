"""More submissions than the API can take: it stays available, rejects the rest, and keeps what it acknowledged (A1, F4, F6).
Long form: SEXTON_TEST_FLOOD_S=10."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from sexton.api.requests import bodies
from sexton.api.resources import batch
from sexton.store.database import Postgres
from tests.api.support import opened
from tests.process.cluster import Cluster
from tests.sizes import size

from .watch import ask, attack, is_problem

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import StartApi

SPAN_S = size("FLOOD_S", 2)
RATE = size("FLOOD_RATE", 50_000)
CONNECTIONS = size("FLOOD_CONNECTIONS", 1_500)
DEPTH = 4  # unanswered requests of one connection
_LIVE = "SELECT count(*) FROM sexton.runs"
_WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'sexton.runs'::regclass"


@pytest.mark.timeout(900)
async def test_a_flood_is_rejected_in_part_and_acknowledged_jobs_exist_and_run(
    start_api: StartApi,
    cluster: Cluster,
    connection: asyncpg.Connection[Any],
    tmp_path: Path,
    figure: Callable[[str], None],
) -> None:
    """A1, F4, F6."""
    api = await start_api()
    async with api.watched() as watch:
        orders = {"connections": CONNECTIONS, "span_s": SPAN_S, "rate": RATE, "depth": DEPTH}
        report = await attack("flood", api.port, ids_path=str(tmp_path / "ids"), **orders)
    tally = report["tally"]
    figure(
        f"{report['attempted'] / SPAN_S:,.0f} submissions/s attempted for {SPAN_S} s over {CONNECTIONS} connections, "
        f"{report['sent']:,} sent: {tally}, unanswered {report['unanswered']}; {watch}"
    )
    assert not report["wrong"]
    assert set(tally) <= {"201", "429", "503"}, tally
    assert tally["201"] > 100
    assert report["unanswered"] == 0
    assert watch.is_well(), watch
    assert watch.growth_mib < 300, watch
    ids = [UUID(text) for text in (tmp_path / "ids").read_text().split()]
    assert len(set(ids)) == len(ids) == tally["201"]
    assert await connection.fetchval("SELECT count(*) FROM sexton.jobs WHERE id = ANY ($1)", ids) == len(ids)

    cluster.scheduler("scheduler")
    cluster.worker("worker")

    async def all_ended() -> bool:
        return not await connection.fetchval(_LIVE)

    took_s = await cluster.until(all_ended, "everything to run", within_s=60 + len(ids) / 500)
    done = await connection.fetchval(
        "SELECT count(DISTINCT job_id) FROM sexton.executions WHERE status = 'succeeded' AND job_id = ANY ($1)", ids
    )
    figure(f"all {len(ids):,} acknowledged jobs had run after {took_s:.1f} s")
    assert done == len(ids)


async def test_beyond_the_limit_a_request_gets_retry_after(start_api: StartApi, connection: asyncpg.Connection[Any]) -> None:
    """F4: except for requests for the health of the process."""
    api = await start_api(api_request_limit=1)
    async with httpx.AsyncClient(base_url=api.address, timeout=20) as http:
        await connection.execute("BEGIN; LOCK TABLE sexton.runs IN SHARE MODE")
        stuck = asyncio.create_task(http.post("/v1/jobs", json={"handler": "a"}))
        while not await connection.fetchval(_WAITING):  # noqa: ASYNC110  (no notification for this)
            await asyncio.sleep(0.01)
        refused = await http.get("/v1/workers")
        assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["x-request-id"] == refused.json()["request_id"]
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.get("/readyz")).status_code == 200
        await connection.execute("ROLLBACK")
        assert (await stuck).status_code == 201
        assert (await http.get("/v1/workers")).status_code == 200


async def test_a_long_poll_does_not_hold_up_others(start_api: StartApi) -> None:
    """F4: a long poll sleeps, and does not count as an active request."""
    api = await start_api(api_request_limit=2)
    async with httpx.AsyncClient(base_url=api.address, timeout=20) as http:
        job = (await http.post("/v1/jobs", json={"handler": "a", "delay": "1h"})).json()["id"]
        waiting = []
        for _ in range(10):
            waiting.append(asyncio.create_task(http.get(f"/v1/jobs/{job}?wait=3s")))
            await asyncio.sleep(0.02)
        answers = [(await http.get("/v1/workers")).status_code for _ in range(10)]
        assert 200 in answers
        assert [(await one).status_code for one in waiting].count(200) > 2  # more than the limit of active requests


@pytest.mark.timeout(120)
async def test_large_batches_do_not_block_other_requests(start_api: StartApi, figure: Callable[[str], None]) -> None:
    """F4: ten thousand jobs are validated in small portions."""
    api = await start_api()
    body = json.dumps([{"handler": "a", "delay": "1h", "payload": {"n": n}} for n in range(10_000)]).encode()
    head = b"POST /v1/jobs/batch HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    async with api.watched() as watch:
        request = head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
        answers = await asyncio.gather(*(ask(api.port, request) for _ in range(4)))
    figure(f"4 batches of 10,000 jobs at once: {[status for status, _, _ in answers]}; {watch}")
    assert [status for status, _, _ in answers] == [201] * 4
    assert watch.slowest_s < 1.0, watch


async def test_a_batch_is_validated_in_portions(database: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """F4: other coroutines run between two portions."""
    turn, seen = 0, set()

    def noting(*given: Any) -> Any:
        seen.add(turn)
        return bodies.decoded(*given)

    monkeypatch.setattr(batch, "decoded", noting)

    async def others() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async with opened(database) as api:
        waiting = asyncio.create_task(others())
        response = await api.http.post("/v1/jobs/batch", json=[{"handler": "a"}] * 2_000)
        waiting.cancel()
    assert response.status_code == 201
    assert len(seen) >= 10


@pytest.mark.timeout(120)
async def test_a_page_of_large_jobs_does_not_stop_the_process(start_api: StartApi, figure: Callable[[str], None]) -> None:
    """F4: 250 jobs of 250 kB each are read at once by several callers."""
    api = await start_api()
    job = {"handler": "a", "delay": "1h", "payload": "x" * 250_000}
    async with httpx.AsyncClient(base_url=api.address, timeout=60) as http:
        for _ in range(5):
            assert (await http.post("/v1/jobs/batch", json=[job] * 50)).status_code == 201
        async with api.watched() as watch:
            pages = await asyncio.gather(*(http.get("/v1/jobs?limit=250") for _ in range(4)))
        assert [page.status_code for page in pages] == [200] * 4
        sizes = [len(page.content) for page in pages]
        figure(f"4 pages of 250 jobs of 250 kB: {sizes[0] / 2**20:.0f} MiB each; {watch}")
        assert watch.is_well(), watch
        assert max(sizes) < 24 * 2**20
        assert watch.growth_mib < 150, watch
        seen, cursor = 0, pages[0].json()["next_cursor"]
        seen += len(pages[0].json()["items"])
        while cursor is not None:
            page = (await http.get("/v1/jobs", params={"limit": 250, "cursor": cursor})).json()
            seen, cursor = seen + len(page["items"]), page["next_cursor"]
        assert seen == 250


def test_a_problem_document_is_recognised() -> None:
    """The tests above depend on it."""
    assert is_problem(b"content-type: application/problem+json", b'{"status":503,"code":"overloaded"}', 503, "overloaded")
    assert not is_problem(b"content-type: text/plain", b'{"status":503,"code":"overloaded"}', 503, "overloaded")
