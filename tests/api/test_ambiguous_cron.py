"""Cron lines that other programs read differently, over HTTP: the answer and the preview show both readings."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from sexton.api.resources.batch import FAULTS_LIMIT, _doubts
from sexton.clock import ManualClock
from sexton.domain.schedule import schedule
from sexton.domain.schedule.document import ScheduleDocument
from sexton.store.database import Postgres
from tests.api.support import Api, opened, problem

NOW = datetime(2026, 11, 16, tzinfo=UTC)
LINE = "0 0 12 * * 2"
OURS = "At 12:00 on Tuesday, UTC (next 2026-11-17 12:00:00Z"
THEIRS = "At 00:00:02 on the 12th of the month, UTC (next 2026-12-12 00:00:02Z"


def _shows_both(warnings: list[str]) -> bool:
    doubts = [one for one in warnings if "no live worker" not in one]
    return len(doubts) == 1 and OURS in doubts[0] and THEIRS in doubts[0]


def _is_silent(warnings: list[str]) -> bool:
    return not [one for one in warnings if "no live worker" not in one]


async def test_the_answer_shows_both_readings(database: Postgres) -> None:
    """A2, A7, A14: of a submission, an edit, a preview of an edit, a preview, and a batch."""
    async with opened(database, clock=ManualClock(NOW)) as api:
        job = await api.submit(cron=LINE)
        assert _shows_both(job["warnings"])
        path = f"/v1/jobs/{job['id']}"
        assert _shows_both((await api.http.post("/v1/schedules/preview", json={"job_id": job["id"]})).json()["warnings"])
        assert _shows_both((await api.http.post("/v1/schedules/preview", json={"cron": LINE})).json()["warnings"])
        assert _is_silent((await api.http.patch(path, json={"tags": ["x"]})).json()["warnings"])
        assert _shows_both((await api.http.patch(f"{path}?preview=true", json={"cron": LINE})).json()["warnings"])
        assert _shows_both((await api.http.patch(path, json={"cron": LINE})).json()["warnings"])
        batch = [{"handler": "a"}, {"handler": "a", "cron": LINE}, {"handler": "a", "cron": "0 9 * * *"}]
        items = (await api.http.post("/v1/jobs/batch", json=batch)).json()["items"]
        assert _shows_both(items[1]["warnings"])
        assert "warnings" not in items[0]
        assert "warnings" not in items[2]


async def test_the_dialect_turns_it_off_and_is_stored(database: Postgres) -> None:
    """A2."""
    async with opened(database, clock=ManualClock(NOW)) as api:
        job = await api.submit(cron=LINE, dialect="cron")
        assert _is_silent(job["warnings"])
        assert job["schedule"]["dialect"] == "cron"
        assert _is_silent((await api.http.post("/v1/schedules/preview", json={"job_id": job["id"]})).json()["warnings"])
        strict = await api.submit(cron="0 0 12 * * MON", dialect="strict")
        assert strict["schedule"]["dialect"] == "cron"


async def test_a_line_that_was_submitted_in_sql_shows_both_readings_later(database: Postgres) -> None:
    """A2, A12: SQL answers only an id, and a planner is the first to read the line."""
    async with opened(database, clock=ManualClock(NOW)) as api:
        async with database.connection() as connection:
            ((job_id,),) = await connection.fetch("SELECT sexton.submit_schedule('a', cron => $1)", LINE)
            ((named,),) = await connection.fetch("SELECT sexton.submit_schedule('b', cron => $1, dialect => 'cron')", LINE)
        assert _shows_both((await api.http.get(f"/v1/jobs/{job_id}")).json()["warnings"])
        assert _is_silent((await api.http.get(f"/v1/jobs/{named}")).json()["warnings"])
        doubts = [link for link in (await api.http.get(f"/v1/jobs/{job_id}/why")).json()["chain"] if link["check"] == "dialect"]
        assert _shows_both([link["detail"] for link in doubts])
        assert doubts[0]["ok"]
        chain = (await api.http.get(f"/v1/jobs/{named}/why")).json()["chain"]
        assert "dialect" not in [link["check"] for link in chain]


@pytest.mark.parametrize(
    "job",
    [
        {"cron": LINE, "dialect": "strict"},
        {"cron": "0 0 12 ? * 2"},
        {"cron": "cron(0 10 * * ? *)"},
        {"cron": "rate(5 minutes)"},
    ],
    ids=str,
)
async def test_a_line_of_another_program_is_rejected(api: Api, job: dict[str, str]) -> None:
    """A2, F2."""
    problem(await api.http.post("/v1/jobs", json={"handler": "a", **job}), 422, "invalid", "/cron")
    problem(await api.http.post("/v1/schedules/preview", json=job), 422, "invalid", "/cron")


@pytest.mark.parametrize(
    ("field", "text", "kept"),
    [("cron", "0 0 12 ? * 2", "0 0 12 ? * 2"), ("rrule", "FREQ=DAILY;BYHOUR=9", "FREQ=DAILY;BYHOUR=9;BYMINUTE=34;BYSECOND=56")],
)
async def test_an_edit_of_the_limits_keeps_the_rule_of_an_older_version(api: Api, field: str, text: str, kept: str) -> None:
    """A7: neither the line nor the rule is validated again, and neither changes its meaning; the answer shows it."""
    anchor = {"anchor_at": "2026-01-05T12:34:56Z"} if field == "rrule" else {}
    job = await api.submit(**{field: "@daily" if field == "cron" else "FREQ=DAILY", **anchor})
    path = f"/v1/jobs/{job['id']}"
    async with api.database.connection() as connection:
        stored = (
            "UPDATE sexton.jobs_recurring SET schedule = jsonb_set(schedule, ARRAY[$2::text], to_jsonb($3::text)) WHERE id = $1"
        )
        await connection.fetch(stored, job["id"], field, text)
    problem(await api.http.patch(path, json={"cron": "0 0 12 ? * 3"}), 422, "invalid", "/cron")
    edited = (await api.http.patch(path, json={"timezone": "Europe/Paris"})).json()
    assert (edited["status"], edited["schedule"][field]) == ("pending", kept)
    problem(await api.http.patch(path, json={"cron": "0 0 12 ? * 3"}), 422, "invalid", "/cron")
    assert edited["next_fire_at"] is not None


@pytest.mark.parametrize("change", [{"max_fires": 5}, {"timezone": "Europe/Paris"}, {"exclude": ["2026-12-25"]}])
async def test_an_edit_of_the_limits_names_no_dialect(database: Postgres, change: dict[str, object]) -> None:
    """A7: otherwise the next line that is pasted would be another schedule without a word, and a warning would be gone."""
    async with opened(database, clock=ManualClock(NOW)) as api:
        path = f"/v1/jobs/{(await api.submit(cron='0 9 * * 1'))['id']}"
        edited = await api.http.patch(path, json=change)
        assert edited.status_code == 200
        assert "dialect" not in edited.json()["schedule"]
        problem(await api.http.patch(path, json={"cron": "0 0 12 ? * 2"}), 422, "invalid", "/cron")
        assert not _is_silent((await api.http.patch(path, json={"cron": LINE})).json()["warnings"])
        edited = await api.http.patch(path, json={"max_fires": 6})
        assert not _is_silent(edited.json()["warnings"])
        assert not _is_silent((await api.http.get(path)).json()["warnings"])


async def test_a_dialect_that_an_older_line_needs_is_not_that_of_the_next(database: Postgres) -> None:
    """A7: one that a person named for the older line is theirs to name again; a line that is sent again keeps it."""
    async with opened(database, clock=ManualClock(NOW)) as api:
        job = await api.submit(cron="0 0 12 ? * 2", dialect="cron")
        path = f"/v1/jobs/{job['id']}"
        problem(await api.http.patch(path, json={"cron": "0 0 12 ? * 3"}), 422, "invalid", "/cron")
        same = (await api.http.patch(path, json={"cron": "0 0 12 ? * 2", "max_fires": 5})).json()
        assert same["schedule"]["dialect"] == "cron"
        edited = (await api.http.patch(path, json={"cron": LINE})).json()
        assert "dialect" not in edited["schedule"]
        assert _shows_both(edited["warnings"])
        named = (await api.http.patch(path, json={"cron": "0 0 12 ? * 3", "dialect": "quartz"})).json()
        assert named["schedule"]["dialect"] == "quartz"


async def test_a_line_keeps_its_reading_when_its_dialect_is_removed(api: Api) -> None:
    """A7: Monday in Quartz would be Tuesday."""
    job = await api.submit(cron="0 0 12 ? * 2", dialect="quartz")
    problem(await api.http.patch(f"/v1/jobs/{job['id']}", json={"dialect": None}), 422, "invalid", "/cron")


async def test_the_warnings_of_a_batch_leave_other_callers_their_turn() -> None:
    """F1: of 10,000 schedules, and of the first 100 that have a warning."""
    plain = ScheduleDocument(task="a", schedule=schedule(now=NOW, cron="0 9 * * MON-FRI"))
    ambiguous = ScheduleDocument(task="a", schedule=schedule(now=NOW, cron=LINE))
    turns = 0

    async def other_caller() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        other = group.create_task(other_caller())
        assert await _doubts([plain] * 2_000, NOW) == {}
        assert turns >= 9
        found = await _doubts([plain, *[ambiguous] * (FAULTS_LIMIT + 50)], NOW)
        assert list(found) == list(range(1, FAULTS_LIMIT + 1))
        assert turns >= FAULTS_LIMIT
        other.cancel()
