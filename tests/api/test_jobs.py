"""Jobs over HTTP: what is stored, what is answered, and the operations on a job."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import httpx
import msgspec

from sexton import wire
from sexton.api.openapi import examples
from sexton.store.fleet import workers
from tests.api.support import Api, bury, enlist, opened, problem

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def test_a_job_is_stored_as_submitted(api: Api) -> None:
    """A1, A8: 201, its address, and a read after the write sees it."""
    job = {
        "name": "welcome",
        "tenant": "acme",
        "queue": "mail",
        "priority": "high",
        "payload": {"user_id": 42},
        "tags": ["a", "b"],
        "delay": "1h",
        "timeout": "5m",
        "deadline": "2h",
        "start_within": 600,
        "retry": {"max_attempts": 7, "base": "10s"},
        "delivery": "at_most_once",
    }
    response = await api.http.post(
        "/v1/jobs", json={"handler": {"type": "python", "task": "send"}, **job}, headers={"traceparent": TRACE}
    )
    assert response.status_code == 201
    submitted = msgspec.json.decode(response.content, type=wire.Submitted)
    assert response.headers["location"] == f"/v1/jobs/{submitted.id}"
    assert submitted.created
    shown = await api.http.get(response.headers["location"])
    read = msgspec.json.decode(shown.content, type=wire.Job)
    assert (read.handler, read.name, read.tenant, read.queue, read.priority) == ("send", "welcome", "acme", "mail", "high")
    assert (json.loads(bytes(read.payload)), list(read.tags), read.status, read.trace) == (
        {"user_id": 42},
        ["a", "b"],
        "pending",
        TRACE,
    )
    assert (read.timeout_s, read.deadline_s, read.start_within_s, read.delivery) == (300.0, 7200.0, 600.0, "at_most_once")
    assert read.retry == wire.RetryPolicy(max_attempts=7, base=10.0)
    assert read.next_fire_at is not None
    assert (read.next_fire_at - read.submitted_at).total_seconds() == 3600
    assert submitted.run_at == read.run_at == read.next_fire_at
    assert (read.submitted_by, read.attempt, read.last_execution) == ("api", 0, None)


async def test_the_submitted_instant_is_shown_after_the_end(api: Api) -> None:
    """A1, A8: `next_fire_at` is null by then."""
    job = await api.submit(run_at="2026-01-01T10:00:00+01:00")
    await bury(api.database)
    shown = (await api.http.get(f"/v1/jobs/{job['id']}")).json()
    assert (shown["status"], shown["run_at"], shown["next_fire_at"]) == ("failed", "2026-01-01T09:00:00Z", None)


async def test_a_number_of_any_length_is_kept_exactly(api: Api) -> None:
    """A1: the payload is kept as written, not as a float."""
    number = "123456789012345678901234567890.12345678901234567890"
    body = b'{"handler":"a","payload":{"n":' + number.encode() + b',"big":' + b"9" * 400 + b',"twice":1,"twice":2}}'
    response = await api.http.post("/v1/jobs", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 201
    assert f'"n": {number}' in response.text
    assert "9" * 400 in response.text


async def test_a_payload_may_be_any_json(api: Api) -> None:
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    payloads: list[Any] = [None, [], {}, "", 0, False, "null", {"\\u0000": "\\\\u0000"}, "x" * 262_000, deep]
    for payload in payloads:
        job = await api.submit(payload=payload)
        assert (await api.http.get(f"/v1/jobs/{job['id']}")).json()["payload"] == payload


async def test_a_key_gives_the_first_job_again(api: Api) -> None:
    """A10: in the header or the field; the answer marks the replay; another body is rejected; another notation of the same
    instant is not."""
    job = {"handler": "a", "run_at": "2030-01-01T09:00:00Z"}
    first = await api.http.post("/v1/jobs", json=job, headers={"Idempotency-Key": '"k"'})
    same = {"handler": "a", "run_at": "2030-01-01T10:00:00+01:00", "idempotency_key": "k"}
    again = await api.http.post("/v1/jobs", json=same, headers={"Idempotency-Key": "k", "traceparent": TRACE})
    assert (first.status_code, again.status_code) == (201, 201)
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert (first.json()["id"], first.json()["created"], again.json()["created"]) == (again.json()["id"], True, False)
    other = await api.http.post("/v1/jobs", json={"handler": "b"}, headers={"Idempotency-Key": "k"})
    problem(other, 422, "idempotency_key_reused", "/idempotency_key")
    assert await api.count() == 1


async def test_a_key_whose_first_submission_is_not_committed_is_busy(api: Api, connection: asyncpg.Connection[Any]) -> None:
    """A10: 409 with Retry-After, two seconds later."""
    async with connection.transaction():
        await connection.execute("SELECT sexton.submit('a', key => 'k')")
        response = await api.http.post("/v1/jobs", json={"handler": "a", "idempotency_key": "k"})
    problem(response, 409, "idempotency_key_busy")
    assert int(response.headers["retry-after"]) >= 1


async def test_an_unknown_task_is_accepted_with_a_warning(api: Api) -> None:
    async with api.database.connection() as connection:
        await enlist(connection, "known")
    assert (await api.submit(handler="known"))["warnings"] == []
    (warning,) = (await api.submit(handler="unheard.of"))["warnings"]
    assert "unheard.of" in warning


async def test_strict_tasks_reject_an_unknown_task(api: Api) -> None:
    async with api.database.connection() as connection:
        await enlist(connection, "known")
    async with opened(api.database, strict_tasks=True) as strict:
        await strict.submit(handler="known")
        problem(await strict.http.post("/v1/jobs", json={"handler": "unheard.of"}), 422, "invalid", "/handler")
        batch = await strict.http.post("/v1/jobs/batch", json=[{"handler": "known"}, {"handler": "unheard.of"}])
        problem(batch, 422, "invalid", "/1/handler")
    assert await api.count() == 1


async def test_an_entity_tag_saves_a_second_download(api: Api) -> None:
    job = await api.submit(delay="1h")
    path = f"/v1/jobs/{job['id']}"
    tag = (await api.http.get(path)).headers["etag"]
    assert tag.startswith('"1.')
    unchanged = await api.http.get(path, headers={"If-None-Match": f'"other", {tag}'})
    assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", tag)
    await api.http.patch(f"{path}/status", json={"status": "paused"})
    changed = await api.http.get(path, headers={"If-None-Match": tag})
    assert (changed.status_code, changed.json()["status"]) == (200, "paused")


async def test_an_edit_requires_the_version_it_was_made_for(api: Api) -> None:
    """A7: If-Match compares the version; without it the last writer wins."""
    job = await api.submit(delay="1h", name="old", tags=["a"])
    path = f"/v1/jobs/{job['id']}"
    tag = (await api.http.get(path)).headers["etag"]
    edit = {"name": None, "payload": {"n": 1}, "timeout": "1m", "priority": "low", "tags": ["b"], "retry": {"max_attempts": 2}}
    edited = await api.http.patch(path, json=edit, headers={"If-Match": tag})
    assert edited.status_code == 200, edited.text
    read = msgspec.json.decode(edited.content, type=wire.Job)
    assert (read.version, read.name, json.loads(bytes(read.payload)), read.timeout_s) == (2, None, {"n": 1}, 60.0)
    assert (read.priority, list(read.tags), read.retry) == ("low", ["b"], wire.RetryPolicy(max_attempts=2))
    problem(await api.http.patch(path, json={"name": "late"}, headers={"If-Match": tag}), 412, "version_mismatch")
    problem(await api.http.patch(path, json={"name": "late"}, headers={"If-Match": "nonsense"}), 412, "version_mismatch")
    merge = {"content-type": "application/merge-patch+json", "If-Match": "*"}
    assert (await api.http.patch(path, content=b'{"name":"new"}', headers=merge)).json()["version"] == 3
    problem(await api.http.patch(path, json={}), 422, "invalid", "")
    problem(await api.http.patch(path, json={"run_at": "2030-01-01T00:00:00Z", "delay": 1}), 422, "invalid", "/delay")
    problem(await api.http.patch(path, json={"tenant": "other"}), 422, "invalid", "/tenant")
    problem(await api.http.patch(path, json={"payload": "x" * 300_000}), 413, "too_large", "/payload")
    now = await api.http.patch(path, json={"delay": None})
    assert now.json()["next_fire_at"] <= job["next_fire_at"]


async def test_a_job_is_paused_resumed_and_cancelled(api: Api) -> None:
    """A5, A6: an ended job is a conflict."""
    path = f"/v1/jobs/{(await api.submit())['id']}"
    paused = await api.http.patch(f"{path}/status", json={"status": "paused", "note": "mail is down"})
    assert (paused.json()["status"], paused.json()["note"]) == ("paused", "mail is down")
    assert (await api.http.patch(f"{path}/status", json={"status": "active"})).json()["status"] == "pending"
    cancelled = await api.http.delete(path)
    assert cancelled.status_code == 200
    assert (cancelled.json()["ended_count"], cancelled.json()["asked_count"]) == (1, 0)
    assert cancelled.json()["job"]["status"] == "cancelled"
    for refused in (
        await api.http.delete(path),
        await api.http.patch(path, json={"name": "b"}),
        await api.http.patch(f"{path}/status", json={"status": "paused"}),
        await api.http.patch(f"{path}/status", json={"status": "active"}),
        await api.http.patch(f"{path}/status", json={"status": "cancelled"}),
        await api.http.post(f"{path}/retry"),
    ):
        problem(refused, 409, "conflict")
    problem(await api.http.patch(f"{path}/status", json={"status": "done"}), 422, "invalid", "/status")
    problem(await api.http.patch(f"{path}/status", json={"status": "paused", "note": "\x00"}), 422, "invalid", "/note")


async def test_a_failed_job_is_shown_and_retried(api: Api) -> None:
    """A7, A9, C7: execution, dead letter, retry."""
    job = await api.submit(payload={"n": 1}, tenant="acme")
    await bury(api.database)
    read = (await api.http.get(f"/v1/jobs/{job['id']}")).json()
    assert (read["status"], read["last_execution"]["status"], read["last_execution"]["error"]["type"]) == (
        "failed",
        "failed",
        "ValueError",
    )
    (execution,) = (await api.http.get(f"/v1/jobs/{job['id']}/executions")).json()["items"]
    assert (await api.http.get(f"/v1/executions/{execution['id']}")).json() == execution
    (letter,) = (await api.http.get("/v1/dead-letters?tenant=acme")).json()["items"]
    assert (letter["job_id"], letter["payload"]) == (job["id"], {"n": 1})
    assert (await api.http.get(f"/v1/dead-letters/{letter['id']}")).json() == letter
    retried = await api.http.post(f"/v1/jobs/{job['id']}/retry")
    assert retried.json()["status"] == "pending", retried.text
    problem(await api.http.get(f"/v1/dead-letters/{letter['id']}"), 404, "not_found")


async def test_dead_letters_are_replayed_and_discarded_by_filter(api: Api) -> None:
    """C7: a dry run only counts."""
    ids = [(await api.submit(tenant=tenant))["id"] for tenant in ("a", "a", "b")]
    await bury(api.database)
    dry = (await api.http.post("/v1/dead-letters/replay", json={"filter": {"tenant": "a"}, "dry_run": True})).json()
    assert dry == {"matched_count": 2, "replayed": [], "dry_run": True}
    done = (await api.http.post("/v1/dead-letters/replay", json={"filter": {"tenant": "a"}})).json()
    assert sorted(done["replayed"]) == sorted(ids[:2])
    dry = (await api.http.request("DELETE", "/v1/dead-letters", json={"filter": {"tenant": "b"}, "dry_run": True})).json()
    assert (dry["matched_count"], dry["discarded"]) == (1, [])
    (letter,) = (await api.http.get("/v1/dead-letters")).json()["items"]
    gone = (await api.http.delete(f"/v1/dead-letters/{letter['id']}")).json()
    assert gone["discarded"] == [letter["id"]]
    problem(await api.http.delete(f"/v1/dead-letters/{letter['id']}"), 404, "not_found")


async def test_waiting_ends_with_the_job_or_with_the_timeout(api: Api) -> None:
    job = await api.submit()
    path = f"/v1/jobs/{job['id']}"
    assert (await api.http.get(path, params={"wait": "0.1"})).json()["status"] == "pending"
    await api.http.delete(path)
    assert (await api.http.get(path, params={"wait": "30s"})).json()["status"] == "cancelled"
    for wrong in ("soon", "61s", "-1", ""):
        problem(await api.http.get(path, params={"wait": wrong}), 422, "invalid", "?wait")


async def test_the_fleet_and_its_load_are_shown(api: Api) -> None:
    """Workers, nodes, stats, queues, tenants; a name may contain slashes and dots."""
    async with api.database.connection() as connection:
        worker_id = await enlist(connection, "a", queues=["mail/eu.west"])
        await workers.node_beat(connection, worker_id, name="here", partitions=[1, 2])
    await api.submit(queue="mail/eu.west", tenant="../acme/é")
    (worker,) = (await api.http.get("/v1/workers")).json()["items"]
    assert (worker["id"], worker["status"], worker["queues"]) == (str(worker_id), "live", ["mail/eu.west"])
    (node,) = (await api.http.get("/v1/nodes")).json()["items"]
    assert (node["status"], node["partitions"]) == ("live", [1, 2])
    stats = msgspec.json.decode((await api.http.get("/v1/stats")).content, type=wire.Stats)
    assert (stats.ready_count, stats.worker_count, stats.node_count) == (1, 1, 1)
    names = [one["name"] for one in (await api.http.get("/v1/queues")).json()["items"]]
    assert names == ["mail/eu.west"]
    queue = await api.http.get("/v1/queues/mail%2Feu.west")
    assert (queue.json()["name"], queue.json()["ready_count"]) == ("mail/eu.west", 1)
    tenant = await api.http.get("/v1/tenants/..%2Facme%2F%C3%A9")
    assert tenant.json()["name"] == "../acme/é", tenant.text
    for path in ("queues/none", "tenants/none", "tenants/%ff", "queues/%00"):
        assert (await api.http.get(f"/v1/{path}")).status_code in (400, 404)


async def test_a_request_has_an_id_of_the_caller_or_a_generated_one(api: Api) -> None:
    answer = await api.http.get("/healthz", headers={"X-Request-Id": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"
    for unsound in ("x" * 101, "a b", "<script>", ""):
        ours = await api.http.get("/nowhere", headers={"X-Request-Id": unsound})
        assert ours.headers["x-request-id"] not in (unsound, "")
        assert ours.json()["request_id"] == ours.headers["x-request-id"]


async def test_a_large_answer_is_compressed_if_the_caller_accepts_it(api: Api) -> None:
    await api.submit(payload="x" * 10_000)
    zipped = await api.http.get("/v1/jobs", headers={"Accept-Encoding": "gzip"})
    assert zipped.headers["content-encoding"] == "gzip"
    plain = await api.http.get("/v1/jobs", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.json() == zipped.json()


async def test_every_example_of_the_document_works(api: Api) -> None:
    for body in examples.SUBMISSIONS.values():
        response = await api.http.post("/v1/jobs", json=body)
        assert response.status_code == 201, response.text
    for body in examples.BATCH.values():
        assert (await api.http.post("/v1/jobs/batch", json=body)).status_code == 201
    path = f"/v1/jobs/{(await api.submit(delay='1h'))['id']}"
    for body in examples.EDITS.values():
        assert (await api.http.patch(path, json=body)).status_code == 200
    for body in examples.STATUS_CHANGES.values():
        assert (await api.http.patch(f"{path}/status", json=body)).status_code == 200
    for body in examples.REPLAYS.values():
        assert (await api.http.post("/v1/dead-letters/replay", json=body)).status_code == 200
    for body in examples.DISCARDS.values():
        assert (await api.http.request("DELETE", "/v1/dead-letters", json=body)).status_code == 200
    job: httpx.Response = await api.http.get(path)
    assert job.json().keys() == examples.JOB.keys()


async def test_every_example_of_a_schedule_works(api: Api) -> None:
    path = "/v1/jobs/none"
    for body in examples.RECURRING.values():
        path = f"/v1/jobs/{(await api.submit(**body))['id']}"
    for body in examples.EDITS_OF_RECURRING.values():
        assert (await api.http.patch(path, json=body)).status_code == 200
    for body in examples.PAUSES_OF_RECURRING.values():
        assert (await api.http.patch(f"{path}/status", json=body)).status_code == 200
    for body in examples.PREVIEWS.values():
        assert len((await api.http.post("/v1/schedules/preview", json=body)).json()["fires"]) == body.get("count", 10)
