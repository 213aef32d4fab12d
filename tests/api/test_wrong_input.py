"""Every class of invalid input: a 4xx problem that names the fault, and nothing changes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from tests.api.support import Api, problem

UNKNOWN_ID = "01890a5d-ac96-774b-bcce-b302099a8057"
_LONG = "x" * 201

# The fault of a job, the status, the code, and the pointer.
WRONG_JOBS: list[tuple[str, dict[str, Any] | bytes, int, str, str]] = [
    ("unknown field", {"colour": "red"}, 422, "invalid", "/colour"),
    ("unknown field inside", {"retry": {"colour": 1}}, 422, "invalid", "/retry/colour"),
    ("a field that needs escaping", {"a/b~c": 1}, 422, "invalid", "/a~1b~0c"),
    ("no handler", b"{}", 422, "invalid", "/handler"),
    ("an empty handler", {"handler": ""}, 422, "invalid", "/handler"),
    ("a long handler", {"handler": _LONG}, 422, "invalid", "/handler"),
    ("an unknown kind of handler", {"handler": {"type": "cobol", "task": "a"}}, 422, "invalid", "/handler/type"),
    ("a bad time", {"run_at": "tomorrow"}, 422, "invalid", "/run_at"),
    ("a naive time", {"run_at": "2030-01-01T09:00:00"}, 422, "invalid", "/run_at"),
    ("a time as a number", {"run_at": 1893456000}, 422, "invalid", "/run_at"),
    ("a time that no calendar has", {"run_at": "2030-02-30T09:00:00Z"}, 422, "invalid", "/run_at"),
    ("a time too far", {"run_at": "9999-12-31T23:59:59Z"}, 422, "invalid", "/run_at"),
    ("a time before the first", {"run_at": "0001-01-01T00:00:00+14:00"}, 422, "invalid", "/run_at"),
    ("a bad span", {"delay": "soon"}, 422, "invalid", "/delay"),
    ("a negative span", {"delay": -1}, 422, "invalid", "/delay"),
    ("an endless span", {"delay": "99999999d"}, 422, "invalid", "/delay"),
    ("a span that is a list", {"timeout": ["1s"]}, 422, "invalid", "/timeout"),
    ("a bad span inside", {"retry": {"base": "soon"}}, 422, "invalid", "/retry/base"),
    ("two times", {"run_at": "2030-01-01T09:00:00Z", "delay": "1s"}, 422, "invalid", "/delay"),
    ("a wrong type", {"tags": "billing"}, 422, "invalid", "/tags"),
    ("a wrong type in a list", {"tags": ["a", 7]}, 422, "invalid", "/tags/1"),
    ("too many tags", {"tags": ["x"] * 21}, 422, "invalid", "/tags"),
    ("attempts below one", {"retry": {"max_attempts": 0}}, 422, "invalid", "/retry/max_attempts"),
    ("an unknown lane", {"priority": "urgent"}, 422, "invalid", "/priority"),
    ("uniqueness by something else", {"unique": {"by": ["colour"]}}, 422, "invalid", "/unique"),
    ("NUL in a name", {"name": "a\x00b"}, 422, "invalid", "/name"),
    ("NUL in a payload", {"payload": {"a": "\x00"}}, 422, "invalid", "/payload"),
    ("NUL in a key of a payload", {"payload": {"\x00": 1}}, 422, "invalid", "/payload"),
    ("a huge payload", {"payload": "x" * 262_144}, 413, "too_large", "/payload"),
    ("deep nesting", b'{"handler":"a","payload":' + b"[" * 101 + b"]" * 101 + b"}", 422, "invalid", "/payload"),
    ("a number beyond every float", b'{"handler":"a","payload":[1e999]}', 422, "invalid", "/payload/0"),
    ("a list", b"[]", 422, "invalid", ""),
    ("null", b"null", 422, "invalid", ""),
]
# Not JSON: there is no field to point to.
MALFORMED: list[tuple[str, bytes]] = [
    ("nothing", b""),
    ("half of it", b'{"handler":'),
    ("more than one", b'{"handler":"a"} {}'),
    ("NaN", b'{"handler":"a","payload":NaN}'),
    ("Infinity", b'{"handler":"a","payload":-Infinity}'),
    ("invalid UTF-8", b'{"handler":"a","name":"\xff"}'),
    ("invalid UTF-8 in a payload", b'{"handler":"a","payload":"\xc3\x28"}'),
    ("half of a surrogate pair", b'{"handler":"a","payload":"\\ud800"}'),
    ("the other half", b'{"handler":"a","payload":"\\udc00"}'),
    ("half of a pair in a name", b'{"handler":"a","name":"\\ud800x"}'),
    ("a byte order mark", b'\xef\xbb\xbf{"handler":"a"}'),
    ("single quotes", b"{'handler':'a'}"),
]
JSON = {"content-type": "application/json"}


@pytest.fixture(autouse=True)
async def _nothing_changed(api: Api) -> AsyncIterator[None]:
    yield
    assert [await api.count(table) for table in ("jobs", "runs", "idempotency_keys", "unique_keys")] == [0, 0, 0, 0]
    assert api.events == []


def _body(job: dict[str, Any] | bytes) -> bytes:
    return job if isinstance(job, bytes) else json.dumps({"handler": "a", **job}).encode()


async def test_an_invalid_job_is_rejected_with_a_pointer(api: Api) -> None:
    """A1, F2: unknown field, invalid or naive time, invalid span, two times, payload too large or too deep, NUL, wrong type."""
    for what, job, status, code, pointer in WRONG_JOBS:
        response = await api.http.post("/v1/jobs", content=_body(job), headers=JSON)
        document = problem(response, status, code, pointer)
        assert document["errors"][0]["detail"], what


async def test_a_body_that_is_not_json_is_malformed(api: Api) -> None:
    """F2: invalid UTF-8, lone surrogates, NaN."""
    for what, body in MALFORMED:
        response = await api.http.post("/v1/jobs", content=body, headers=JSON)
        assert problem(response, 400, "malformed")["detail"], what


async def test_deeply_nested_brackets_are_rejected_at_any_depth(api: Api) -> None:
    for depth in (500, 5_000, 500_000):
        body = b'{"handler":"a","payload":' + b"[" * depth + b"]" * depth + b"}"
        response = await api.http.post("/v1/jobs", content=body, headers=JSON)
        assert response.status_code in (413, 422), response.text
        response = await api.http.post("/v1/jobs", content=b"[" * depth, headers=JSON)
        assert response.status_code in (400, 413, 422), response.text


async def test_the_same_faults_are_found_in_a_batch(api: Api) -> None:
    """A11: each with the index of its job in the pointer."""
    for _, job, status, code, pointer in WRONG_JOBS:
        body = b'[{"handler":"a"},' + _body(job) + b"]"
        problem(await api.http.post("/v1/jobs/batch", content=body, headers=JSON), status, code, f"/1{pointer}")


async def test_a_wrong_content_type_is_rejected_with_the_right_one(api: Api) -> None:
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", "nonsense"):
        response = await api.http.post("/v1/jobs", content=b'{"handler":"a"}', headers={"content-type": content_type})
        assert "application/json" in problem(response, 415, "unsupported_media_type")["detail"]


async def test_a_wrong_method_is_rejected_with_the_right_ones(api: Api) -> None:
    response = await api.http.put("/v1/jobs", json={"handler": "a"})
    problem(response, 405, "method_not_allowed")
    assert {"GET", "POST"} <= {method.strip() for method in response.headers["allow"].split(",")}
    problem(await api.http.get("/v2/jobs"), 404, "not_found")
    problem(await api.http.request("BREW", "/v1/jobs"), 405, "method_not_allowed")


async def test_an_invalid_or_unknown_id_is_not_found(api: Api) -> None:
    for wrong in (
        "7",
        "not-an-id",
        UNKNOWN_ID + "0",
        "{" + UNKNOWN_ID + "}",
        UNKNOWN_ID,
        str(uuid4()),
        "f" * 32,
        "%00",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
    ):
        for method, path in (
            ("GET", f"/v1/jobs/{wrong}"),
            ("DELETE", f"/v1/jobs/{wrong}"),
            ("POST", f"/v1/jobs/{wrong}/retry"),
            ("GET", f"/v1/jobs/{wrong}/executions"),
            ("GET", f"/v1/executions/{wrong}"),
            ("GET", f"/v1/dead-letters/{wrong}"),
            ("DELETE", f"/v1/dead-letters/{wrong}"),
        ):
            problem(await api.http.request(method, path), 404, "not_found")
        problem(await api.http.patch(f"/v1/jobs/{wrong}", json={"name": "b"}), 404, "not_found")
        problem(await api.http.patch(f"/v1/jobs/{wrong}/status", json={"status": "cancelled"}), 404, "not_found")


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/executions", "/v1/dead-letters"])
async def test_an_invalid_query_names_the_parameter(api: Api, path: str) -> None:
    """A13: invalid cursor, invalid limit, unknown and repeated parameters."""
    for query, name in (
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=ten", "limit"),
        ("limit=1.0", "limit"),
        ("colour=red", "colour"),
        ("tenant=a&tenant=b", "tenant"),
        ("tenant=", "tenant"),
        ("tenant=%00", "tenant"),
        (f"tenant={_LONG}", "tenant"),
        ("cursor=nonsense", "cursor"),
        ("cursor=%C3%A4", "cursor"),
        ("cursor=", "cursor"),
        ("cursor=AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQ", "cursor"),
    ):
        problem(await api.http.get(f"{path}?{query}"), 422, "invalid", f"?{name}")
    problem(await api.http.get(f"{path}?tenant=%ff"), 400, "malformed")


async def test_times_in_a_query_are_instants(api: Api) -> None:
    for wrong in ("yesterday", "2026-01-01", "2026-01-01T00:00:00", "1767225600", "null"):
        problem(await api.http.get("/v1/jobs", params={"submitted_from": wrong}), 422, "invalid", "?submitted_from")
        problem(await api.http.get("/v1/executions", params={"started_until": wrong}), 422, "invalid", "?started_until")
    for right in (
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00%2B01:00",
        "2026-01-01T00:00:00+01:00",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
    ):
        for path in ("jobs?submitted_from", "jobs?submitted_until", "executions?started_from", "executions?started_until"):
            response = await api.http.get(f"/v1/{path}={right}")
            assert response.status_code == 200, response.text


async def test_a_call_without_parameters_accepts_none(api: Api) -> None:
    for path in ("/v1/workers", "/v1/nodes", "/v1/stats", "/v1/queues", "/v1/tenants"):
        problem(await api.http.get(f"{path}?limit=5"), 422, "invalid", "?limit")
    problem(await api.http.post("/v1/jobs?dry_run=true", json={"handler": "a"}), 422, "invalid", "?dry_run")


async def test_an_invalid_key_is_rejected(api: Api) -> None:
    """A10."""
    for header in ("", "x" * 201, "ä"):
        response = await api.http.post("/v1/jobs", json={"handler": "a"}, headers={b"Idempotency-Key": header.encode()})
        problem(response, 422, "invalid", "Idempotency-Key")
    response = await api.http.post(
        "/v1/jobs", json={"handler": "a", "idempotency_key": "one"}, headers={"Idempotency-Key": "two"}
    )
    problem(response, 422, "invalid", "/idempotency_key")


async def test_a_body_that_is_too_large_is_rejected_while_it_arrives(api: Api) -> None:
    """F4."""
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'{"handler":"a","payload":"'
        while sent < 100_000_000:
            sent += 65_536
            yield b"x" * 65_536

    problem(await api.http.post("/v1/jobs", content=endless(), headers=JSON), 413, "too_large")
    assert sent < 4_000_000


async def test_an_empty_filter_replays_and_discards_nothing(api: Api) -> None:
    """C7."""
    problem(await api.http.post("/v1/dead-letters/replay", json={"filter": {}}), 422, "invalid", "/filter")
    problem(await api.http.request("DELETE", "/v1/dead-letters", json={"filter": {}}), 422, "invalid", "/filter")
    problem(await api.http.request("DELETE", "/v1/dead-letters"), 400, "malformed")
    problem(await api.http.post("/v1/dead-letters/replay", json={"filter": {"ids": ["7"]}}), 422, "invalid", "/filter/ids/0")
    problem(
        await api.http.post("/v1/dead-letters/replay", json={"filter": {"tenant": "\x00"}}), 422, "invalid", "/filter/tenant"
    )


async def test_a_page_of_another_site_changes_nothing(api: Api) -> None:
    """A browser reaches loopback; requests that it sends without a preflight are rejected by their origin."""
    for origin in ("https://evil.example", "null", "http://sexton:8080"):
        response = await api.http.post("/v1/jobs", content=b'{"handler":"a"}', headers={"Origin": origin})
        problem(response, 403, "other_site")
    same = await api.http.post("/v1/jobs", content=b"{}", headers={"Origin": "http://sexton"})
    problem(same, 422, "invalid", "/handler")
    assert (await api.http.get("/v1/jobs", headers={"Origin": "https://evil.example"})).status_code == 200
