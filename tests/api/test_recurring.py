"""Recurring jobs over HTTP: submitted, updated by name, edited, paused, fired, previewed, explained."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import msgspec
import pytest

from sexton import wire
from sexton.api.resources import batch
from sexton.clock import ManualClock
from sexton.domain.outcome import Succeeded
from sexton.domain.partition import ALL, Scan
from sexton.operations.caller import SCHEDULER
from sexton.operations.recurring import forecast, plan, recurring_jobs
from sexton.operations.recurring.admit import admit
from sexton.store.database import Postgres
from sexton.store.work import schedules
from tests import transitions
from tests.api.support import Api, opened, problem
from tests.store import support

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)  # a Monday
JOB = {"handler": "a", "cron": "*/15 * * * *"}
UNKNOWN_ID = "f199a1b2-0000-7000-8000-000000000000"


def after(**span: float) -> datetime:
    return NOON + timedelta(**span)


class Timed(Api):
    """A clock that moves only when the test moves it."""

    clock: ManualClock

    async def at(self, **span: float) -> None:
        """Moves to this time after noon."""
        self.clock.move(after(**span) - self.clock.database_now())


@pytest.fixture
async def api(database: Postgres, connection: asyncpg.Connection[Any]) -> AsyncIterator[Timed]:
    clock = ManualClock(NOON)
    async with opened(database, clock=clock) as api:
        timed = Timed(api.app, api.http, api.database, api.events)
        timed.clock = clock
        yield timed
    assert await transitions.violations(connection) == {}


def decoded(response: httpx.Response) -> wire.Job:
    assert response.status_code in (200, 201), response.text
    return msgspec.json.decode(response.content, type=wire.Job)


async def test_a_schedule_is_stored_as_submitted(api: Timed) -> None:
    """A2, A3, B3: with its next fire, in words, and every policy."""
    body = {
        "handler": "report",
        "name": "morning",
        "tenant": "acme",
        "payload": {"n": 1},
        "cron": "0 9 * * MON-FRI",
        "timezone": "America/New_York",
        "dst": {"gap": "skip"},
        "jitter": "30s",
        "start_at": "2026-03-03T00:00:00Z",
        "end_at": "2027-01-01T00:00:00+01:00",
        "max_fires": 100,
        "exclude": ["2026-12-25", {"from": "2026-07-01T00:00:00Z", "to": "2026-08-01T00:00:00Z"}],
        "overlap": {"policy": "queue", "max_queued": 3},
        "catch_up": {"policy": "all", "window": "2h", "max_catch_up": 5},
        "on_resume": "latest",
        "pause_after": 4,
        "timeout": "5m",
        "tags": ["x"],
    }
    response = await api.http.post("/v1/jobs", json=body)
    assert (response.status_code, response.json()["created"]) == (201, True)
    job = decoded(await api.http.get(response.headers["location"]))
    assert job.id.int >> 127 == 1
    assert job.schedule == wire.Schedule(
        cron="0 9 * * MON-FRI",
        timezone="America/New_York",
        dst=wire.DstRule(gap="skip"),
        jitter=wire.JitterRule(max=30.0),
        start_at=datetime(2026, 3, 3, tzinfo=UTC),
        end_at=datetime(2026, 12, 31, 23, tzinfo=UTC),
        max_fires=100,
        exclude=("2026-12-25", wire.Stretch(from_at=datetime(2026, 7, 1, tzinfo=UTC), to_at=datetime(2026, 8, 1, tzinfo=UTC))),
    )
    assert (job.schedule_words or "").startswith("At 09:00 on Monday to Friday, New York time")
    assert job.overlap == wire.OverlapRule(policy="queue", max_queued=3)
    assert job.catch_up == wire.CatchUpRule(policy="all", window=7200.0, max_catch_up=5)
    assert (job.on_resume, job.pause_after, job.timeout_s, list(job.tags)) == ("latest", 4, 300.0, ["x"])
    assert job.next_fire_at is not None
    nominal = datetime(2026, 3, 3, 14, tzinfo=UTC)
    assert timedelta(0) <= job.next_fire_at - nominal <= timedelta(seconds=30)
    assert (job.status, job.submitted_by) == ("pending", "api")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"cron": "61 * * * *"}, "/cron"),
    ({"cron": "0 0 30 2 *"}, "/cron"),
    ({"rrule": "FREQ=SOMETIMES"}, "/rrule"),
    ({"every": "10ms"}, "/every"),
    ({"every": "soon"}, "/every"),
    ({"cron": "0 9 * * *", "timezone": "America/New_Yrok"}, "/timezone"),
    ({"cron": "0 9 * * *", "every": "1h"}, "/cron"),
    ({"cron": "0 9 * * *", "run_at": "2030-01-01T00:00:00Z"}, "/run_at"),
    ({"cron": "0 9 * * *", "delay": "1h"}, "/delay"),
    ({"cron": "0 9 * * *", "unique": True}, "/unique"),
    ({"cron": "0 9 * * *", "idempotency_key": "k"}, "/idempotency_key"),
    ({"cron": "0 9 * * *", "dst": {"gap": "sideways"}}, "/dst/gap"),
    ({"cron": "0 9 * * *", "jitter": "40d"}, "/jitter"),
    ({"cron": "0 9 * * *", "exclude": ["never"]}, "/exclude/0"),
    ({"cron": "0 9 * * *", "end_at": "2020-01-01T00:00:00Z"}, "/end_at"),
    ({"cron": "0 9 * * *", "max_fires": 0}, "/max_fires"),
    ({"cron": "0 9 * * *", "overlap": "maybe"}, "/overlap"),
    ({"cron": "0 9 * * *", "overlap": {"policy": "queue", "max_queued": 0}}, "/overlap/max_queued"),
    ({"cron": "0 9 * * *", "catch_up": {"window": "long"}}, "/catch_up/window"),
    ({"cron": "0 9 * * *", "dialect": "quartz"}, "/cron"),
    ({"timezone": "UTC"}, "/timezone"),
    ({"delay": "1h", "overlap": "skip"}, "/overlap"),
]


async def test_a_rule_without_fires_is_rejected_by_its_field_and_nothing_is_written(api: Timed) -> None:
    """A2, A3: at submission, with a pointer."""
    for fields, at in REFUSED:
        problem(await api.http.post("/v1/jobs", json={"handler": "a", **fields}), 422, "invalid", at)
    assert await api.count() == 0


async def test_an_idempotency_key_is_rejected_with_advice(api: Timed) -> None:
    refused = await api.http.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "k"})
    assert "on_name=update" in problem(refused, 422, "invalid", "/idempotency_key")["detail"]


async def test_an_existing_name_is_rejected_or_updated(api: Timed) -> None:
    """A11: 409, or with on_name=update the next version; an identical submission changes nothing."""
    named = {**JOB, "name": "report"}
    first = decoded(await api.http.post("/v1/jobs", json=named))
    problem(await api.http.post("/v1/jobs", json=named), 409, "already_exists", "/name")
    same = await api.http.post("/v1/jobs?on_name=update", json=named)
    assert (same.status_code, same.json()["created"], decoded(same).version) == (200, False, 1)
    changed = decoded(await api.http.post("/v1/jobs?on_name=update", json={**named, "cron": "0 13 * * *"}))
    assert (changed.id, changed.version, changed.next_fire_at) == (first.id, 2, after(hours=1))
    problem(await api.http.post("/v1/jobs?on_name=keep", json=named), 422, "invalid", "?on_name")


async def test_an_interval_that_is_submitted_again_keeps_its_anchor(api: Timed) -> None:
    """A11: it does not drift with every deploy."""
    named = {"handler": "a", "every": "1h", "name": "tick"}
    first = decoded(await api.http.post("/v1/jobs?on_name=update", json=named))
    await api.at(minutes=20)
    again = decoded(await api.http.post("/v1/jobs?on_name=update", json=named))
    assert (again.version, again.next_fire_at) == (1, first.next_fire_at) == (1, after(hours=1))


async def test_a_batch_mixes_kinds_and_writes_all_or_nothing(api: Timed) -> None:
    """A11: one call, answers in order."""
    jobs = [
        {"handler": "a"},
        {**JOB, "name": "x"},
        {"handler": "b", "delay": "1h"},
        {"handler": "b", "every": "1h", "name": "y"},
    ]
    wrong = await api.http.post("/v1/jobs/batch", json=[*jobs, {"handler": "a", "cron": "nonsense"}])
    problem(wrong, 422, "invalid", "/4/cron")
    assert await api.count() == 0
    written = (await api.http.post("/v1/jobs/batch", json=jobs)).json()
    kinds = [UUID(item["id"]).int >> 127 for item in written["items"]]
    assert (kinds, written["created_count"]) == ([0, 1, 0, 1], 4)
    problem(await api.http.post("/v1/jobs/batch", json=jobs), 409, "already_exists")
    assert await api.count() == 4
    again = (await api.http.post("/v1/jobs/batch?on_name=update", json=[jobs[3], jobs[1]])).json()
    assert [item["id"] for item in again["items"]] == [written["items"][3]["id"], written["items"][1]["id"]]
    assert (again["created_count"], again["existing_count"]) == (0, 2)


async def test_a_batch_of_schedules_that_takes_too_long_to_validate_is_rejected(
    api: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A11: ten thousand hostile expressions do not delay other callers for minutes."""
    monkeypatch.setattr(batch, "JUDGING_S", -1.0)
    problem(await api.http.post("/v1/jobs/batch?partial=true", json=[JOB, JOB]), 413, "too_large")
    assert await api.count() == 0


async def test_a_large_batch_is_planned_by_the_planners(api: Timed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurring_jobs, "PLAN_LIMIT", 1)
    first = (await api.http.post("/v1/jobs/batch", json=[JOB, JOB])).json()["items"][0]["id"]
    assert decoded(await api.http.get(f"/v1/jobs/{first}")).next_fire_at is None
    await _fire(api, minutes=0)
    assert decoded(await api.http.get(f"/v1/jobs/{first}")).next_fire_at == after(minutes=15)


async def test_a_partial_batch_names_the_schedule_that_exists(api: Timed) -> None:
    await api.submit(cron="@daily", name="x")
    response = await api.http.post(
        "/v1/jobs/batch?partial=true", json=[{**JOB, "name": "x"}, {**JOB, "name": "y"}, {"handler": "a"}]
    )
    items = response.json()["items"]
    assert response.status_code == 200
    assert items[0]["problem"]["code"] == "already_exists"
    assert [item.get("created") for item in items] == [None, True, True]


async def test_an_edit_is_merged_and_needs_the_current_version(api: Timed) -> None:
    """A7: in force from the next fire; omitted fields stay, null resets to the default."""
    job = await api.submit(
        cron="0 9 * * *",
        timezone="Europe/Berlin",
        jitter="0s",
        overlap="queue",
        retry={"max_attempts": 9},
        deadline="1h",
        timeout=0,
        tags=["x"],
        payload={"n": 1},
        priority="high",
    )
    path = f"/v1/jobs/{job['id']}"
    problem(await api.http.patch(path, json={"cron": "@daily"}, headers={"If-Match": '"7"'}), 412, "version_mismatch")
    edited = decoded(await api.http.patch(path, json={"cron": "0 15 * * *", "deadline": None}, headers={"If-Match": '"1"'}))
    assert edited.schedule == wire.Schedule(cron="0 15 * * *", timezone="Europe/Berlin")
    assert (edited.version, edited.next_fire_at) == (2, after(hours=2))
    assert (edited.overlap, edited.deadline_s, edited.timeout_s) == (
        wire.OverlapRule(policy="queue", max_queued=10),
        None,
        None,
    )
    assert (edited.retry, list(edited.tags), edited.priority) == (wire.RetryPolicy(max_attempts=9), ["x"], "high")
    assert json.loads(bytes(edited.payload)) == {"n": 1}
    edited = decoded(await api.http.patch(path, json={"payload": {"n": 2}, "overlap": None, "priority": None, "tags": None}))
    assert (json.loads(bytes(edited.payload)), edited.overlap, edited.priority) == (
        {"n": 2},
        wire.OverlapRule(policy="skip"),
        "normal",
    )
    assert (edited.next_fire_at, list(edited.tags)) == (after(hours=2), [])
    edited = decoded(await api.http.patch(path, json={"every": "90m"}))
    assert (edited.schedule and edited.schedule.cron, edited.next_fire_at) == (None, after(minutes=90))


async def test_two_edits_at_once_both_count(api: Timed) -> None:
    """A7: each is merged into the result of the other, in either order."""
    path = f"/v1/jobs/{(await api.submit(cron='@daily'))['id']}"
    changes: list[dict[str, Any]] = [{"payload": {"n": 2}}, {"overlap": "queue"}, {"cron": "@hourly"}, {"tags": ["x"]}]
    await asyncio.gather(*(api.http.patch(path, json=change) for change in changes))
    job = decoded(await api.http.get(path))
    assert (job.version, json.loads(bytes(job.payload)), list(job.tags)) == (5, {"n": 2}, ["x"])
    assert (job.overlap and job.overlap.policy, job.schedule and job.schedule.cron) == ("queue", "@hourly")


async def test_an_invalid_edit_is_rejected_by_its_field(api: Timed) -> None:
    """A7."""
    path = f"/v1/jobs/{(await api.submit(cron='@daily'))['id']}"
    once = f"/v1/jobs/{(await api.submit(delay='1h'))['id']}"
    problem(await api.http.patch(path, json={"delay": "1h"}), 422, "invalid", "/delay")
    problem(await api.http.patch(path, json={"cron": None}), 422, "invalid", "/cron")
    problem(await api.http.patch(path, json={"timezone": "Mars/Olympus"}), 422, "invalid", "/timezone")
    problem(await api.http.patch(path, json={}), 422, "invalid", "")
    problem(await api.http.patch(once, json={"cron": "@daily"}), 422, "invalid", "/cron")
    problem(await api.http.patch(f"{once}?preview=true", json={"delay": "2h"}), 422, "invalid", "?preview")
    problem(await api.http.patch(f"/v1/jobs/{UNKNOWN_ID}", json={"cron": "@daily"}), 404, "not_found")
    await api.submit(cron="@daily", name="taken")
    problem(await api.http.patch(path, json={"name": "taken"}), 409, "already_exists", "/name")


@pytest.mark.parametrize("after", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z"])
async def test_a_preview_of_no_time_at_all_is_not_a_server_error(api: Timed, after: str) -> None:
    """F2."""
    asked = {"cron": "0 * * * *", "jitter": "30s", "after": after}
    assert (await api.http.post("/v1/schedules/preview", json=asked)).status_code in (200, 422)


async def test_a_previewed_edit_shows_added_and_removed_fires_and_changes_nothing(api: Timed) -> None:
    """A7: fires added and removed in the next 30 days."""
    job = await api.submit(cron="0 9,18 * * *")
    path = f"/v1/jobs/{job['id']}"
    response = await api.http.patch(f"{path}?preview=true", json={"cron": "0 9,20 * * *"})
    told = msgspec.json.decode(response.content, type=wire.EditPreview)
    assert told.until == after(days=30)
    assert (len(told.added), len(told.removed)) == (30, 30)
    assert (told.added[0], told.removed[0]) == (after(hours=8), after(hours=6))
    assert decoded(await api.http.get(path)).version == 1
    dense = (await api.http.patch(f"{path}?preview=true", json={"every": "1s"})).json()
    assert len(dense["added"]) <= forecast.EDIT_LIMIT
    assert datetime.fromisoformat(dense["until"]) == after(seconds=1000)


async def test_a_pause_holds_it_until_it_is_resumed_and_the_ledger_records_it(api: Timed) -> None:
    """A6: note, caller, since when, until when; every fire that did not run has its row."""
    path = f"/v1/jobs/{(await api.submit(cron='*/15 * * * *'))['id']}"
    change = {"status": "paused", "note": "maintenance", "resume_at": "2026-03-02T18:00:00Z"}
    paused = decoded(await api.http.patch(f"{path}/status", json=change))
    assert (paused.status, paused.note, paused.paused_by, paused.next_fire_at) == ("paused", "maintenance", "api", None)
    assert (paused.paused_at, paused.resume_at) == (NOON, after(hours=6))
    assert [job["id"] for job in (await api.http.get("/v1/jobs?status=paused")).json()["items"]] == [str(paused.id)]
    await api.at(hours=1)
    resumed = decoded(await api.http.patch(f"{path}/status", json={"status": "active"}))
    assert (resumed.status, resumed.next_fire_at) == ("pending", after(hours=1, minutes=15))
    (row,) = (await api.http.get(f"{path}/executions")).json()["items"]
    assert (row["status"], row["reason"], row["result"]["count"]) == ("paused", "4 fires: its job was paused", 4)


async def test_a_previewed_resume_shows_its_fires_and_changes_nothing(api: Timed) -> None:
    """B6: the fires if it were resumed now, by its `on_resume`."""
    path = f"/v1/jobs/{(await api.submit(cron='*/15 * * * *', on_resume='latest'))['id']}"
    change, preview = {"status": "active"}, f"{path}/status?preview=true"
    problem(await api.http.patch(preview, json=change), 409, "conflict")
    await api.http.patch(f"{path}/status", json={"status": "paused"})
    problem(await api.http.patch(preview, json={"status": "paused"}), 422, "invalid", "?preview")
    await api.at(hours=1, minutes=1)
    told = msgspec.json.decode((await api.http.patch(preview, json=change)).content, type=wire.ResumePreview)
    assert list(told.fires) == [after(hours=1, minutes=1), after(hours=1, minutes=15)]  # the latest of the pause is due now
    assert [(gap.count, gap.last) for gap in told.missed] == [(3, after(minutes=45))]
    assert decoded(await api.http.get(path)).status == "paused"


async def test_a_resume_time_is_only_for_paused_recurring_jobs(api: Timed) -> None:
    path = f"/v1/jobs/{(await api.submit(cron='@daily'))['id']}/status"
    past, later = "2026-03-02T11:00:00Z", "2027-01-01T00:00:00Z"
    problem(await api.http.patch(path, json={"status": "paused", "resume_at": past}), 422, "invalid", "/resume_at")
    problem(await api.http.patch(path, json={"status": "active", "resume_at": later}), 422, "invalid", "/resume_at")
    once = f"/v1/jobs/{(await api.submit(delay='1h'))['id']}/status"
    problem(await api.http.patch(once, json={"status": "paused", "resume_at": later}), 422, "invalid", "/resume_at")


async def test_run_fires_a_schedule_out_of_turn_and_makes_a_one_time_job_due(
    api: Timed, connection: asyncpg.Connection[Any]
) -> None:
    """A6: its schedule does not change."""
    job = await api.submit(cron="@daily")
    fired = decoded(await api.http.post(f"/v1/jobs/{job['id']}/run"))
    assert fired.next_fire_at == NOON
    rows = await connection.fetch("SELECT origin, fire_at FROM sexton.runs ORDER BY fire_at")
    assert [tuple(row) for row in rows] == [("now", NOON), ("schedule", after(hours=12))]
    once = await api.submit(delay="1h")
    edited = decoded(await api.http.post(f"/v1/jobs/{once['id']}/run"))
    assert (edited.next_fire_at, edited.version) == (NOON, 1)
    assert decoded(await api.http.post(f"/v1/jobs/{once['id']}/run")).status == "pending"  # a repetition does no harm
    await api.http.patch(f"/v1/jobs/{once['id']}/status", json={"status": "paused"})
    problem(await api.http.post(f"/v1/jobs/{once['id']}/run"), 409, "conflict")
    await api.http.delete(f"/v1/jobs/{job['id']}")
    problem(await api.http.post(f"/v1/jobs/{job['id']}/run"), 409, "conflict")
    problem(await api.http.post(f"/v1/jobs/{UNKNOWN_ID}/run"), 404, "not_found")


async def test_a_deleted_schedule_has_ended(api: Timed) -> None:
    path = f"/v1/jobs/{(await api.submit(cron='@daily', name='x'))['id']}"
    assert (await api.http.delete(path)).json()["job"]["status"] == "cancelled"
    problem(await api.http.delete(path), 409, "conflict")
    problem(await api.http.patch(path, json={"cron": "@hourly"}), 409, "conflict")
    await api.submit(cron="@daily", name="x")  # its name is free again


async def test_jobs_are_listed_by_kind_and_status_without_duplicates(api: Timed) -> None:
    """E1: pages contain both kinds. All were submitted at one instant, so any order is right."""
    once = [(await api.submit(delay="1h"))["id"] for _ in range(3)]
    again = [(await api.submit(every="20s"))["id"] for _ in range(3)]  # three runs of each are planned

    async def ids(query: str) -> list[str]:
        found, cursor = [], ""
        while True:
            page = (await api.http.get(f"/v1/jobs?{query}{cursor}")).json()
            found += [job["id"] for job in page["items"]]
            if page["next_cursor"] is None:
                return found
            cursor = f"&cursor={page['next_cursor']}"

    for limit in (1, 2, 3, 4, 6, 50):
        for query in ("", "&status=pending&handler=a", "&status=pending"):
            assert sorted(await ids(f"limit={limit}{query}")) == sorted([*again, *once])
    assert sorted(await ids("kind=recurring&limit=2")) == sorted(again)
    assert sorted(await ids("kind=once&limit=2")) == sorted(once)
    window = "submitted_from=2026-03-02T11:00:00Z&submitted_until=2026-03-02T13:00:00Z"
    assert sorted(await ids(window)) == sorted([*again, *once])
    assert await ids("submitted_until=2026-03-02T11:00:00Z") == []
    await api.http.delete(f"/v1/jobs/{again[0]}")
    assert await ids("status=cancelled") == [again[0]]


async def test_a_preview_shows_the_fires_around_a_clock_change(api: Timed) -> None:
    """A2, A3: in words and instants, strictly after."""
    asked = {"cron": "30 2 * * *", "timezone": "America/New_York", "after": "2026-03-07T07:30:00Z", "count": 3}
    told = (await api.http.post("/v1/schedules/preview", json=asked)).json()
    assert told["description"].startswith("At 02:30")
    assert told["fires"] == ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z", "2026-03-10T06:30:00Z"]
    assert await api.count() == 0


async def test_a_preview_of_a_job_is_what_will_run(api: Timed, connection: asyncpg.Connection[Any]) -> None:
    """A3: jitter and the rest of max_fires included."""
    job = await api.submit(every="20s", jitter={"max": "5s", "both": True}, name="x", max_fires=5)
    told = (await api.http.post("/v1/schedules/preview", json={"job_id": job["id"]})).json()
    assert len(told["fires"]) == 5
    planned = [row["due_at"] for row in await connection.fetch("SELECT due_at FROM sexton.runs ORDER BY due_at")]
    assert [datetime.fromisoformat(at) for at in told["fires"][: len(planned)]] == planned
    before = {"every": "20s", "jitter": {"max": "5s", "both": True}, "name": "x", "anchor_at": NOON.isoformat(), "count": 5}
    assert (await api.http.post("/v1/schedules/preview", json=before)).json()["fires"] == told["fires"]
    last = {"job_id": job["id"], "after": told["fires"][3]}
    assert (await api.http.post("/v1/schedules/preview", json=last)).json()["fires"] == told["fires"][4:]
    await api.http.delete(f"/v1/jobs/{job['id']}")
    assert (await api.http.post("/v1/schedules/preview", json={"job_id": job["id"]})).json()["fires"] == []


async def test_a_preview_of_nothing_or_too_much_is_rejected(api: Timed, monkeypatch: pytest.MonkeyPatch) -> None:
    once = (await api.submit(delay="1h"))["id"]
    path = "/v1/schedules/preview"
    problem(await api.http.post(path, json={}), 422, "invalid", "/cron")
    problem(await api.http.post(path, json={"cron": "@daily", "count": 1001}), 422, "invalid", "/count")
    problem(await api.http.post(path, json={"cron": "@daily", "job_id": once}), 422, "invalid", "/cron")
    problem(await api.http.post(path, json={"job_id": once}), 422, "invalid", "/job_id")
    problem(await api.http.post(path, json={"job_id": UNKNOWN_ID}), 404, "not_found")
    problem(await api.http.post(path, json={"cron": "0 0 30 2 *"}), 422, "invalid", "/cron")
    monkeypatch.setattr(forecast, "SEARCH_S", -1.0)
    problem(await api.http.post(path, json={"cron": "@daily"}), 422, "invalid", "/count")


async def test_the_executions_of_a_schedule_show_what_was_skipped_and_by_which_run(
    api: Timed, connection: asyncpg.Connection[Any]
) -> None:
    """B4, B7: the ledger, with reasons."""
    job_id = UUID((await api.submit(cron="*/15 * * * *"))["id"])
    worker_id = await support.enlist(connection, now=after(minutes=15))
    await _fire(api, minutes=15)
    (claimed,) = await support.claim(connection, worker_id, now=after(minutes=15))
    await _fire(api, minutes=30)
    (row,) = (await api.http.get(f"/v1/jobs/{job_id}/executions")).json()["items"]
    assert (row["status"], row["fire_at"]) == ("skipped", "2026-03-02T12:30:00Z")
    assert str(claimed.lease.run_id) in row["reason"]
    told = msgspec.json.decode((await api.http.get(f"/v1/jobs/{job_id}/why")).content, type=wire.Why)
    assert told.answer.startswith("It runs since 2026-03-02 12:15:00Z on w")
    skipped = next(link for link in told.chain if link.check == "last_fire")
    assert (skipped.ok, skipped.evidence["run_in_the_way"]) == (False, str(claimed.lease.run_id))
    await support.finish(connection, claimed.lease, Succeeded(), now=after(minutes=31))
    problem(await api.http.get(f"/v1/jobs/{UNKNOWN_ID}/why"), 404, "not_found")


async def _fire(api: Timed, *, minutes: float) -> None:
    """As the planner and the promoter do at that minute."""
    await api.at(minutes=minutes)
    async with api.database.transaction() as connection:
        seen = await schedules.to_plan(connection, Scan(ALL, 10), now=after(minutes=minutes))
        await plan.write(connection, SCHEDULER, seen, now=after(minutes=minutes))
    await admit(api.database, SCHEDULER, ALL, limit=10, now=after(minutes=minutes))
