"""A request with several faults is rejected once, with all of its faults."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.support import Api, problem

MERGE = {"content-type": "application/merge-patch+json"}


def pointers(document: dict[str, Any]) -> list[str]:
    return [fault["pointer"] for fault in document["errors"]]


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        pytest.param(
            {"delay": "soon", "timeout": "x", "priority": "high", "max_lost": 0, "name": "a\x00"},
            ["/max_lost", "/name", "/delay", "/timeout"],
            id="types first, then rules",
        ),
        pytest.param(
            {"colour": 1, "size": 2, "tags": "billing", "run_at": "tomorrow"},
            ["/colour", "/size", "/tags", "/run_at"],
            id="unknown fields and wrong types",
        ),
        pytest.param(
            {"retry": {"base": "soon", "max": "later", "colour": 1, "max_attempts": 0}, "grace": -1},
            ["/retry/colour", "/retry/max_attempts", "/retry/base", "/retry/max", "/grace"],
            id="inside of an object",
        ),
        pytest.param(
            {"retry": {"base": "soon", "max": "later"}, "grace": -1}, ["/retry/base", "/retry/max", "/grace"], id="spans"
        ),
        pytest.param(
            {"limit": {"key": "@x", "running": 0, "count": 0, "per": "9d"}, "deadline": "x"}, None, id="a limit, in any order"
        ),
        pytest.param(
            {"run_at": "2030-01-01T00:00:00Z", "delay": "1s", "overlap": "skip", "lease": "x"},
            ["/overlap", "/delay", "/lease"],
            id="what does not go together",
        ),
        pytest.param(
            {"cron": "never", "timezone": "Mars/Base", "end_at": "1999-01-01T00:00:00Z", "key": 1, "timeout": "x"},
            None,
            id="a schedule",
        ),
        pytest.param(
            {"cron": "0 9 * * *", "idempotency_key": "k", "unique": True, "deadline": "x", "jitter": "9h"},
            ["/unique", "/idempotency_key", "/deadline", "/jitter"],
            id="a recurring job",
        ),
        pytest.param(
            {"handler": "a", "retry": {"max_attempts": -1, "base": "x"}, "limit": {"key": "k", "count": "x", "per": "1s"}},
            ["/retry/max_attempts", "/retry/base", "/limit/count"],
            id="the rest of an object",
        ),
        pytest.param(
            {"handler": {"type": "http", "url": "ftp://x"}, "cron": "* * * *", "timeout": -1},
            ["/handler/url", "/cron", "/timeout"],
            id="a recurring job with a wrong URL",
        ),
        pytest.param(
            {"cron": "0 9 * * *", "every": "1h", "timezone": "Mars/X"}, ["/cron", "/timezone"], id="two rules and a zone"
        ),
    ],
)
async def test_a_submission_names_all_of_its_faults(api: Api, job: dict[str, Any], expected: list[str] | None) -> None:
    """A1, F2. And no others."""
    document = problem(await api.http.post("/v1/jobs", json={"handler": "a", **job}), 422, "invalid")
    found = pointers(document)
    if expected is not None:
        assert sorted(found) == sorted(expected), document
    assert len(found) == len(set(found)) >= 2
    assert {pointer.split("/")[1] for pointer in found} <= job.keys()
    assert all(pointer in document["detail"] for pointer in found[:5])
    assert await api.count() == 0
    batch = problem(await api.http.post("/v1/jobs/batch", json=[{"handler": "a"}, {"handler": "a", **job}]), 422, "invalid")
    assert pointers(batch) == [f"/1{pointer}" for pointer in found]
    partial = await api.http.post("/v1/jobs/batch?partial=true", json=[{"handler": "a", **job}])
    assert pointers(partial.json()["items"][0]["problem"]) == found


async def test_a_missing_handler_is_one_fault_among_others(api: Api) -> None:
    document = problem(await api.http.post("/v1/jobs", json={"delay": "soon", "colour": 1}), 422, "invalid")
    assert pointers(document) == ["/colour", "/handler", "/delay"]


async def test_the_list_of_faults_is_limited_to_a_hundred(api: Api) -> None:
    document = problem(await api.http.post("/v1/jobs", json={f"x{n}": 1 for n in range(100)}), 422, "invalid")
    assert len(document["errors"]) == 20
    assert "and 15 more" in document["detail"]


async def test_an_edit_names_all_of_its_faults(api: Api) -> None:
    """A10, F2: of a one-time job and of a recurring one."""
    once = (await api.submit(delay="1h"))["id"]
    again = (await api.submit(every="1h"))["id"]
    for job_id in (once, again):
        wrong = {"timeout": "x", "queue": "a\x00", "grace": -1}
        document = problem(await api.http.patch(f"/v1/jobs/{job_id}", json=wrong), 422, "invalid")
        assert sorted(pointers(document)) == ["/grace", "/queue", "/timeout"]
    both = {"run_at": "2030-01-01T00:00:00Z", "delay": "x", "tenant": "b", "colour": 1, "lease": "x"}
    document = problem(await api.http.patch(f"/v1/jobs/{once}", json=both, headers=MERGE), 422, "invalid")
    assert sorted(pointers(document)) == ["/colour", "/delay", "/lease", "/tenant"]
    wrong_rule = {"cron": "never", "timezone": "Mars/Base", "timeout": "x"}
    document = problem(await api.http.patch(f"/v1/jobs/{again}", json=wrong_rule), 422, "invalid")
    assert sorted(pointers(document)) == ["/cron", "/timeout", "/timezone"]
    preview = problem(await api.http.patch(f"/v1/jobs/{again}?preview=true", json=wrong_rule), 422, "invalid")
    assert sorted(pointers(preview)) == ["/cron", "/timeout", "/timezone"]


async def test_an_immutable_field_is_rejected_with_the_reason(api: Api) -> None:
    job_id = (await api.submit(delay="1h"))["id"]
    for field, why in (("tenant", "shares"), ("idempotency_key", "submission"), ("unique", "submission")):
        document = problem(await api.http.patch(f"/v1/jobs/{job_id}", json={field: "x"}), 422, "invalid", f"/{field}")
        assert document["errors"][0]["detail"].startswith("cannot be changed: ")
        assert why in document["detail"]


async def test_a_preview_names_all_of_its_faults(api: Api) -> None:
    wrong = {"cron": "never", "timezone": "Mars/Base", "count": 0, "colour": 1}
    document = problem(await api.http.post("/v1/schedules/preview", json=wrong), 422, "invalid")
    assert sorted(pointers(document)) == ["/colour", "/count", "/cron", "/timezone"]
    both = {"job_id": "01890a5d-ac96-774b-bcce-b302099a8057", "cron": "0 9 * * *", "name": "x"}
    assert pointers(problem(await api.http.post("/v1/schedules/preview", json=both), 422, "invalid")) == ["/cron", "/name"]


@pytest.mark.parametrize(
    ("path", "settings", "expected"),
    [
        (
            "tenants/a",
            {"weight": 0, "submit_rate": -1, "submit_burst": 3, "jitter": "9h"},
            ["/weight", "/submit_rate", "/jitter"],
        ),
        ("queues/a", {"release_rate": -1, "release_burst": 3, "ageing": "x", "retry": {"base": "x"}}, None),
        ("limits/a", {"running": 0, "count": 0, "per": "9d", "colour": 1}, ["/colour", "/running", "/count", "/per"]),
    ],
)
async def test_settings_name_all_of_their_faults(
    api: Api, path: str, settings: dict[str, Any], expected: list[str] | None
) -> None:
    found = pointers(problem(await api.http.put(f"/v1/{path}", json=settings), 422, "invalid"))
    assert sorted(found) == sorted(expected or ["/release_rate", "/ageing", "/retry/base"])


async def test_a_query_names_all_of_its_faults(api: Api) -> None:
    """F2."""
    document = problem(await api.http.get("/v1/jobs?limit=0&status=foo&bar=1&bar=2"), 422, "invalid")
    assert sorted(pointers(document)) == ["?bar", "?bar", "?limit", "?status"]


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"max_lost": 0}, "must be 1 or more"),
        ({"max_lost": 1001}, "must be at most 1000"),
        ({"retry": {"max_attempts": 0}}, "must be 1 or more"),
        ({"tags": "billing"}, "must be a list, not a text"),
        ({"max_lost": "x"}, "must be a whole number, not a text"),
        ({"handler": ""}, "must not be empty"),
    ],
)
async def test_a_fault_of_a_type_is_told_in_plain_words(api: Api, job: dict[str, Any], words: str) -> None:
    """F2."""
    (fault,) = problem(await api.http.post("/v1/jobs", json={"handler": "a", **job}), 422, "invalid")["errors"]
    assert words in fault["detail"]


async def test_the_faults_of_a_query_are_bounded(api: Api) -> None:
    """F2, F4: each is found by reading the rest again."""
    unknown = "&".join(f"x{n}=1" for n in range(40))
    for query in (unknown, "&".join(["limit=1"] * 40)):
        assert len(pointers(problem(await api.http.get(f"/v1/jobs?{query}"), 422, "invalid"))) == 20
