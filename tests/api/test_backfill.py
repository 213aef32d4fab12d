"""Backfill and runs by hand over HTTP, from Python and from the command line's own client, with the same results."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import msgspec
import pytest

from sexton import App, Context, wire
from sexton.api.openapi import examples
from sexton.client.remote.async_client import AsyncClient
from sexton.clock import ManualClock
from sexton.domain.outcome import Succeeded
from sexton.domain.partition import ALL, Scan
from sexton.errors import InvalidSubmission, NotAllowedIn, VersionMismatch
from sexton.operations.caller import SCHEDULER
from sexton.operations.recurring import plan
from sexton.operations.recurring.admit import admit
from sexton.store.database import Postgres
from sexton.store.work import schedules
from tests import transitions
from tests.api.support import Api, opened, problem
from tests.store import support

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
HOURLY = {"handler": "a", "cron": "0 * * * *", "payload": {"n": 1}}
UNKNOWN_ID = "f199a1b2-0000-7000-8000-000000000000"


class Timed(Api):
    """An hourly job since nine, whose fires before noon were not run."""

    clock: ManualClock
    job_id: str

    async def post(self, path: str, **body: Any) -> httpx.Response:
        return await self.http.post(f"/v1/jobs/{self.job_id}/{path}", json=body)

    async def begin(self, connection: asyncpg.Connection[Any]) -> Any:
        now = self.clock.database_now()
        worker_id = await support.enlist(connection, now=now)
        await admit(self.database, SCHEDULER, ALL, limit=100, now=now)
        (claimed,) = await support.claim(connection, worker_id, now=now)
        return claimed


@pytest.fixture
async def api(database: Postgres, connection: asyncpg.Connection[Any]) -> AsyncIterator[Timed]:
    await connection.execute("SELECT sexton.make_partitions($1, $1)", NOON)
    clock = ManualClock(NOON - timedelta(hours=3))
    async with opened(database, clock=clock) as api:
        timed = Timed(api.app, api.http, api.database, api.events)
        timed.clock, timed.job_id = clock, (await api.submit(**HOURLY))["id"]
        clock.move(timedelta(hours=3, minutes=40))
        now = clock.database_now()
        await schedules.recall(connection, partitions=ALL, limit=10, now=now)
        seen = await schedules.to_plan(connection, Scan(ALL, 10), now=now)
        await plan.write(connection, SCHEDULER, seen, now=now)
        yield timed
    assert await transitions.violations(connection) == {}


async def test_missing_fires_are_shown_first_and_then_run(api: Timed) -> None:
    """A7: from ten to noon, over HTTP."""
    asked = {"from": "2026-03-04T10:00:00Z", "until": "2026-03-04T12:00:00Z", "spacing": "30s"}
    told = (await api.post("backfill", **asked, dry_run=True)).json()
    assert (told["fires"], told["dry_run"]) == (["2026-03-04T10:00:00Z", "2026-03-04T11:00:00Z"], True)
    assert told["last_due_at"] == "2026-03-04T12:40:30Z"
    done = (await api.post("backfill", **asked)).json()
    assert done == {**told, "dry_run": False}
    again = (await api.post("backfill", **asked)).json()
    assert (again["fires"], again["live_count"]) == ([], 2)
    stopped = (await api.http.delete(f"/v1/jobs/{api.job_id}/backfill")).json()
    assert stopped == {"job_id": api.job_id, "ended_count": 2, "running_count": 0}


@pytest.mark.parametrize(
    ("body", "status", "code", "pointer"),
    [
        ({}, 422, "invalid", "/from"),
        ({"from": "2026-03-04T10:00:00"}, 422, "invalid", "/from"),
        ({"from": "2027-03-04T10:00:00Z"}, 422, "invalid", "/from"),
        ({"from": "2026-03-04T10:00:00Z", "until": "2026-03-04T09:00:00Z"}, 422, "invalid", "/until"),
        ({"from": "2026-03-04T10:00:00Z", "fires": "some"}, 422, "invalid", "/fires"),
        ({"from": "2026-03-04T10:00:00Z", "spacing": "soon"}, 422, "invalid", "/spacing"),
        ({"from": "2026-03-04T10:00:00Z", "overlap": "parallel"}, 422, "invalid", "/overlap"),
        ({"from": "2026-03-04T10:00:00Z", "what": 1}, 422, "invalid", "/what"),
    ],
)
async def test_an_invalid_backfill_is_rejected_by_its_field(
    api: Timed, body: Any, status: int, code: str, pointer: str
) -> None:
    problem(await api.post("backfill", **body), status, code, pointer)


async def test_more_than_a_call_may_write_is_rejected_with_advice_to_split_it(api: Timed) -> None:
    await api.http.patch(f"/v1/jobs/{api.job_id}", json={"cron": "* * * * *"})
    refused = problem(await api.post("backfill", **{"from": "2026-03-03T00:00:00Z"}), 422, "invalid", "/until")
    assert "split it: until 2026-03-03T16:40:00Z first, then from 2026-03-03T16:40:00Z on" in refused["detail"]


async def test_a_one_time_job_or_another_version_is_rejected(api: Timed) -> None:
    body = {"from": "2026-03-04T10:00:00Z"}
    once = (await api.submit(handler="a", delay="1h"))["id"]
    problem(await api.http.post(f"/v1/jobs/{once}/backfill", json=body), 409, "conflict")
    problem(await api.http.post(f"/v1/jobs/{UNKNOWN_ID}/backfill", json=body), 404, "not_found")
    problem(await api.http.delete(f"/v1/jobs/{UNKNOWN_ID}/backfill"), 404, "not_found")
    problem(
        await api.http.post(f"/v1/jobs/{api.job_id}/backfill", json=body, headers={"If-Match": '"7"'}), 412, "version_mismatch"
    )


async def test_a_run_by_hand_with_another_payload_shows_it_in_its_execution(
    api: Timed, connection: asyncpg.Connection[Any]
) -> None:
    """A7, A9."""
    await connection.execute("DELETE FROM sexton.runs")
    fired = await api.post("run", payload={"n": 2})
    assert (fired.status_code, fired.json()["payload"]) == (200, {"n": 1})
    claimed = await api.begin(connection)
    assert msgspec.json.decode(claimed.payload_json) == {"n": 2}
    await support.finish(connection, claimed.lease, Succeeded(), now=api.clock.database_now())
    page = (await api.http.get(f"/v1/jobs/{api.job_id}/executions")).json()["items"]
    (ran,) = [one for one in page if one["status"] == "succeeded"]
    assert (ran["origin"], ran["payload"]) == ("now", {"n": 2})
    one = (await api.http.get(f"/v1/executions/{ran['id']}")).json()
    assert one["payload"] == {"n": 2}


async def test_a_run_by_hand_without_a_body_uses_the_jobs_payload(api: Timed, connection: asyncpg.Connection[Any]) -> None:
    await connection.execute("DELETE FROM sexton.runs")
    assert (await api.http.post(f"/v1/jobs/{api.job_id}/run")).status_code == 200
    assert msgspec.json.decode((await api.begin(connection)).payload_json) == {"n": 1}


async def test_an_invalid_payload_fires_nothing(api: Timed) -> None:
    before = await api.count("runs")
    problem(await api.post("run", payload={"a": "\x00"}), 422, "invalid", "/payload")
    problem(await api.post("run", payload="x" * 300_000), 413, "too_large", "/payload")
    problem(await api.post("run", load=1), 422, "invalid", "/load")
    assert await api.count("runs") == before
    once = (await api.submit(handler="a", delay="1h"))["id"]
    problem(await api.http.post(f"/v1/jobs/{once}/run", json={"payload": {}}), 422, "invalid", "/payload")
    problem(await api.http.post(f"/v1/jobs/{UNKNOWN_ID}/run", json={"payload": {}}), 404, "not_found")


async def test_the_examples_of_the_document_work(api: Timed) -> None:
    """F2."""
    for path, bodies in (("run", examples.RUNS), ("backfill", examples.BACKFILLS)):
        for body in bodies.values():
            assert (await api.post(path, **body)).status_code == 200


@asynccontextmanager
async def remote(api: Timed) -> AsyncIterator[AsyncClient]:
    transport = httpx.ASGITransport(api.app)  # type: ignore[arg-type]
    async with AsyncClient("http://sexton.invalid", transport=transport) as client:
        yield client


async def test_the_remote_client_returns_the_same(api: Timed, connection: asyncpg.Connection[Any]) -> None:
    await connection.execute("DELETE FROM sexton.runs")
    span = (NOON - timedelta(hours=2), NOON)
    async with remote(api) as client:
        told = await client.backfill(api.job_id, *span, dry_run=True)
        assert isinstance(told, wire.Backfill)
        assert [at.hour for at in told.fires] == [10, 11]
        with pytest.raises(VersionMismatch):
            await client.backfill(api.job_id, *span, version=told.version + 1)
        done = await client.backfill(api.job_id, *span, spacing=timedelta(seconds=5), version=told.version)
        assert done.last_due_at == api.clock.database_now() + timedelta(seconds=5)
        assert (await client.stop_backfill(api.job_id)).ended_count == 2
        await client.run(api.job_id, {"n": 3})
        with pytest.raises(InvalidSubmission):
            await client.run(api.job_id, {"n": float("inf")})
        with pytest.raises(InvalidSubmission, match="is in the future"):
            await client.backfill(api.job_id, NOON + timedelta(days=1))
    assert msgspec.json.decode((await api.begin(connection)).payload_json) == {"n": 3}


async def test_the_app_pauses_resumes_runs_and_backfills(
    api: Timed, database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    """A6, A7: and validates a payload against the function."""
    await connection.execute("DELETE FROM sexton.runs")
    job_id, now = UUID(api.job_id), api.clock.database_now()
    async with App(database_url, clock=api.clock) as app:

        @app.task(name="a")
        async def a(ctx: Context, n: int) -> None: ...

        shown = await app.pause(job_id, note="maintenance", until=now + timedelta(hours=1))
        assert (shown.status, shown.note, shown.paused_by) == ("paused", "maintenance", "app")
        assert shown.resume_at == now + timedelta(hours=1)
        with pytest.raises(InvalidSubmission, match="past"):
            await app.pause(job_id, until=now)
        assert (await app.resume(job_id)).status == "pending"
        with pytest.raises(InvalidSubmission, match="no such argument"):
            await app.run(job_id, {"m": 4})
        await app.run(job_id, {"n": 4})
        assert msgspec.json.decode((await api.begin(connection)).payload_json) == {"n": 4}
        done = await app.backfill(job_id, NOON - timedelta(hours=2), NOON)
        assert [at.hour for at in done.fires] == [10, 11]
        assert await app.stop_backfill(job_id) == (2, 0)
        with pytest.raises(InvalidSubmission, match="/until"):
            await app.backfill(job_id, NOON, NOON)
        once = await app.submit("a", {"n": 5}, delay="1h")
        assert (await app.pause(once.id, note="wait")).status == "paused"
        with pytest.raises(InvalidSubmission, match="/until"):
            await app.pause(once.id, until=now + timedelta(hours=1))
        assert (await app.resume(once.id)).status == "pending"
        with pytest.raises(InvalidSubmission, match="/payload"):
            await app.run(once.id, {"n": 6})
        assert (await app.run(once.id)).next_fire_at == now
        with pytest.raises(NotAllowedIn):
            await app.backfill(once.id, NOON - timedelta(hours=2))
