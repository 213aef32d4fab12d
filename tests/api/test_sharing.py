"""Tenants, queues and limits over HTTP: settings, holders, and 429 if a tenant submits more than it may."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sexton.api.openapi import examples
from sexton.store.sharing import parked_runs
from sexton.store.work import runs
from tests.api.support import Api, enlist, problem


async def claim(api: Api, *, limit: int = 10) -> list[Any]:
    async with api.database.transaction() as connection:
        worker_id = await enlist(connection, "a")
        await parked_runs.release(connection)
        return await runs.claim(connection, worker_id=worker_id, queues=["default"], tasks=["a"], limit=limit, grace_s=10.0)


async def test_a_tenant_is_set_shown_and_forgotten(api: Api) -> None:
    """C8, C9, F4: a name may contain slashes."""
    path = "/v1/tenants/acme%2Feu"
    problem(await api.http.get(path), 404, "not_found")
    response = await api.http.put(path, json=examples.TENANTS["in_full"])
    assert response.status_code == 200, response.text
    tenant = response.json()
    expected = {"name": "acme/eu", "status": "active", "weight": 3, "running_max": 50, "waiting_max": 10_000}
    assert {field: tenant[field] for field in expected} == expected
    assert (tenant["submit_rate"], tenant["submit_burst"], tenant["jitter_s"], tenant["ready_count"]) == (100, 500, 30, 0)
    await api.submit(tenant="acme/eu")
    assert (await api.http.get(path)).json() == {**tenant, "ready_count": 1}
    assert [one["name"] for one in (await api.http.get("/v1/tenants")).json()["items"]] == ["acme/eu"]
    replaced = (await api.http.put(path, json={})).json()
    assert (replaced["weight"], replaced["running_max"], replaced["submit_burst"]) == (1, None, None)
    assert (await api.http.delete(path)).json() == {"name": "acme/eu", "removed": True}
    problem(await api.http.delete(path), 404, "not_found")
    assert (await api.http.get(path)).json()["updated_at"] is None  # it has jobs, and the default settings


async def test_a_queue_is_set_shown_and_forgotten(api: Api) -> None:
    """C11."""
    path = "/v1/queues/mail"
    problem(await api.http.get(path), 404, "not_found")
    queue = (await api.http.put(path, json=examples.QUEUES["in_full"])).json()
    expected = {"release_rate": 50, "release_burst": 10, "ageing_s": 600, "timeout_s": 120, "jitter_s": 30, "status": "active"}
    assert {field: queue[field] for field in expected} == expected
    assert (queue["retry"]["max_attempts"], queue["retry"]["base"]) == (3, 10)
    job = await api.submit(queue="mail")
    assert (job["timeout_s"], job["retry"]["max_attempts"]) == (120, 3)
    (listed,) = (await api.http.get("/v1/queues")).json()["items"]
    assert (listed["name"], listed["ready_count"], listed["release_rate"]) == ("mail", 1, 50)
    assert (await api.http.delete(path)).json()["removed"]
    problem(await api.http.delete(path), 404, "not_found")
    assert (await api.http.get(path)).json()["release_rate"] is None


@pytest.mark.parametrize("path", ["/v1/tenants/acme", "/v1/queues/default"])
async def test_a_paused_tenant_or_queue_starts_nothing_until_it_is_resumed(api: Api, path: str) -> None:
    """C11: with the caller and the reason, also through a change of its settings."""
    await api.submit(tenant="acme")
    paused = await api.http.patch(f"{path}/status", json={"status": "paused", "note": "the server is down"})
    assert paused.status_code == 200, paused.text
    assert (paused.json()["status"], paused.json()["note"], paused.json()["paused_by"]) == (
        "paused",
        "the server is down",
        "api",
    )
    assert (await api.http.put(path, json={})).json()["status"] == "paused"
    assert await claim(api) == []
    resumed = (await api.http.patch(f"{path}/status", json={"status": "active"})).json()
    assert (resumed["status"], resumed["paused_at"], resumed["note"]) == ("active", None, None)
    assert len(await claim(api)) == 1


async def test_a_name_that_ends_like_a_path_is_a_name(api: Api) -> None:
    """F2: only the last segment, as sent, makes it a status."""
    path = "/v1/queues/a%2Fstatus"
    assert (await api.http.put(path, json={})).json()["name"] == "a/status"
    assert (await api.http.patch(f"{path}/status", json={"status": "paused"})).json()["name"] == "a/status"
    problem(await api.http.patch(path, json={"status": "paused"}), 404, "not_found")
    problem(await api.http.patch("/v1/queues/a", json={"status": "paused"}), 404, "not_found")


async def test_a_limit_is_set_shown_and_removed(api: Api) -> None:
    """C10, E6: a key may contain slashes and colons."""
    path = "/v1/limits/stripe%3Aeu%2F1"
    problem(await api.http.get(path), 404, "not_found")
    limit = (await api.http.put(path, json={"running": 1, "count": 100, "per": "1h"})).json()
    expected = {"key": "stripe:eu/1", "running": 1, "count": 100, "per_s": 3600, "burst": 10, "ordered": False, "tokens": 10}
    assert {field: limit[field] for field in expected} == expected
    jobs = [await api.submit(limit="stripe:{payload.to}", payload={"to": "eu/1"}) for _ in range(2)]
    (claimed,) = await claim(api)
    limit = (await api.http.get(path)).json()
    assert (limit["held_count"], limit["parked_count"], limit["tokens"]) == (1, 1, 9)
    (holder,) = limit["holders"]
    assert (holder["run_id"], holder["worker"], holder["handler"]) == (str(claimed.lease.run_id), "here", "a")
    assert holder["job_id"] in {job["id"] for job in jobs}
    (listed,) = (await api.http.get("/v1/limits", params={"prefix": "stripe:"})).json()["items"]
    assert (listed["key"], listed["held_count"], listed["holders"]) == ("stripe:eu/1", 1, [])
    refused = problem(await api.http.delete(path), 409, "conflict")
    assert "1 run waits" in refused["detail"]
    for job in jobs:
        await api.http.delete(f"/v1/jobs/{job['id']}")
    assert (await api.http.delete(path)).json() == {"name": "stripe:eu/1", "removed": True}
    problem(await api.http.delete(path), 404, "not_found")


async def test_limits_are_paged(api: Api) -> None:
    for n in range(5):
        await api.http.put(f"/v1/limits/k{n}", json={"running": 1})
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = (await api.http.get("/v1/limits", params={"limit": 2, **({"cursor": cursor} if cursor else {})})).json()
        found += [one["key"] for one in page["items"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert found == ["k0", "k1", "k2", "k3", "k4"]
    for wrong in ("!", "AAAA", "AQ"):
        problem(await api.http.get("/v1/limits", params={"cursor": wrong}), 422, "invalid", "?cursor")


async def test_a_job_shows_its_limit(api: Api) -> None:
    """C10."""
    job = await api.submit(limit={"key": "mailer:{payload.n}", "count": 5, "per": "1m"}, payload={"n": 1})
    assert job["limit"] == {"key": "mailer:{payload.n}", "count": 5, "per": 60.0, "burst": 1}
    assert (await api.http.get("/v1/limits/mailer:1")).json()["count"] == 5
    recurring = await api.submit(cron="@daily", name="r", limit={"key": "nightly", "running": 1})
    assert recurring["limit"]["key"] == "nightly"
    edited = await api.http.patch(f"/v1/jobs/{recurring['id']}", json={"timeout": "5s"})
    assert (edited.json()["timeout_s"], edited.json()["limit"]["key"]) == (5, "nightly")


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("/v1/tenants/a", {"weight": 0}, "/weight"),
        ("/v1/tenants/a", {"weight": "heavy"}, "/weight"),
        ("/v1/tenants/a", {"wieght": 2}, "/wieght"),
        ("/v1/tenants/a", {"submit_burst": 2}, "/submit_burst"),
        ("/v1/tenants/a", {"jitter": "2h"}, "/jitter"),
        (f"/v1/tenants/{'x' * 201}", {}, "/name"),
        ("/v1/queues/a", {"release_rate": 0}, "/release_rate"),
        ("/v1/queues/a", {"ageing": "soon"}, "/ageing"),
        ("/v1/queues/a", {"retry": {"max_attempts": 0}}, "/retry/max_attempts"),
        ("/v1/limits/a", {}, "/running"),
        ("/v1/limits/a", {"count": 5}, "/per"),
        ("/v1/limits/a", {"running": 2, "ordered": True}, "/running"),
        ("/v1/limits/@a", {"running": 2}, "/key"),
        ("/v1/limits/a:%7Bpayload.x%7D", {"running": 2}, "/key"),
    ],
)
async def test_an_invalid_setting_is_named_and_changes_nothing(api: Api, path: str, body: Any, pointer: str) -> None:
    """F2."""
    problem(await api.http.put(path, json=body), 422, "invalid", pointer)
    assert [await api.count(table) for table in ("tenants", "queues", "limits")] == [0, 0, 0]


async def test_an_invalid_status_is_named_and_changes_nothing(api: Api) -> None:
    """F2."""
    for path in ("/v1/tenants/a/status", "/v1/queues/a/status"):
        problem(await api.http.patch(path, json={"status": "stopped"}), 422, "invalid", "/status")
        problem(await api.http.patch(path, json={"status": "paused", "note": "a\x00"}), 422, "invalid", "/note")
        problem(await api.http.patch(path, json={}), 422, "invalid", "/status")
        problem(await api.http.patch(path, content=b"{"), 400, "malformed")
    assert [await api.count(table) for table in ("tenants", "queues")] == [0, 0]


@pytest.mark.parametrize(
    ("limit", "pointer"),
    [
        ({"key": "a", "running": 0}, "/limit/running"),
        ({"key": "@a", "running": 1}, "/limit/key"),
        ({"key": "{payload.x", "running": 1}, "/limit/key"),
        ({"running": 1}, "/limit/key"),
        ({"key": "a", "count": 1}, "/limit/per"),
        ("nobody-set-it", "/limit/key"),
        ({"key": "{payload.missing}", "running": 1}, "/limit/key"),
    ],
)
async def test_a_job_with_an_invalid_limit_is_rejected(api: Api, limit: Any, pointer: str) -> None:
    """C10, F2: also if only the database can detect it."""
    problem(await api.http.post("/v1/jobs", json={"handler": "a", "limit": limit}), 422, "invalid", pointer)
    batch = await api.http.post("/v1/jobs/batch", json=[{"handler": "a"}, {"handler": "a", "limit": limit}])
    problem(batch, 422, "invalid")
    assert (await api.count(), await api.count("limits")) == (0, 0)


class TestTooManyRequests:
    async def test_a_tenant_beyond_its_rate_gets_retry_after(self, api: Api) -> None:
        """C9: other tenants are not affected."""
        await api.http.put("/v1/tenants/acme", json={"submit_rate": 0.1, "submit_burst": 2})
        for _ in range(2):
            await api.submit(tenant="acme")
        response = await api.http.post("/v1/jobs", json={"handler": "a", "tenant": "acme"})
        refused = problem(response, 429, "limit_exceeded", "/tenant")
        assert (refused["limit"], refused["max"]) == ("submit_rate", pytest.approx(0.1))
        assert 8 <= refused["retry_after_s"] <= 10
        assert 8 <= int(response.headers["retry-after"]) <= 10
        assert "acme" in refused["detail"]
        await api.submit(tenant="other")
        assert await api.count() == 3

    async def test_a_tenant_with_too_many_waiting_jobs_is_rejected(self, api: Api) -> None:
        """C9: no job of a batch is written, and the first job of that tenant is named."""
        await api.http.put("/v1/tenants/acme", json={"waiting_max": 2})
        jobs = [{"handler": "a", "tenant": tenant} for tenant in ("other", "acme", "acme", "acme")]
        response = await api.http.post("/v1/jobs/batch", json=jobs)
        refused = problem(response, 429, "limit_exceeded", "/1/tenant")
        assert (refused["limit"], refused["max"], response.headers["retry-after"]) == ("waiting", 2, "1")
        assert await api.count() == 0
        partial = await api.http.post("/v1/jobs/batch", params={"partial": "true"}, json=jobs)
        assert partial.status_code == 200
        answer = partial.json()
        assert (answer["created_count"], answer["refused_count"]) == (3, 1)
        (item,) = [one for one in answer["items"] if "problem" in one]
        assert (item["problem"]["code"], item["problem"]["limit"]) == ("limit_exceeded", "waiting")

    async def test_one_tenant_over_its_limit_does_not_affect_others_in_the_same_commit(self, api: Api) -> None:
        """C9: single submissions share commits."""
        await api.http.put("/v1/tenants/acme", json={"waiting_max": 1})
        tenants = ["acme", "acme", "b", "c"] * 5
        answers = await asyncio.gather(*(api.http.post("/v1/jobs", json={"handler": "a", "tenant": t}) for t in tenants))
        codes = [(tenant, answer.status_code) for tenant, answer in zip(tenants, answers, strict=True)]
        assert {code for tenant, code in codes if tenant != "acme"} == {201}
        # An open transaction of another session is not waited for, so a few more may pass.
        assert {code for tenant, code in codes if tenant == "acme"} == {201, 429}
