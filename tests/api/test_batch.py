"""Batches: all or nothing, or the valid jobs and a problem for each invalid one."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from sexton import wire
from tests.api.support import Api, problem

NDJSON = {"content-type": "application/x-ndjson"}


def ten_thousand(*bad: int) -> list[dict[str, Any]]:
    return [{"handler": "a", "payload": {"n": n}, **({"delay": "soon"} if n in bad else {})} for n in range(10_000)]


async def test_one_invalid_job_of_ten_thousand_stops_them_all(api: Api) -> None:
    """A11: nothing is written, and the job is named."""
    response = await api.http.post("/v1/jobs/batch", json=ten_thousand(9_998))
    problem(response, 422, "invalid", "/9998/delay")
    assert await api.count() == 0


async def test_a_partial_batch_writes_the_others(api: Api) -> None:
    """A11: 9,999 written, one named."""
    response = await api.http.post("/v1/jobs/batch?partial=true", json=ten_thousand(17))
    assert response.status_code == 200
    batch = msgspec.json.decode(response.content, type=wire.Batch)
    assert (batch.created_count, batch.existing_count, batch.refused_count, len(batch.items)) == (9_999, 0, 1, 10_000)
    (bad,) = [item for item in batch.items if item.problem is not None]
    assert bad.index == 17
    assert bad.problem is not None
    assert (bad.problem.status, [fault.pointer for fault in bad.problem.errors]) == (422, ["/delay"])
    assert await api.count() == 9_999


async def test_a_batch_of_more_is_too_large(api: Api) -> None:
    problem(await api.http.post("/v1/jobs/batch", json=[*ten_thousand(), {"handler": "a"}]), 413, "too_large")
    assert await api.count() == 0


async def test_lines_are_jobs_too(api: Api) -> None:
    """A11: NDJSON; empty lines do not count."""
    lines = b'{"handler":"a"}\r\n\n{"handler":"b","payload":[1]}\n'
    response = await api.http.post("/v1/jobs/batch", content=lines, headers=NDJSON)
    assert (response.status_code, response.json()["created_count"]) == (201, 2)
    assert response.json()["warnings"]
    torn = b'{"handler":"a"}\n{"handler":\n{"handler":"c","colour":1}\n'
    problem(await api.http.post("/v1/jobs/batch", content=torn, headers=NDJSON), 422, "invalid", "/1", "/2/colour")
    only_torn = b'{"handler":"a"}\n{"handler":\n'
    problem(await api.http.post("/v1/jobs/batch", content=only_torn, headers=NDJSON), 400, "malformed", "/1")
    assert await api.count() == 2
    partial = await api.http.post("/v1/jobs/batch?partial=true", content=torn, headers=NDJSON)
    assert [item.get("problem", {}).get("status") for item in partial.json()["items"]] == [None, 400, 422]
    assert await api.count() == 3


async def test_a_key_in_use_is_found_among_many(api: Api) -> None:
    """A10, A11: only the database knows it; in a partial batch the other jobs are submitted."""
    await api.submit(handler="other", idempotency_key="taken")
    kept = await api.submit(idempotency_key="kept")
    batch: list[dict[str, Any]] = [{"handler": "a", "payload": n} for n in range(50)]
    batch[20] = {"handler": "a", "idempotency_key": "taken"}
    batch[30] = {"handler": "a", "idempotency_key": "kept"}
    refused = await api.http.post("/v1/jobs/batch", json=batch)
    problem(refused, 422, "idempotency_key_reused", "/20/idempotency_key")
    assert await api.count() == 2
    partial = (await api.http.post("/v1/jobs/batch?partial=true", json=batch)).json()
    assert (partial["created_count"], partial["existing_count"], partial["refused_count"]) == (48, 1, 1)
    assert partial["items"][20]["problem"]["code"] == "idempotency_key_reused"
    assert (partial["items"][30]["id"], partial["items"][30]["created"]) == (kept["id"], False)


async def test_an_empty_batch_is_accepted(api: Api) -> None:
    response = await api.http.post("/v1/jobs/batch", json=[])
    assert (response.status_code, response.json()["items"]) == (201, [])
    problem(await api.http.post("/v1/jobs/batch", json={"handler": "a"}), 422, "invalid", "")
    problem(await api.http.post("/v1/jobs/batch", content=b"[", headers={"content-type": "application/json"}), 400, "malformed")
    problem(await api.http.post("/v1/jobs/batch?partial=maybe", json=[]), 422, "invalid", "?partial")


async def test_many_faults_are_named_up_to_a_limit(api: Api) -> None:
    response = await api.http.post("/v1/jobs/batch", content=json.dumps([{"colour": 1}] * 500))
    assert len(problem(response, 422, "invalid")["errors"]) == 100
