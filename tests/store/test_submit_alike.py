"""Jobs that differ only in their payload: `sexton.submit_jobs` takes them as one document with many payloads. What it stores
and answers is what it would for a document each."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import asyncpg
import msgspec
import pytest

from sexton.domain.fault import Invalid
from sexton.domain.job import Submission, submission
from sexton.domain.retry import Retry
from sexton.domain.targets import HttpTarget
from sexton.errors import LimitExceeded
from sexton.store.fleet import workers
from sexton.store.postgres.driver_errors import translated_errors
from sexton.store.work import jobs
from tests.store.support import NOW, after, plain, snapshot, submit_many

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from tests.store.support import Conn

PAYLOADS = [{"user": 1}, {"user": 2, "deep": {"a": [1, None]}}, {"user": 1}, {"user": 7, "": {}}, {"user": "é"}]
OWN = {"id", "job_id", "partition"}  # of each job


def _are_alike(submissions: Sequence[Submission]) -> bool:
    return isinstance(msgspec.json.decode(jobs.encode_submissions(submissions)), dict)


async def _stored(connection: Conn, ids: Sequence[UUID]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    found = []
    for job_id in ids:
        job = await connection.fetchrow("SELECT * FROM sexton.jobs WHERE id = $1", job_id)
        run = await connection.fetchrow("SELECT * FROM sexton.runs WHERE id = $1", job_id)
        assert job is not None
        assert run is not None
        found.append(tuple({name: value for name, value in row.items() if name not in OWN} for row in (job, run)))
    return found  # type: ignore[return-value]


async def _one_by_one(connection: Conn, submissions: Sequence[Submission]) -> list[UUID]:
    """A document each."""
    rows = await connection.fetch(jobs.SUBMIT, msgspec.json.encode(submissions).decode(), True, NOW)
    return [row["id"] for row in rows]


@pytest.mark.made_up_rows
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"queue": "mail", "priority": "low", "name": "n", "submitted_by": "ada", "trace": "00-1-2-01"},
        {"delay": "2s", "timeout": "7s", "delivery": "at_most_once"},
        {"run_at": after(hours=-1), "retry": Retry(max_attempts=2), "deadline": "1h", "start_within": "2h", "lease": "60s"},
        {"tenant": "acme", "limit": {"key": "user:{payload.user}", "running": 100}},
        {"task": HttpTarget("https://billing.example/send")},
        {"task": "known"},
        {"task": "limited"},
    ],
    ids=str,
)
async def test_what_is_stored_is_what_a_document_each_would_store(connection: Conn, options: dict[str, Any]) -> None:
    """A11, A12: every option of their own, of their task, of their queue and of their tenant."""
    limit = {"key": "task:{payload.user}", "running": 100}
    known = {"queue": "mail", "lane": 1, "timeout_s": 5.0, "policy": {"max_lost": 9, "deadline_s": 60.0}}
    await workers.register_tasks(connection, {"known": known, "limited": {"limit": limit}}, now=NOW)
    await connection.execute(
        "INSERT INTO sexton.queues (name, timeout_s, policy, updated_at) VALUES ('mail', 9, '{\"max_lost\": 4}', now())"
    )
    await connection.execute("INSERT INTO sexton.tenants (name, waiting_max, updated_at) VALUES ('acme', 100, now())")
    task = options.get("task", "a")
    rest = {name: value for name, value in options.items() if name != "task"}
    submissions = [submission(task, payload, **rest) for payload in PAYLOADS]
    assert _are_alike(submissions)
    expected = await _stored(connection, await _one_by_one(connection, submissions))
    limits = await connection.fetch("SELECT * FROM sexton.limits ORDER BY 1")
    slots = await connection.fetch("SELECT key, n FROM sexton.slots ORDER BY 1, 2")
    assert await _stored(connection, await submit_many(connection, submissions)) == expected
    assert [plain(job["payload"]) for job, _ in expected] == PAYLOADS
    assert await connection.fetch("SELECT * FROM sexton.limits ORDER BY 1") == limits
    assert await connection.fetch("SELECT key, n FROM sexton.slots ORDER BY 1, 2") == slots


async def test_they_are_answered_in_the_order_of_their_payloads(connection: Conn) -> None:
    """A11."""
    answers = await jobs.submit(connection, [submission("a", {"n": n}) for n in range(10_000)], now=NOW)
    ids = [answer.id for answer in answers]
    assert all(answer.created for answer in answers)
    assert ids == sorted(ids)
    rows = await connection.fetch("SELECT payload FROM sexton.jobs ORDER BY id")
    assert [plain(row["payload"])["n"] for row in rows] == list(range(10_000))


async def test_each_of_them_counts_for_the_limits_of_its_tenant(connection: Conn) -> None:
    """C7."""
    await connection.execute("INSERT INTO sexton.tenants (name, waiting_max, updated_at) VALUES ('acme', 5, now())")
    before = await snapshot(connection)
    with pytest.raises(LimitExceeded, match='"acme" has 0 runs waiting, and may have 5'), translated_errors():
        await submit_many(connection, [submission("a", n, tenant="acme") for n in range(6)])
    assert await snapshot(connection) == before
    await submit_many(connection, [submission("a", n, tenant="acme") for n in range(5)])
    assert await connection.fetchval("SELECT waiting_count FROM sexton.tenants WHERE name = 'acme'") == 5
    assert await connection.fetchval("SELECT count(*) FROM sexton.runs WHERE counted") == 5


async def test_all_of_them_or_none(connection: Conn) -> None:
    """A11, F2."""
    before = await snapshot(connection)
    good = [submission("a", {"n": n}) for n in range(3)]
    too_large = msgspec.Raw(msgspec.json.encode("x" * 400_000))
    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await submit_many(connection, [*good, msgspec.structs.replace(good[0], payload=too_large)])
    assert refused.value.constraint_name == "payload_is_at_most_256_kib"
    assert await snapshot(connection) == before


async def test_a_new_job_of_many_is_shown_with_its_own_payload(connection: Conn) -> None:
    answers = await jobs.submit_and_show(connection, [submission("a", payload) for payload in PAYLOADS], now=NOW)
    views = [view for _, view in answers if view is not None]
    assert [plain(view.payload_json) for view in views] == PAYLOADS
    assert [view.id for view in views] == [one.id for one, _ in answers]


async def test_jobs_of_a_divided_group_go_by_themselves(connection: Conn) -> None:
    """Rule "a waiting caller leaves the group"."""
    tried = await jobs.submit_each(connection, [submission("a", payload) for payload in PAYLOADS], now=NOW)
    assert [one.created for one in tried] == [True] * len(PAYLOADS)


@pytest.mark.parametrize("own", ["key", "unique", "tags"])
async def test_what_each_job_has_of_its_own_cannot_be_shared(connection: Conn, own: str) -> None:
    """Two jobs with one key are one job, which one document for both could not say."""
    given: dict[str, Any] = {"key": "k", "unique": True, "tags": ["t"]}
    one = submission("a", {}, **{own: given[own]})
    assert not _are_alike([one, one])
    document = msgspec.json.encode({"job": one, "payloads": [1, 2]}).decode()
    before = await snapshot(connection)
    with pytest.raises(asyncpg.InvalidParameterValueError, match="need a document each"):
        await connection.fetch(jobs.SUBMIT, document, True, NOW)
    assert await snapshot(connection) == before


async def test_without_payloads_no_job_is_submitted(connection: Conn) -> None:
    document = msgspec.json.encode({"job": {"task": "a"}, "payloads": []}).decode()
    assert await connection.fetch(jobs.SUBMIT, document, True, NOW) == []
    assert await connection.fetchval("SELECT count(*) FROM sexton.jobs") == 0


DIFFERENT = {
    "task": "b",
    "queue": "q",
    "lane": 1,
    "tenant": "t",
    "name": "n",
    "run_at": NOW,
    "delay_s": 1.0,
    "timeout_s": 1.0,
    "at_most_once": True,
    "policy": submission("a", {}, max_lost=1).policy,
    "tags": ("t",),
    "submitted_by": "s",
    "trace": "t",
    "key": "k",
    "key_ttl_s": 1.0,
    "fingerprint": "f",
    "unique": submission("a", {}, unique=True).unique,
    "limit": submission("a", {}, limit="l").limit,
}


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("field", [field for field in Submission.__struct_fields__ if field != "payload"])
def test_jobs_that_differ_in_anything_else_have_a_document_each(field: str, place: int) -> None:
    alike = [submission("a", {"n": n}) for n in range(3)]
    assert _are_alike(alike)
    alike[place] = msgspec.structs.replace(alike[place], **{field: DIFFERENT[field]})
    assert not _are_alike(alike)
    assert msgspec.json.decode(jobs.encode_submissions(alike), type=list[Submission]) == alike


def test_one_job_is_a_document() -> None:
    assert not _are_alike([submission("a", {})])
    assert jobs.encode_submissions([]) == "[]"


async def test_both_passes_of_a_repeated_hour_are_two_instants(connection: Conn) -> None:
    """A11: two datetimes of one zone that differ only in `fold` are equal in Python."""
    berlin = ZoneInfo("Europe/Berlin")
    twice = [datetime(2027, 10, 31, 2, 30, fold=fold, tzinfo=berlin) for fold in (0, 1)]
    ids = await submit_many(connection, [submission("a", {}, run_at=run_at) for run_at in twice])
    due = await connection.fetch("SELECT due_at FROM sexton.runs WHERE id = ANY ($1) ORDER BY id", ids)
    assert [row["due_at"] for row in due] == [run_at.astimezone(UTC) for run_at in twice]
    assert due[0]["due_at"] < due[1]["due_at"]


@pytest.mark.parametrize("written", [b'{"n": 1}, {"n": 99}', b"[1", b"2]", b"", b"1 2"])
def test_a_payload_that_is_not_one_json_value_is_rejected(written: bytes) -> None:
    """A11, F2: in a list of payloads it would move those of the others. The value itself, and a part of it."""
    for payload in (msgspec.Raw(written), {"part": msgspec.Raw(written + b'}, {"n": 2')}):
        with pytest.raises(Invalid, match="payload: cannot be written as JSON"):
            submission("a", payload)
