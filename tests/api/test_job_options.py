"""Every option of a job over HTTP: the answer shows what was submitted, and after an edit the new value."""

from __future__ import annotations

from typing import Any

import pytest

from sexton.domain.job_options import BY_NAME, OPTIONS, Option
from tests.api.support import Api

# For each option: what is submitted, as it is shown; and the value of the edit.
BEFORE_AND_AFTER: dict[str, tuple[Any, Any, Any, Any]] = {
    "handler": ("b", "b", None, None),
    "payload": ({"n": 1}, {"n": 1}, [2], [2]),
    "run_at": ("2030-01-01T00:00:00Z", "2030-01-01T00:00:00Z", "2031-01-01T00:00:00Z", "2031-01-01T00:00:00Z"),
    "delay": ("1h", ..., "2h", ...),
    "tenant": ("acme", "acme", None, None),
    "queue": ("q", "q", "p", "p"),
    "priority": ("high", "high", "low", "low"),
    "delivery": ("at_most_once", "at_most_once", "at_least_once", "at_least_once"),
    "name": ("n", "n", "m", "m"),
    "tags": (["x"], ["x"], ["y", "z"], ["y", "z"]),
    "retry": ({"max_attempts": 2}, {"max_attempts": 2}, {"base": "1s"}, {"base": 1.0}),
    "timeout": ("1m", 60.0, 0, None),
    "deadline": ("1h", 3600.0, "2h", 7200.0),
    "start_within": ("5m", 300.0, 60, 60.0),
    "lease": ("10s", 10.0, "20s", 20.0),
    "progress_within": ("30s", 30.0, "40s", 40.0),
    "grace": ("2s", 2.0, "3s", 3.0),
    "max_lost": (1, 1, 2, 2),
    "limit": (
        {"key": "a:{payload.n}", "running": 2},
        {"key": "a:{payload.n}", "running": 2},
        {"key": "b", "count": 10, "per": "1s", "burst": 3},
        {"key": "b", "count": 10, "per": 1.0, "burst": 3},
    ),
    "unique": (True, None, None, None),
    "idempotency_key": ("k", "k", None, None),
    "idempotency_ttl": ("1d", None, None, None),
    "cron": ("0 9 * * *", "0 9 * * *", "0 8 * * *", "0 8 * * *"),
    "rrule": ("FREQ=DAILY", "FREQ=DAILY", "FREQ=WEEKLY", "FREQ=WEEKLY"),
    "every": ("1h", 3600.0, "2h", 7200.0),
    "timezone": ("Europe/Berlin", "Europe/Berlin", "Asia/Tokyo", "Asia/Tokyo"),
    "dst": ({"gap": "skip"}, {"gap": "skip"}, {"overlap": "both"}, {"overlap": "both"}),
    "jitter": ("30s", {"max": 30.0}, {"max": "10s", "both": True}, {"max": 10.0, "both": True}),
    "start_at": ("2030-01-01T00:00:00Z", "2030-01-01T00:00:00Z", "2031-01-01T00:00:00Z", "2031-01-01T00:00:00Z"),
    "end_at": ("2040-01-01T00:00:00Z", "2040-01-01T00:00:00Z", "2041-01-01T00:00:00Z", "2041-01-01T00:00:00Z"),
    "max_fires": (5, 5, 6, 6),
    "exclude": (["2030-12-25"], ["2030-12-25"], ["22:00-06:00"], ["22:00-06:00"]),
    "dialect": ("quartz", "quartz", None, ...),
    "anchor_at": ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-02T00:00:00Z"),
    "overlap": ("queue", {"policy": "queue", "max_queued": ...}, "replace", {"policy": "replace"}),
    "catch_up": ("skip", {"policy": "skip"}, "latest", {"policy": "latest"}),
    "on_resume": ("latest", "latest", "all", "all"),
    "pause_after": (3, 3, 4, 4),
}
BESIDE: dict[str, dict[str, Any]] = {
    "dialect": {"cron": "0 0 9 ? * MON"},
    "idempotency_ttl": {"idempotency_key": "k"},
    "limit": {"payload": {"n": 1}},
}


def asked(option: Option) -> dict[str, Any]:
    """A job with this option, and the options that it requires."""
    needs_rule = option.jobs == "recurring" and option.name not in ("cron", "rrule", "every", "dialect")
    rule = {"every": "1h"} if needs_rule and option.name != "dst" else {"cron": "0 9 * * *"} if needs_rule else {}
    later = {} if option.jobs == "recurring" or option.name in ("run_at", "delay") else {"delay": "1h"}
    return {"handler": "a", **rule, **later, **BESIDE.get(option.name, {}), option.name: BEFORE_AND_AFTER[option.name][0]}


def holds(shown: Any, expected: Any) -> bool:
    """The answer may contain more than was submitted."""
    if expected is ...:
        return True
    if isinstance(expected, dict):
        return all(holds(shown.get(name), value) for name, value in expected.items())
    return bool(shown == expected)


def seen(job: dict[str, Any], option: Option) -> Any:
    found: Any = job
    for part in str(option.field).split("."):
        found = found.get(part)
    return found


def test_every_option_is_tested_here() -> None:
    assert BEFORE_AND_AFTER.keys() == BY_NAME.keys()


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
async def test_an_option_is_shown_as_it_was_submitted_and_as_it_was_edited(api: Api, option: Option) -> None:
    """A1, A10."""
    _, shown, change, after = BEFORE_AND_AFTER[option.name]
    submitted = await api.submit(**asked(option))
    address = f"/v1/jobs/{submitted['id']}"
    job = (await api.http.get(address)).json()
    if option.field is not None:
        assert holds(seen(submitted, option), shown), submitted
        assert holds(seen(job, option), shown), job
    if option.fixed is not None or (change is None and after is None):
        return
    response = await api.http.patch(address, json={option.name: change})
    assert response.status_code == 200, response.text
    assert holds(seen(response.json(), option), after), response.text
    job = (await api.http.get(address)).json()
    assert holds(seen(job, option), after), job
    assert job["version"] == 2


@pytest.mark.parametrize("job", [{"delay": "1h"}, {"every": "1h"}], ids=["one-time", "recurring"])
async def test_null_goes_back_to_the_default_and_the_rest_stays(api: Api, job: dict[str, Any]) -> None:
    """A10."""
    policies = {"lease": "9s", "grace": "9s", "max_lost": 9, "delivery": "at_most_once", "limit": {"key": "a", "running": 1}}
    submitted = await api.submit(**job, **policies, deadline="9s")
    address = f"/v1/jobs/{submitted['id']}"
    kept = (await api.http.patch(address, json={"name": "n"})).json()
    fields = ("lease_s", "grace_s", "max_lost", "delivery", "limit", "deadline_s")
    assert {field: kept[field] for field in fields} == {field: submitted[field] for field in fields}
    response = await api.http.patch(address, json=dict.fromkeys(policies))
    assert response.status_code == 200, response.text
    assert {field: response.json()[field] for field in fields} == {
        **dict.fromkeys(fields),
        "delivery": "at_least_once",
        "deadline_s": 9.0,
    }


async def test_a_limit_that_does_not_exist_rejects_an_edit(api: Api) -> None:
    for job in ({"delay": "1h"}, {"every": "1h"}):
        address = f"/v1/jobs/{(await api.submit(**job))['id']}"
        response = await api.http.patch(address, json={"limit": "nobody"})
        assert (response.status_code, response.json()["code"]) == (422, "invalid"), response.text
        assert "there is no limit named" in response.json()["detail"]
        assert (await api.http.get(address)).json()["version"] == 1
