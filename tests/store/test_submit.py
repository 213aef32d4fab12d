"""Submission: what is stored of a document, idempotency keys, uniqueness by content, batches."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import asyncpg
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sexton.domain.job import PAYLOAD_BYTES_LIMIT, Policy, Unique, submission
from sexton.domain.outcome import Snoozed, Succeeded
from sexton.domain.partition import ALL, Scan
from sexton.domain.retry import Retry
from sexton.errors import KeyBusy, KeyReused
from sexton.store.fleet import workers
from sexton.store.postgres.driver_errors import translate, translated_errors
from sexton.store.work import jobs, runs
from tests.store.support import (
    BROKEN,
    NOW,
    after,
    blocked_task,
    claim,
    enlist,
    finish,
    plain,
    run_row,
    snapshot,
    status,
    submit,
    submit_many,
)

if TYPE_CHECKING:
    from uuid import UUID

    from tests.store.support import Conn


async def test_a_job_due_now_is_ready_at_once(connection: Conn) -> None:
    """A1: now, by leaving the time out."""
    job_id = await submit(connection, payload={"n": 1}, submitted_by="ada")
    row = await run_row(connection, job_id)
    assert row is not None
    assert (row["state"], row["due_at"], row["fire_at"], row["origin"]) == ("ready", NOW, NOW, "now")
    shown = await jobs.show(connection, job_id)
    assert (shown.status, shown.submitted_by, shown.submitted_at, plain(shown.payload_json)) == (
        "pending",
        "ada",
        NOW,
        {"n": 1},
    )


@pytest.mark.parametrize("when", [{"delay": "1h"}, {"run_at": after(hours=1)}, {"delay": timedelta(hours=1)}])
async def test_a_job_due_later_waits(connection: Conn, when: dict[str, Any]) -> None:
    """A1: by delay or by instant."""
    job_id = await submit(connection, **when)
    row = await run_row(connection, job_id)
    assert row is not None
    assert (row["state"], row["due_at"], row["fire_at"]) == ("waiting", after(hours=1), after(hours=1))
    assert (await jobs.show(connection, job_id)).next_fire_at == after(hours=1)


@pytest.mark.parametrize("at", [after(hours=-2), after(hours=1)], ids=["past", "future"])
async def test_the_submitted_instant_is_shown_while_the_job_lives_and_after_its_end(connection: Conn, at: datetime) -> None:
    """A1, A8: `next_fire_at` is the time of the retry after a failed attempt, and null after the end."""
    ((answer, new),) = await jobs.submit_and_show(connection, [submission("a", {}, run_at=at)], now=NOW)
    assert new is not None
    assert (new.run_at, new.next_fire_at) == (at, max(at, NOW))
    worker_id = await enlist(connection)
    await runs.promote(connection, Scan(ALL, 10), now=after(hours=1))
    (claimed,) = await claim(connection, worker_id, now=after(hours=1))
    assert (await jobs.show(connection, answer.id)).run_at == at
    await finish(connection, claimed.lease, Snoozed(60.0, "later"), now=after(hours=1))
    shown = await jobs.show(connection, answer.id)
    assert (shown.run_at, shown.next_fire_at) == (at, after(hours=1, minutes=1))
    await runs.promote(connection, Scan(ALL, 10), now=after(hours=2))
    (claimed,) = await claim(connection, worker_id, now=after(hours=2))
    await finish(connection, claimed.lease, Succeeded(), now=after(hours=2))
    shown = await jobs.show(connection, answer.id)
    assert (shown.status, shown.run_at, shown.next_fire_at) == ("completed", at, None)


async def test_an_instant_of_the_past_is_due_now_and_keeps_its_nominal_time(connection: Conn) -> None:
    """A1: a late submission neither overtakes others nor loses its nominal time."""
    row = await run_row(connection, await submit(connection, run_at=after(hours=-1)))
    assert row is not None
    assert (row["state"], row["due_at"], row["fire_at"]) == ("ready", NOW, after(hours=-1))


async def test_defaults_are_as_documented(connection: Conn) -> None:
    """A1: queue, lane, tenant, timeout and delivery without other values."""
    row = await run_row(connection, await submit(connection))
    assert row is not None
    found = (row["queue"], row["lane"], row["tenant"], row["timeout_s"], row["at_most_once"], row["lease_s"])
    assert found == ("default", 2, "default", 30.0, False, None)
    assert (row["start_by"], row["deadline_at"], row["token"], row["attempt"]) == (None, None, 0, 0)


async def test_every_option_is_stored(connection: Conn) -> None:
    """A1, C3, C5, C6, C8, C11: as submitted."""
    retry = Retry.linear(base="5s", max_attempts=9)
    job_id = await submit(
        connection,
        queue="mail",
        priority="critical",
        tenant="acme",
        name="n",
        timeout="2m",
        deadline="1h",
        start_within="10m",
        retry=retry,
        delivery="at_most_once",
        lease="20s",
        progress_within="1m",
        max_lost=7,
        grace="3s",
        tags=["x", "y"],
        submitted_by="ada",
        trace="00-aa-bb-01",
    )
    row = await run_row(connection, job_id)
    assert row is not None
    assert (row["queue"], row["lane"], row["tenant"], row["timeout_s"], row["at_most_once"]) == ("mail", 0, "acme", 120.0, True)
    assert (row["lease_s"], row["start_by"], row["deadline_at"]) == (20.0, after(minutes=10), after(hours=1))
    job = await connection.fetchrow("SELECT * FROM sexton.jobs WHERE id = $1", job_id)
    assert job is not None
    assert (job["name"], job["tags"], job["submitted_by"], job["trace"]) == ("n", ["x", "y"], "ada", "00-aa-bb-01")
    kept = msgspec.json.decode(job["policy"], type=Policy)
    assert kept == Policy(retry, 3600.0, 600.0, 20.0, 60.0, 7, 3.0)


async def test_a_timeout_of_zero_means_no_limit(connection: Conn) -> None:
    """C3: jobs may take hours."""
    worker_id = await enlist(connection)
    await submit(connection, timeout=0)
    (claimed,) = await claim(connection, worker_id)
    assert claimed.timeout_s is None
    assert await runs.overrunning(connection, limit=10, now=after(days=300)) == []


async def test_the_submitter_is_the_database_role_by_default(connection: Conn) -> None:
    """A1: it is stored."""
    shown = await jobs.show(connection, await submit(connection))
    assert shown.submitted_by == await connection.fetchval("SELECT session_user::text")


async def test_jobs_of_one_batch_are_returned_and_claimed_in_their_order(connection: Conn) -> None:
    """A11: the order is kept, also beyond the ids of one millisecond."""
    worker_id = await enlist(connection)
    ids = await submit_many(connection, [submission("a", {"i": i}) for i in range(3000)])
    assert ids == sorted(ids)
    claimed = await claim(connection, worker_id, limit=3000)
    assert [one.lease.job_id for one in claimed] == ids
    assert [plain(one.payload_json)["i"] for one in claimed] == list(range(3000))


async def test_an_empty_batch_returns_nothing(connection: Conn) -> None:
    """A11."""
    assert await jobs.submit(connection, [], now=NOW) == []


async def test_a_batch_is_all_or_nothing(connection: Conn) -> None:
    """A11, F2: one bad document changes nothing."""
    before = await snapshot(connection)
    good = submission("a", {}, key="k", unique=True)
    with pytest.raises(asyncpg.PostgresError):
        await jobs.submit(connection, [good, msgspec.structs.replace(good, lane=9)], now=NOW)
    assert await snapshot(connection) == before


@pytest.mark.made_up_rows
async def test_task_options_become_the_defaults_of_its_jobs(connection: Conn) -> None:
    """A12: a job in plain SQL gets the decorator's options; the submitter's options override them."""
    options = {
        "queue": "mail",
        "lane": 1,
        "timeout_s": 5.0,
        "at_most_once": True,
        "policy": {"max_lost": 9, "deadline_s": 60.0},
    }
    await workers.register_tasks(connection, {"a": options}, now=NOW)
    row = await run_row(connection, await submit(connection))
    assert row is not None
    assert (row["queue"], row["lane"], row["timeout_s"], row["at_most_once"]) == ("mail", 1, 5.0, True)
    assert row["deadline_at"] == after(minutes=1)

    chosen = await submit(connection, queue="own", priority="low", timeout="7s", delivery="at_least_once", deadline="2m")
    row = await run_row(connection, chosen)
    assert row is not None
    assert (row["queue"], row["lane"], row["timeout_s"], row["at_most_once"]) == ("own", 3, 7.0, False)
    assert row["deadline_at"] == after(minutes=2)
    policy = await connection.fetchval("SELECT policy FROM sexton.jobs WHERE id = $1", chosen)
    assert plain(policy) == {"max_lost": 9, "deadline_s": 120.0}
    assert (await run_row(connection, await submit(connection, task="other")) or {})["queue"] == "default"


async def test_a_task_registered_again_with_other_options_changes_later_jobs_only(connection: Conn) -> None:
    """A12: a deploy changes the defaults."""
    await workers.register_tasks(connection, {"a": {"queue": "one"}}, now=NOW)
    first = await submit(connection)
    await workers.register_tasks(connection, {"a": {"queue": "two"}}, now=NOW)
    second = await submit(connection)
    assert ((await run_row(connection, first)) or {})["queue"] == "one"
    assert ((await run_row(connection, second)) or {})["queue"] == "two"


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kathmandu"])
async def test_the_time_zone_of_the_session_does_not_matter(connection: Conn, zone: str) -> None:
    """B9: instants are instants."""
    await connection.execute(f"SET timezone = '{zone}'")
    worker_id = await enlist(connection)
    elsewhere = datetime(2026, 3, 4, 18, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))  # NOW + 1 h
    row = await run_row(connection, await submit(connection, run_at=elsewhere))
    assert row is not None
    assert row["due_at"] == after(hours=1)
    assert (await runs.promote(connection, Scan(ALL, 9), now=after(minutes=59))).promoted_count == 0
    assert (await runs.promote(connection, Scan(ALL, 9), now=after(hours=1))).promoted_count == 1
    (claimed,) = await claim(connection, worker_id, now=after(hours=1))
    assert await finish(connection, claimed.lease, Succeeded(), now=after(hours=1)) is not None


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
async def test_a_statement_that_misses_a_partition_creates_it(connection: Conn, zone: str) -> None:
    """D5, rule "lock in id order": submission and finish years ahead of the janitor, in sessions with different dates."""
    await connection.execute(f"SET timezone = '{zone}'")
    worker_id = await enlist(connection)
    far = datetime(2031, 12, 31, 23, 30, tzinfo=NOW.tzinfo)
    job_id = await submit(connection, now=far)
    (claimed,) = await claim(connection, worker_id, now=far)
    # Two weeks later, its own week has partitions but the day of its end has none yet.
    assert await finish(connection, claimed.lease, Succeeded(), now=far + timedelta(days=14)) is not None
    assert await status(connection, job_id) == "completed"
    for table in ("jobs", "endings", "executions"):
        assert await connection.fetchval(f"SELECT count(*) FROM sexton.{table}") == 1


async def test_a_batch_that_crosses_the_end_of_a_week_finds_its_partitions(connection: Conn) -> None:
    """D5, rule "lock in id order": ids of one batch are a microsecond apart, so its last ones may belong to the next week."""
    worker_id = await enlist(connection)
    brink = datetime(2031, 6, 29, 23, 59, 59, 999_998, tzinfo=NOW.tzinfo)  # the last microseconds of a Sunday
    await connection.execute("SELECT sexton.make_partitions($1, $1)", brink)
    ids = await submit_many(connection, [submission("a", {}) for _ in range(5)], now=brink)
    claimed = await claim(connection, worker_id, now=brink)
    assert [one.lease.job_id for one in claimed] == ids
    for one in claimed:
        assert await finish(connection, one.lease, Succeeded(), now=brink) is not None


async def test_two_submitters_may_miss_the_same_partition(connection: Conn, rival: Conn) -> None:
    """D5, rule "lock in id order": the second waits for the first and finds it created."""
    far = datetime(2032, 5, 5, tzinfo=NOW.tzinfo)
    async with connection.transaction():
        await submit(connection, now=far)
        second = await blocked_task(connection, rival, submit(rival, now=far))
    await second
    assert await connection.fetchval("SELECT count(*) FROM sexton.jobs") == 2


# Payloads.

_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(-1e15, 1e15)
    | st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)


async def submit_payload(connection: Conn, payload: Any) -> UUID:
    (answer,) = await jobs.submit(connection, [submission("a", payload)], now=NOW)
    return answer.id


@pytest.mark.parametrize(
    "payload",
    [
        None,
        [],
        {},
        0,
        -0.5,
        "",
        "\\u0000",
        2**63,
        -(2**70),
        1e16,
        5e-324,
        {"a": None},
        {"": {"": []}},
        "💣 ﷽",
        [[[[[]]]]],
        True,
    ],
    ids=repr,
)
async def test_a_payload_is_returned_unchanged(connection: Conn, payload: Any) -> None:
    """A1: any JSON value, null included."""
    shown = await jobs.show(connection, await submit_payload(connection, payload))
    assert plain(shown.payload_json) == payload


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(payload=_JSON)
async def test_any_payload_can_be_stored_in_postgresql(connection: Conn, payload: Any) -> None:
    """A1: PostgreSQL stores what `submission` accepts."""
    document = submission("a", payload)
    assert plain(await connection.fetchval("SELECT $1::jsonb", bytes(document.payload).decode())) == payload


@pytest.mark.parametrize(
    "payload", ["x" * (PAYLOAD_BYTES_LIMIT - 2), [1] * (PAYLOAD_BYTES_LIMIT // 2 - 1)], ids=["text", "list"]
)
async def test_the_database_accepts_every_payload_that_the_domain_accepts(connection: Conn, payload: Any) -> None:
    """F4: one limit, not two: 262,144 bytes of JSON as the client writes it."""
    assert await status(connection, await submit_payload(connection, payload)) == "pending"


async def test_a_payload_beyond_the_limit_is_rejected_even_without_the_domains_check(connection: Conn) -> None:
    """F4: the schema is the backstop."""
    document = msgspec.structs.replace(
        submission("a", {}), payload=msgspec.Raw(msgspec.json.encode([str(i) for i in range(100_000)]))
    )
    with pytest.raises(asyncpg.CheckViolationError, match="256_kib"):
        await jobs.submit(connection, [document], now=NOW)


# Idempotency keys.


async def test_the_same_key_and_body_returns_the_first_job_again(connection: Conn) -> None:
    """A10."""
    document = submission("a", {"n": 1}, key="k", delay="1m")
    first, second = [(await jobs.submit(connection, [document], now=NOW))[0] for _ in range(2)]
    assert (first.created, second.created, first.id) == (True, False, second.id)
    assert await connection.fetchval("SELECT count(*) FROM sexton.runs") == 1


async def test_the_same_job_is_returned_after_it_has_ended(connection: Conn) -> None:
    """A10: pending, running or ended makes no difference."""
    worker_id = await enlist(connection)
    first = await submit(connection, key="k")
    (claimed,) = await claim(connection, worker_id)
    assert await submit(connection, key="k") == first
    await finish(connection, claimed.lease, Succeeded())
    assert await submit(connection, key="k") == first
    assert await claim(connection, worker_id) == []


@pytest.mark.parametrize(
    "other",
    [
        {"payload": {"n": 2}},
        {"task": "b"},
        {"delay": "1s"},
        {"queue": "q"},
        {"priority": "low"},
        {"timeout": "1s"},
        {"tags": ["t"]},
    ],
)
async def test_the_same_key_with_another_body_is_rejected_and_changes_nothing(connection: Conn, other: dict[str, Any]) -> None:
    """A10: 422 at the API."""
    await submit(connection, payload={"n": 1}, key="k")
    before = await snapshot(connection)
    with pytest.raises(KeyReused, match='"k"'), translated_errors():
        await submit(connection, **{"payload": {"n": 1}, **other}, key="k")
    assert await snapshot(connection) == before


async def test_submitter_and_trace_are_not_part_of_the_body(connection: Conn) -> None:
    """A10: a repeated request has a trace of its own."""
    first = await submit(connection, key="k", trace="one", submitted_by="x")
    assert await submit(connection, key="k", trace="two", submitted_by="y", key_ttl="1h") == first


async def test_a_fingerprint_may_replace_the_body(connection: Conn) -> None:
    """A10: the API hashes the caller's request, so that a default that changes between releases does not matter."""
    one, other = (msgspec.structs.replace(submission("a", {"n": n}, key="k"), fingerprint="same") for n in (1, 2))
    first = await submit_many(connection, [one])
    assert await submit_many(connection, [other]) == first
    with pytest.raises(KeyReused), translated_errors():
        await submit_many(connection, [msgspec.structs.replace(one, fingerprint="different")])


async def test_a_key_is_kept_for_its_time(connection: Conn) -> None:
    """A10: seven days by default, to the microsecond; then it can be used again, for any body."""
    first = await submit(connection, key="k")
    almost = after(days=7) - timedelta(microseconds=1)
    assert await submit(connection, key="k", now=almost) == first
    second = await submit(connection, key="k", payload={"other": True}, now=after(days=7))
    assert second != first
    assert await submit(connection, key="k", payload={"other": True}, now=after(days=13)) == second


async def test_a_key_may_be_kept_for_a_shorter_time(connection: Conn) -> None:
    """A10: the caller may set the time."""
    first = await submit(connection, key="k", key_ttl="1h")
    assert await submit(connection, key="k", now=after(minutes=59)) == first
    assert await submit(connection, key="k", now=after(minutes=60)) != first


async def test_an_expired_key_forgets_the_completion_of_its_former_job(connection: Conn) -> None:
    """A10, C6: the new job must not count as completed."""
    worker_id = await enlist(connection)
    await submit(connection, key="k")
    (claimed,) = await claim(connection, worker_id)
    await finish(connection, claimed.lease, Succeeded(), key="k")
    again = await submit(connection, key="k", now=after(days=8))
    (claimed,) = await claim(connection, worker_id, now=after(days=8))
    assert (claimed.lease.job_id, claimed.completed_by) == (again, None)


async def test_tenants_have_keys_of_their_own(connection: Conn) -> None:
    """A10, C9."""
    ids = {await submit(connection, key="k", tenant=tenant) for tenant in (None, "acme", "umbrella")}
    assert len(ids) == 3
    assert await submit(connection, key="k", tenant="acme") in ids


async def test_the_same_key_twice_in_one_batch_is_one_job(connection: Conn) -> None:
    """A10, A11."""
    document = submission("a", {}, key="k")
    other = submission("a", {})
    answers = await jobs.submit(connection, [other, document, other, document], now=NOW)
    assert [answer.created for answer in answers] == [True, True, True, False]
    assert answers[1].id == answers[3].id
    assert await connection.fetchval("SELECT count(*) FROM sexton.runs") == 3


async def test_the_same_key_for_two_bodies_in_one_batch_is_rejected(connection: Conn) -> None:
    """A10, A11: nothing changed."""
    before = await snapshot(connection)
    with pytest.raises(KeyReused), translated_errors():
        await submit_many(connection, [submission("a", {"n": n}, key="k") for n in (1, 2)])
    assert await snapshot(connection) == before


async def test_a_concurrent_duplicate_waits_for_the_first_and_returns_its_job(connection: Conn, rival: Conn) -> None:
    """A10: two requests at once, one job."""
    async with connection.transaction():
        first = await submit(connection, key="k")
        second = await blocked_task(connection, rival, submit(rival, key="k"))
    assert await second == first
    assert await connection.fetchval("SELECT count(*) FROM sexton.jobs") == 1


async def test_a_concurrent_duplicate_creates_the_job_if_the_first_rolls_back(connection: Conn, rival: Conn) -> None:
    """A10, A12: an uncommitted job does not count."""
    transaction = connection.transaction()
    await transaction.start()
    first = await submit(connection, key="k")
    second = await blocked_task(connection, rival, submit(rival, key="k"))
    await transaction.rollback()
    assert await second != first
    assert await connection.fetchval("SELECT count(*) FROM sexton.jobs") == 1


async def test_a_concurrent_other_body_is_rejected_once_the_first_commits(connection: Conn, rival: Conn) -> None:
    """A10."""
    async with connection.transaction():
        await submit(connection, key="k")
        second = await blocked_task(connection, rival, submit(rival, key="k", payload={"n": 2}))
    with pytest.raises(KeyReused), translated_errors():
        await second


async def test_a_duplicate_of_an_uncommitted_submission_gets_a_busy_key(connection: Conn, rival: Conn) -> None:
    """A10: 409 at the API after the lock timeout; nothing changed."""
    await rival.execute("SET lock_timeout = '50ms'")
    async with connection.transaction():
        await submit(connection, key="k")
        with pytest.raises(KeyBusy), translated_errors():
            await submit(rival, key="k")


async def test_a_lock_timeout_of_another_lock_is_not_taken_for_a_busy_key(connection: Conn, rival: Conn) -> None:
    """A10: a finish that waits too long for its run raises Contention, whatever else its statement mentions."""
    worker_id = await enlist(connection)
    await submit(connection, key="k")
    (claimed,) = await claim(connection, worker_id)
    await rival.execute("SET lock_timeout = '50ms'")
    async with connection.transaction():
        await connection.execute("SELECT FROM sexton.runs FOR UPDATE")
        with pytest.raises(asyncpg.LockNotAvailableError) as timeout:
            await finish(rival, claimed.lease, Succeeded(), key="k")
    assert type(translate(timeout.value)).__name__ == "Contention"


async def test_two_batches_with_the_same_keys_in_opposite_order_do_not_deadlock(connection: Conn, rival: Conn) -> None:
    """A10, rule "lock in id order": keys are taken in order."""
    keys = [f"k{n:03}" for n in range(200)]
    documents = [submission("a", {}, key=key) for key in keys]
    one, other = await asyncio.gather(submit_many(connection, documents), submit_many(rival, documents[::-1]))
    assert one == other[::-1]
    assert await connection.fetchval("SELECT count(*) FROM sexton.jobs") == 200


async def test_many_concurrent_duplicates_give_one_job(database_url: str) -> None:
    """A10, F6."""
    connections = [await asyncpg.connect(database_url) for _ in range(8)]
    try:
        ids = await asyncio.gather(*(submit(one, key=f"k{n}") for n in range(5) for one in connections[n : n + 1]))
        again = await asyncio.gather(*(submit(one, key="k0") for one in connections))
        assert set(again) == {ids[0]}
        assert await connections[0].fetchval("SELECT count(*) FROM sexton.jobs") == 5
    finally:
        for one in connections:
            await one.close()


# Uniqueness by content.


async def test_the_key_of_a_job_that_was_replaced_by_an_equal_one_leads_to_that(connection: Conn) -> None:
    """A10: the job it was taken for was never created, in one call or twice in one batch."""
    first = await submit(connection, payload={"n": 1}, unique=True, delay="1h")
    again = submission("a", {"n": 1}, unique=True, delay="1h", key="k")
    for _ in range(2):
        assert await jobs.submit(connection, [again], now=NOW) == [(first, False)]
    twice = submission("a", {"n": 1}, unique=True, delay="1h", key="q")
    answers = await jobs.submit(connection, [twice, twice, submission("z", {})], now=NOW)
    assert [(one.id == first, one.created) for one in answers] == [(True, False), (True, False), (False, True)]


async def test_equal_jobs_are_one_while_the_first_is_pending(connection: Conn) -> None:
    """A10: keep."""
    first = await submit(connection, payload={"n": 1}, unique=True, delay="1h")
    (answer,) = await jobs.submit(connection, [submission("a", {"n": 1}, unique=True)], now=NOW)
    assert (answer.id, answer.created) == (first, False)
    assert await submit(connection, payload={"n": 2}, unique=True) != first
    assert await submit(connection, task="b", payload={"n": 1}, unique=True) != first
    assert await submit(connection, payload={"n": 1}, unique=True, tenant="acme") != first
    assert await submit(connection, payload={"n": 1}) != first


async def test_an_equal_job_that_runs_or_has_ended_does_not_count(connection: Conn) -> None:
    """A10: only pending ones replace the new one"""
    worker_id = await enlist(connection)
    first = await submit(connection, unique=True)
    (claimed,) = await claim(connection, worker_id)
    second = await submit(connection, unique=True)
    assert second != first
    await finish(connection, claimed.lease, Succeeded())
    assert await submit(connection, unique=True) == second
    (claimed,) = await claim(connection, worker_id)
    await finish(connection, claimed.lease, Succeeded())
    assert await submit(connection, unique=True) not in (first, second)


async def test_an_equal_job_counts_for_its_period_even_when_it_has_ended(connection: Conn) -> None:
    """A10: over a period."""
    worker_id = await enlist(connection)
    unique = Unique.of(period="1h")
    first = await submit(connection, unique=unique)
    (claimed,) = await claim(connection, worker_id)
    await finish(connection, claimed.lease, Succeeded())
    assert await submit(connection, unique=unique, now=after(minutes=59)) == first
    assert await submit(connection, unique=unique, now=after(minutes=60)) != first


async def test_parts_and_paths_choose_what_must_be_equal(connection: Conn) -> None:
    """A10: by handler, payload, name or chosen paths."""
    by_user = Unique.of("task", "payload.user.id")
    first = await submit(connection, payload={"user": {"id": 7}, "at": 1}, unique=by_user)
    assert await submit(connection, payload={"user": {"id": 7}, "at": 2}, unique=by_user) == first
    assert await submit(connection, payload={"user": {"id": 8}, "at": 1}, unique=by_user) != first
    assert await submit(connection, payload={"user": {"id": "7"}}, unique=by_user) != first
    by_name = Unique.of("name")
    named = await submit(connection, name="n", unique=by_name)
    assert await submit(connection, task="other", payload=[1], name="n", unique=by_name) == named


async def test_a_replacement_ends_the_pending_one(connection: Conn) -> None:
    """A10: replace; the replaced one is cancelled, with its history."""
    unique = Unique.of(on_conflict="replace")
    first = await submit(connection, unique=unique, delay="1h")
    second = await submit(connection, unique=unique, delay="2h")
    assert second != first
    assert (await status(connection, first), await status(connection, second)) == ("cancelled", "pending")
    (execution,) = await jobs.executions(connection, first)
    assert (execution.status, execution.reason, execution.started_at) == ("cancelled", f"replaced by {second}", None)
    assert await connection.fetchval("SELECT count(*) FROM sexton.runs") == 1


async def test_a_replacement_leaves_a_running_one_alone(connection: Conn) -> None:
    """A10: a started job continues; the new one follows."""
    worker_id = await enlist(connection)
    unique = Unique.of(on_conflict="replace")
    first = await submit(connection, unique=unique)
    (claimed,) = await claim(connection, worker_id)
    second = await submit(connection, unique=unique)
    assert (await status(connection, first), await status(connection, second)) == ("running", "pending")
    assert await finish(connection, claimed.lease, Succeeded()) is not None
    assert await submit(connection, unique=Unique()) == second


@pytest.mark.parametrize("replace", ["keep", "replace"])
async def test_equal_jobs_of_one_batch_are_one(connection: Conn, replace: Any) -> None:
    """A10, A11."""
    document = submission("a", {}, unique=Unique.of(on_conflict=replace))
    answers = await jobs.submit(connection, [document] * 3, now=NOW)
    assert len({answer.id for answer in answers}) == 1
    assert [answer.created for answer in answers] == [True, False, False]
    assert await connection.fetchval("SELECT count(*) FROM sexton.runs") == 1


async def test_equal_jobs_of_one_batch_are_the_existing_one(connection: Conn) -> None:
    """A10, A11."""
    held = await submit(connection, unique=True)
    ids = await submit_many(connection, [submission("a", {}, unique=True)] * 2)
    assert ids == [held, held]


async def test_a_concurrent_equal_job_waits_and_then_is_the_same(connection: Conn, rival: Conn) -> None:
    """A10, rule "lock, then decide"."""
    async with connection.transaction():
        first = await submit(connection, unique=True)
        second = await blocked_task(connection, rival, submit(rival, unique=True))
    assert await second == first


async def test_a_concurrent_equal_job_is_created_if_the_first_rolls_back(connection: Conn, rival: Conn) -> None:
    """A10, rule "lock, then decide"."""
    transaction = connection.transaction()
    await transaction.start()
    await submit(connection, unique=True)
    second = await blocked_task(connection, rival, submit(rival, unique=True))
    await transaction.rollback()
    assert await status(connection, await second) == "pending"


async def test_a_replacement_does_not_end_a_job_that_is_being_claimed(connection: Conn, rival: Conn) -> None:
    """A10, B1: the claim wins; the replacement is a second job."""
    worker_id = await enlist(connection)
    unique = Unique.of(on_conflict="replace")
    first = await submit(connection, unique=unique)
    async with connection.transaction():
        (claimed,) = await claim(connection, worker_id)
        task = await blocked_task(connection, rival, submit(rival, unique=unique))
    second = await task
    assert (await status(connection, first), await status(connection, second)) == ("running", "pending")
    assert await finish(connection, claimed.lease, Succeeded()) is not None


async def test_two_concurrent_replacements_leave_one_job(connection: Conn, rival: Conn) -> None:
    """A10, rule "lock, then decide"."""
    unique = Unique.of(on_conflict="replace")
    await submit(connection, unique=unique, delay="1h")
    async with connection.transaction():
        await submit(connection, unique=unique, delay="1h")
        task = await blocked_task(connection, rival, submit(rival, unique=unique, delay="1h"))
    last = await task
    rows = await connection.fetch("SELECT job_id FROM sexton.runs")
    assert [row["job_id"] for row in rows] == [last]


async def test_a_key_that_finds_its_job_neither_takes_nor_replaces_a_unique_one(connection: Conn) -> None:
    """A10: the first job again, and no side effect."""
    unique = Unique.of(on_conflict="replace")
    first = await submit(connection, key="k", unique=unique, delay="1h")
    before = await snapshot(connection)
    assert await submit(connection, key="k", unique=unique, delay="1h") == first
    after_it = await snapshot(connection)
    assert after_it == before


async def test_a_retry_wait_counts_as_pending(connection: Conn) -> None:
    """A10: a job between two attempts will run again."""
    worker_id = await enlist(connection)
    first = await submit(connection, unique=True)
    (claimed,) = await claim(connection, worker_id)
    await finish(connection, claimed.lease, msgspec.structs.replace(BROKEN, permanent=False))
    assert await submit(connection, unique=True) == first
