"""C15: `/v1/subscriptions`: put, shown, removed; the log of deliveries, and replays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sexton.domain import run
from sexton.domain.outcome import ErrorInfo, Failed, Outcome, Succeeded
from sexton.domain.targets import HTTP_TASK
from sexton.errors import Contention
from sexton.ids import entropy
from sexton.operations import subscriptions
from sexton.store.work import runs
from tests.api.support import Api, enlist, problem

URL = "https://hooks.example/sexton"
REFUSED = Failed(ErrorInfo("HttpError", f"POST {URL} answered 410: gone"), permanent=True)


async def subscribe(api: Api, name: str = "orders", **given: Any) -> dict[str, Any]:
    response = await api.http.put(f"/v1/subscriptions/{name}", json={"url": URL, **given})
    assert response.status_code in (200, 201), response.text
    answer: dict[str, Any] = response.json()
    return answer


async def end(api: Api, outcomes: Sequence[Outcome], task: str = "a") -> list[str]:
    """Claims this many runs and ends them like this; their jobs."""
    async with api.database.transaction() as connection:
        worker_id = await enlist(connection, task)
        claimed = await runs.claim(
            connection, worker_id=worker_id, queues=["default"], tasks=[task], limit=len(outcomes), grace_s=10.0
        )
        reports = [
            run.report(one.lease, outcome, entropy(), started_s=0.0, took_s=0.01)
            for one, outcome in zip(claimed, outcomes, strict=True)
        ]
        await runs.finish(connection, reports)
    return [str(one.lease.job_id) for one in claimed]


async def tell(api: Api, *outcomes: Outcome) -> list[str]:
    """Runs that succeed, and the outcome of their events; the deliveries."""
    for _ in outcomes:
        await api.submit()
    await end(api, [Succeeded() for _ in outcomes])
    return await end(api, outcomes, HTTP_TASK)


async def log(api: Api, **query: Any) -> list[dict[str, Any]]:
    response = await api.http.get("/v1/subscriptions/orders/deliveries", params=query)
    assert response.status_code == 200, response.text
    items: list[dict[str, Any]] = response.json()["items"]
    return items


async def test_a_subscription_is_created_shown_listed_replaced_and_removed(api: Api) -> None:
    """C15."""
    given = {
        "kinds": ["missed", "completed"],
        "filter": {"tenant": "acme"},
        "headers": {"Authorization": {"secret": "login", "prefix": "Bearer "}, "X-From": "sexton"},
        "signed_with": ["hooks", "hooks_next"],
        "queue": "mail",
        "priority": "low",
        "retry": {"max_attempts": 3},
        "timeout": "5s",
        "paused": True,
    }
    response = await api.http.put("/v1/subscriptions/orders", json={"url": URL, **given})
    assert response.status_code == 201
    made = response.json()
    assert {name: made[name] for name in ("name", "status", "url", "kinds", "filter", "signed_with", "queue", "priority")} == {
        "name": "orders",
        "status": "paused",
        "url": URL,
        "kinds": ["completed", "missed"],
        "filter": {"tenant": "acme"},
        "signed_with": ["hooks", "hooks_next"],
        "queue": "mail",
        "priority": "low",
    }
    assert made["headers"] == given["headers"]
    assert (made["retry"], made["timeout_s"]) == ({"max_attempts": 3}, 5.0)
    assert (await api.http.get("/v1/subscriptions/orders")).json() == made
    again = await subscribe(api)
    assert (again["status"], again["filter"], again["queue"], again["priority"]) == ("active", {}, "default", "normal")
    assert (again["kinds"], again["created_at"]) == (["completed", "failed", "dead_lettered", "missed"], made["created_at"])
    assert len(again["retry"]["delays"]) == 7
    assert again["timeout_s"] == 15.0
    await subscribe(api, "b")
    first = (await api.http.get("/v1/subscriptions", params={"limit": 1})).json()
    rest = (await api.http.get("/v1/subscriptions", params={"limit": 5, "cursor": first["next_cursor"]})).json()
    assert [one["name"] for one in (*first["items"], *rest["items"])] == ["b", "orders"]
    gone = await api.http.delete("/v1/subscriptions/b")
    assert gone.json() == {"name": "b", "removed": True, "cancelled_count": 0}
    problem(await api.http.get("/v1/subscriptions/b"), 404, "not_found")
    problem(await api.http.delete("/v1/subscriptions/b"), 404, "not_found")


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"url": "ftp://hooks.example"}, "/url"),
        ({"url": "https://me:secret@hooks.example"}, "/url"),
        ({"url": "https://hooks.example/a b"}, "/url"),
        ({"url": ""}, "/url"),
        ({"kinds": []}, "/kinds"),
        ({"kinds": ["started"]}, "/kinds/0"),
        ({"filter": {"handler": "a"}}, "/filter/handler"),
        ({"filter": {"tenant": ""}}, "/filter/tenant"),
        ({"filter": {"tenant": "a\x00"}}, "/filter/tenant"),
        ({"filter": {"job_id": "x"}}, "/filter/job_id"),
        ({"headers": {"Host": "x"}}, "/headers/Host"),
        ({"headers": {"X": "a\r\nY: b"}}, "/headers/X"),
        ({"signed_with": ["no such/name"]}, "/signed_with"),
        ({"queue": "a\x00"}, "/queue"),
        ({"priority": "urgent"}, "/priority"),
        ({"retry": {"max_attempts": 0}}, "/retry/max_attempts"),
        ({"timeout": "soon"}, "/timeout"),
        ({"method": "GET"}, "/method"),
    ],
)
async def test_each_fault_is_named_and_nothing_changes(api: Api, given: dict[str, Any], pointer: str) -> None:
    """F2."""
    await subscribe(api)
    before = (await api.http.get("/v1/subscriptions/orders")).json()
    response = await api.http.put("/v1/subscriptions/orders", json={"url": URL, **given})
    document = problem(response, 422, "invalid")
    assert document["errors"][0]["pointer"] == pointer
    assert (await api.http.get("/v1/subscriptions/orders")).json() == before


@pytest.mark.parametrize("name", ["a%20b", "%00", "a%2Fb", ".a", "x" * 101, "%F0%9F%94%94"])
async def test_a_name_must_be_valid_in_a_path(api: Api, name: str) -> None:
    response = await api.http.put(f"/v1/subscriptions/{name}", json={"url": URL})
    assert response.status_code in (404, 422), response.text
    assert (await api.http.get("/v1/subscriptions")).json()["items"] == []
    assert (await api.http.get(f"/v1/subscriptions/{name}")).status_code == 404


async def test_the_log_shows_each_delivery(api: Api) -> None:
    """C15: which event, its outcome, and the next try."""
    await subscribe(api)
    done, failed, waiting = await tell(api, Succeeded(), REFUSED, Failed(ErrorInfo("OSError", "reset")))
    entries = {one["id"]: one for one in await log(api)}
    assert {name: one["status"] for name, one in entries.items()} == {
        done: "completed",
        failed: "failed",
        waiting: "pending",
    }
    assert {one["kind"] for one in entries.values()} == {"completed"}
    assert entries[failed]["response_status"] == 410
    assert entries[failed]["error"]["message"].endswith("answered 410: gone")
    assert entries[waiting]["next_try_at"] > entries[waiting]["submitted_at"]
    assert (entries[done]["attempt"], entries[done]["next_try_at"]) == (1, None)
    event = (await api.http.get(f"/v1/jobs/{done}")).json()["payload"]
    assert entries[done]["run_job_id"] == event["data"]["job_id"]
    assert entries[done]["execution_id"] == event["data"]["execution_id"]
    assert [one["id"] for one in await log(api, status="failed")] == [failed]
    assert [one["id"] for one in await log(api, status="pending")] == [waiting]
    assert await log(api, submitted_until="2020-01-01T00:00:00Z") == []


async def test_the_log_continues_from_page_to_page(api: Api) -> None:
    await subscribe(api)
    ids = await tell(api, *[Succeeded()] * 5)
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        page = (await api.http.get("/v1/subscriptions/orders/deliveries", params=query)).json()
        seen += [one["id"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert sorted(seen) == sorted(ids)
    query["status"] = "failed"
    problem(await api.http.get("/v1/subscriptions/orders/deliveries", params=query), 422, "invalid", "?cursor")


async def test_a_delivery_is_replayed_alone(api: Api) -> None:
    """C15: a successful one as well as a failed one, but not one that is still being delivered."""
    await subscribe(api)
    done, failed, waiting = await tell(api, Succeeded(), REFUSED, Failed(ErrorInfo("OSError", "reset")))
    for one in (done, failed):
        response = await api.http.post(f"/v1/subscriptions/orders/deliveries/{one}/replay")
        assert response.json() == {"matched_count": 1, "replayed": [one], "dry_run": False, "has_more": False}
        assert (await api.http.get(f"/v1/jobs/{one}")).json()["status"] == "pending"
        problem(await api.http.post(f"/v1/subscriptions/orders/deliveries/{one}/replay"), 409, "conflict")
    problem(await api.http.post(f"/v1/subscriptions/orders/deliveries/{waiting}/replay"), 409, "conflict")
    other = (await api.submit())["id"]
    problem(await api.http.post(f"/v1/subscriptions/orders/deliveries/{other}/replay"), 404, "not_found")
    problem(await api.http.post("/v1/subscriptions/orders/deliveries/x/replay"), 404, "not_found")
    problem(await api.http.post(f"/v1/subscriptions/none/deliveries/{done}/replay"), 404, "not_found")


async def test_all_failed_deliveries_or_a_range_are_replayed_at_once(api: Api) -> None:
    """C15."""
    await subscribe(api)
    done, failed, other, waiting = await tell(api, Succeeded(), REFUSED, REFUSED, Failed(ErrorInfo("OSError", "reset")))

    async def replay(**asked: Any) -> dict[str, Any]:
        response = await api.http.post("/v1/subscriptions/orders/deliveries/replay", json=asked)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    assert await replay(dry_run=True) == {"matched_count": 2, "replayed": [], "dry_run": True, "has_more": False}
    assert (await replay(dry_run=True, limit=1))["has_more"] is True
    assert sorted((await replay())["replayed"]) == sorted([failed, other])
    assert (await replay())["matched_count"] == 0
    assert (await replay(status=None, until="2020-01-01T00:00:00Z"))["matched_count"] == 0
    assert (await replay(status=None, **{"from": "2020-01-01T00:00:00Z"}))["replayed"] == [done]
    assert (await api.http.get(f"/v1/jobs/{waiting}")).json()["attempt"] == 1


async def test_the_pending_deliveries_of_a_removed_subscription_are_cancelled(api: Api) -> None:
    """C15: the completed ones stay in the list of jobs."""
    await subscribe(api)
    done, waiting = await tell(api, Succeeded(), Failed(ErrorInfo("OSError", "reset")))
    await api.submit()
    await end(api, [Succeeded()])
    assert (await api.http.delete("/v1/subscriptions/orders")).json()["cancelled_count"] == 2
    problem(await api.http.get("/v1/subscriptions/orders/deliveries"), 404, "not_found")
    kept = (await api.http.get("/v1/jobs", params={"name": "webhook:orders"})).json()["items"]
    assert sorted(one["status"] for one in kept) == ["cancelled", "cancelled", "completed"]
    assert {done, waiting} < {one["id"] for one in kept}
    cancelled = (await api.http.get(f"/v1/jobs/{waiting}")).json()
    assert cancelled["last_execution"]["reason"] == "the subscription orders was removed"


async def test_a_removal_that_failed_halfway_can_be_repeated(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """C15, F2: as the answer says."""
    await subscribe(api)
    await tell(api, Failed(ErrorInfo("OSError", "reset")))
    cancel, tries = subscriptions.cancel, [1, 2]  # the request itself, and once more on a connection for waiting callers

    async def contended(*args: Any, **options: Any) -> int:
        if tries.pop() == 1:
            monkeypatch.setattr(subscriptions, "cancel", cancel)
        raise Contention("canceling statement due to lock timeout")

    monkeypatch.setattr(subscriptions, "cancel", contended)
    problem(await api.http.delete("/v1/subscriptions/orders"), 503, "contention")
    assert (await api.http.delete("/v1/subscriptions/orders")).json()["cancelled_count"] == 1
    problem(await api.http.delete("/v1/subscriptions/orders"), 404, "not_found")
