"""What a person may do to a live job: edit, pause, resume, retry. A rejected call changes nothing; the first commit wins."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
import msgspec
import pytest

from sexton.domain.job import Unique
from sexton.domain.job_options import IN_POLICY
from sexton.domain.limit import Limit, limit
from sexton.domain.outcome import Missed, Succeeded
from sexton.domain.partition import ALL, Scan
from sexton.domain.retry import Retry
from sexton.errors import Contention, NotAllowedIn, NotFound, VersionMismatch
from sexton.operations import one_time_jobs, replay
from sexton.operations.caller import Caller
from sexton.operations.cancel import cancel as cancel_job
from sexton.operations.definition_change import Changes
from sexton.operations.versions import AtVersion
from sexton.store.fleet import workers
from sexton.store.views import search
from sexton.store.views.search import JobFilter
from sexton.store.work import dead_letters, jobs, runs
from tests.callers import TESTER
from tests.store.support import (
    BROKEN,
    FLAKY,
    NOW,
    after,
    blocked_task,
    bury,
    claim,
    enlist,
    finish,
    plain,
    run_row,
    snapshot,
    status,
    submit,
)

if TYPE_CHECKING:
    from uuid import UUID

    from tests.store.support import Conn


async def _edit(connection: Conn, job_id: UUID, version: int | None = None, **fields: Any) -> jobs.JobView:
    policy = {key: fields.pop(key) for key in IN_POLICY.values() if key in fields}
    async with connection.transaction():
        changes = Changes(policy=policy, **fields)
        return await one_time_jobs.edit(connection, Caller("ada"), AtVersion(job_id, version), changes, now=NOW)


async def _pause(connection: Conn, job_id: UUID, note: str | None = None) -> jobs.JobView:
    async with connection.transaction():
        return await one_time_jobs.pause(connection, Caller("ada"), job_id, note=note, now=NOW)


async def _resume(connection: Conn, job_id: UUID, **span: float) -> jobs.JobView:
    async with connection.transaction():
        return await one_time_jobs.resume(connection, TESTER, job_id, now=after(**span))


async def _retry(connection: Conn, job_id: UUID, **span: float) -> jobs.JobView:
    async with connection.transaction():
        return await one_time_jobs.retry(connection, TESTER, job_id, now=after(**span))


async def _release(connection: Conn) -> None:
    await connection.fetch("SELECT * FROM sexton.release_parked(NULL, $1)", NOW)


async def _promote(connection: Conn, **span: float) -> int:
    return (await runs.promote(connection, Scan(ALL, 100), now=after(**span))).promoted_count


# Edit.


async def test_an_edit_changes_the_given_fields_and_keeps_the_others_and_the_old_version(connection: Conn) -> None:
    """A10: job and run change together; the old definition stays readable."""
    job_id = await submit(
        connection, payload={"n": 1}, delay="1h", name="old", tags=["red", "blue"], deadline="2h", retry=Retry(max_attempts=2)
    )
    shown = await _edit(
        connection, job_id, payload=msgspec.Raw(b'{"n": 2}'), tags=("blue", "green"), lane=0, start_within_s=60.0
    )
    assert (shown.version, shown.lane, shown.name, plain(shown.payload_json)) == (2, 0, "old", {"n": 2})
    assert shown.tags == ["blue", "green"]
    assert plain(shown.policy_json) == {"retry": {"max_attempts": 2}, "deadline_s": 7200, "start_within_s": 60}
    row = await run_row(connection, job_id)
    assert row is not None
    assert (row["job_version"], row["lane"], row["state"], row["due_at"]) == (2, 0, "waiting", after(hours=1))
    assert (row["start_by"], row["deadline_at"]) == (after(hours=1, minutes=1), after(hours=3))
    for tag, found in (("red", []), ("blue", [job_id]), ("green", [job_id])):
        assert [job.id for job in (await search.find_jobs(connection, JobFilter(tag=tag), limit=5)).rows] == found
    (kept,) = await connection.fetch("SELECT * FROM sexton.job_versions")
    assert (kept["job_id"], kept["version"], kept["lane"], kept["replaced_at"]) == (job_id, 1, 2, NOW)
    assert (kept["replaced_by"], kept["tags"], plain(kept["payload"])) == ("ada", ["red", "blue"], {"n": 1})
    assert plain(kept["policy"]) == {"retry": {"max_attempts": 2}, "deadline_s": 7200}
    assert (await _edit(connection, job_id, name=None)).version == 3


async def test_null_goes_back_to_the_default_of_the_task_then_of_the_product(connection: Conn) -> None:
    """A10."""
    options = {"queue": "mail", "lane": 1, "timeout_s": 5, "policy": {"deadline_s": 60}}
    await workers.register_tasks(connection, {"known": options}, now=NOW)
    nothing = {"queue": None, "lane": None, "timeout_s": None, "retry": None, "deadline_s": None, "name": None, "tags": None}
    given: dict[str, Any] = {"queue": "q", "priority": "low", "timeout": "9s", "deadline": "9s", "name": "n", "tags": ["t"]}
    for task, queue, lane, timeout_s, policy in (
        ("known", "mail", 1, 5.0, {"deadline_s": 60}),
        ("b", "default", 2, 30.0, None),
    ):
        job_id = await submit(connection, task, delay="1h", retry=Retry(max_attempts=9), **given)
        shown = await _edit(connection, job_id, **nothing)
        assert (shown.queue, shown.lane, shown.timeout_s, plain(shown.policy_json)) == (queue, lane, timeout_s, policy)
        assert (shown.name, shown.tags) == (None, None)
        row = await run_row(connection, job_id)
        assert row is not None
        assert (row["queue"], row["lane"], row["timeout_s"]) == (queue, lane, timeout_s)
    assert (await _edit(connection, await submit(connection), timeout_s=0.0, tags=())).timeout_s is None


async def test_every_policy_can_be_edited_and_the_run_follows(connection: Conn) -> None:
    """A10: a claim returns the new version to the worker."""
    job_id = await submit(connection, retry=Retry(max_attempts=2))
    policy: dict[str, Any] = {
        "retry": Retry(max_attempts=7),
        "deadline_s": 60.0,
        "start_within_s": 50.0,
        "lease_s": 40.0,
        "progress_within_s": 30.0,
        "grace_s": 20.0,
        "max_lost": 9,
    }
    await _edit(connection, job_id, at_most_once=True, **policy)
    row = await run_row(connection, job_id)
    assert row is not None
    assert (row["lease_s"], row["at_most_once"], row["deadline_at"]) == (40.0, True, after(seconds=60))
    (claimed,) = await claim(connection, await enlist(connection))
    found = claimed.lease.policy
    assert {key: getattr(found, key) for key in policy} == policy
    assert claimed.lease.at_most_once


async def test_delivery_goes_back_to_the_default_of_the_task_then_of_the_product(connection: Conn) -> None:
    await workers.register_tasks(connection, {"known": {"at_most_once": True}}, now=NOW)
    for task, expected in (("known", True), ("b", False)):
        job_id = await submit(connection, task, delay="1h", delivery="at_least_once" if expected else "at_most_once")
        assert (await _edit(connection, job_id, at_most_once=None)).at_most_once is expected


async def test_a_pending_job_moves_from_one_limit_to_another_and_out_of_it(connection: Conn) -> None:
    """E1: the run joins the line of its new key, and overtakes none in it."""
    worker_id = await enlist(connection)
    holder = await submit(connection, limit=limit("b", running=1))
    await _release(connection)
    assert [one.lease.job_id for one in await claim(connection, worker_id)] == [holder]
    job_id = await submit(connection, limit=limit("a", running=1))
    for change, key, state in (
        (limit("b"), "b", "parked"),
        (None, None, "ready"),
        (limit("c:{payload.n}", running=2), "c:1", "parked"),
    ):
        await _edit(connection, job_id, limit=change, payload=msgspec.Raw(b'{"n": 1}'))
        row = await run_row(connection, job_id)
        assert row is not None
        assert (row["limit_key"], row["state"], row["slot"]) == (key, state, None)
    assert await connection.fetchval("SELECT running FROM sexton.limits WHERE key = 'c:1'") == 2
    await _edit(connection, job_id, limit=limit("b"))
    await _release(connection)
    assert await claim(connection, worker_id) == []
    await _edit(connection, job_id, limit=limit("a"))
    await _release(connection)
    assert [one.lease.job_id for one in await claim(connection, worker_id)] == [job_id]


async def test_a_limit_goes_back_to_that_of_the_task(connection: Conn) -> None:
    await workers.register_tasks(connection, {"known": {"limit": {"key": "of-task", "running": 1}}}, now=NOW)
    job_id = await submit(connection, "known", limit=limit("own", running=1))
    assert plain((await _edit(connection, job_id, limit=None)).policy_json) == {"limit": {"key": "of-task", "running": 1}}
    row = await run_row(connection, job_id)
    assert row is not None
    assert row["limit_key"] == "of-task"


async def test_a_limit_that_does_not_exist_rejects_the_edit(connection: Conn) -> None:
    job_id = await submit(connection)
    before = await snapshot(connection)
    with pytest.raises(asyncpg.InvalidParameterValueError, match='there is no limit named "nobody"'):
        await _edit(connection, job_id, limit=limit("nobody"))
    assert await snapshot(connection) == before


@pytest.mark.parametrize("waits_for_its_rate", [False, True])
async def test_the_first_in_line_that_leaves_it_by_an_edit_releases_the_next(
    connection: Conn, waits_for_its_rate: bool
) -> None:
    """Rule "slots, not counts": it may have the slot of an ordered key before it is claimed, ready or parked."""
    ordered = Limit("line", running=1, ordered=True, count=1, per_s=60.0, burst=1)
    first = await submit(connection, limit=ordered)
    second = await submit(connection, limit=ordered, now=after(seconds=1))
    await _release(connection)
    if waits_for_its_rate:
        await connection.execute("UPDATE sexton.limits SET bucket_at = $1", NOW)
        assert await claim(connection, await enlist(connection)) == []
    row = await run_row(connection, first)
    assert row is not None
    assert (row["slot"], row["state"]) == (1, "parked" if waits_for_its_rate else "ready")
    await _edit(connection, first, limit=None)
    assert await connection.fetchval("SELECT run_id FROM sexton.slots WHERE key = 'line'") is None
    await connection.fetch("SELECT * FROM sexton.release_parked(NULL, $1)", after(minutes=5))
    assert await connection.fetchval("SELECT run_id FROM sexton.slots WHERE key = 'line'") == second


@pytest.mark.parametrize(
    ("submitted", "changes", "state", "fire_at", "due_at"),
    [
        ({"delay": "1h"}, {"delay_s": 60.0}, "waiting", after(minutes=1), after(minutes=1)),
        ({"delay": "1h"}, {"run_at": after(hours=2)}, "waiting", after(hours=2), after(hours=2)),
        ({"delay": "1h"}, {"run_at": after(hours=-2)}, "ready", after(hours=-2), NOW),
        ({"delay": "1h"}, {"run_at": None}, "ready", NOW, NOW),
        ({}, {"delay_s": 5.0}, "waiting", after(seconds=5), after(seconds=5)),
        ({}, {"name": "x"}, "ready", NOW, NOW),
    ],
)
async def test_an_edit_changes_the_due_time(
    connection: Conn, submitted: dict[str, Any], changes: dict[str, Any], state: str, fire_at: object, due_at: object
) -> None:
    """A10: earlier, later, now; the deadline follows."""
    job_id = await submit(connection, deadline="10s", **submitted)
    shown = await _edit(connection, job_id, **changes)
    assert shown.next_fire_at == due_at
    row = await run_row(connection, job_id)
    assert row is not None
    assert (row["state"], row["fire_at"], row["due_at"]) == (state, fire_at, due_at)
    assert (row["deadline_at"] - row["due_at"]).total_seconds() == 10


async def test_an_edit_for_another_version_is_rejected(connection: Conn) -> None:
    """A10: `If-Match`; without the check the second of two editors would overwrite the first."""
    job_id = await submit(connection, delay="1h")
    await _edit(connection, job_id, version=1, name="first")
    before = await snapshot(connection)
    with pytest.raises(VersionMismatch, match="version 2, not 1"):
        await _edit(connection, job_id, version=1, name="second")
    assert await snapshot(connection) == before
    assert (await _edit(connection, job_id, version=2, name="second")).name == "second"


async def test_a_job_whose_first_attempt_has_begun_cannot_be_edited(connection: Conn) -> None:
    """A10: attempt 2 runs what attempt 1 ran."""
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    (claimed,) = await claim(connection, worker_id)
    before = await snapshot(connection)
    with pytest.raises(NotAllowedIn, match="running"):
        await _edit(connection, job_id, name="x")
    assert await snapshot(connection) == before
    await finish(connection, claimed.lease, FLAKY)
    with pytest.raises(NotAllowedIn, match="first attempt has started"):
        await _edit(connection, job_id, name="x")
    async with connection.transaction():
        await cancel_job(connection, TESTER, job_id, now=NOW)
    with pytest.raises(NotAllowedIn, match="cancelled"):
        await _edit(connection, job_id, name="x")
    with pytest.raises(NotFound):
        await _edit(connection, uuid4(), name="x")


async def test_an_edit_waits_for_a_claim_and_then_sees_it(connection: Conn, rival: Conn) -> None:
    """Rule "lock, then decide". Otherwise the edit would change the payload of a running handler."""
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    claiming = rival.transaction()
    await claiming.start()
    assert len(await claim(rival, worker_id)) == 1
    work = await blocked_task(rival, connection, _edit(connection, job_id, name="x"))
    await claiming.commit()
    with pytest.raises(NotAllowedIn, match="running"):
        await work


async def test_two_edits_at_once_are_two_versions(connection: Conn, rival: Conn) -> None:
    """Rule "lock, then decide": the second edit sees the first."""
    job_id = await submit(connection, delay="1h", name="a", tags=["red"])
    first = rival.transaction()
    await first.start()
    await one_time_jobs.edit(rival, TESTER, AtVersion(job_id), Changes(name="b", tags=("blue",)), now=NOW)
    work = await blocked_task(rival, connection, _edit(connection, job_id, lane=0, tags=("red", "green")))
    await first.commit()
    shown = await work
    assert (shown.version, shown.name, shown.lane, shown.tags) == (3, "b", 0, ["red", "green"])


# Pause and resume.


async def test_a_paused_job_neither_becomes_ready_nor_is_claimed(connection: Conn) -> None:
    """A11: whether it waited or was ready; after the resume its due time counts."""
    worker_id = await enlist(connection)
    later, now = await submit(connection, delay="10s"), await submit(connection)
    for job_id in (later, now):
        shown = await _pause(connection, job_id, "looks wrong")
        assert (shown.status, shown.note, shown.paused_by, shown.paused_at) == ("paused", "looks wrong", "ada", NOW)
    assert await _promote(connection, minutes=1) == 0
    assert await claim(connection, worker_id, now=after(minutes=1)) == []

    assert (await _pause(connection, now, "still")).note == "still"
    shown = await _resume(connection, later, seconds=5)
    assert (shown.status, shown.note, shown.paused_by, shown.paused_at) == ("pending", None, None, None)
    assert [row["state"] for row in await connection.fetch("SELECT state FROM sexton.runs ORDER BY due_at DESC")] == [
        "waiting",
        "paused",
    ]
    await _resume(connection, now, seconds=5)
    assert len(await claim(connection, worker_id, now=after(seconds=5))) == 1
    assert await _promote(connection, seconds=10) == 1


async def test_pausing_between_two_attempts_keeps_the_budget_and_the_due_time(connection: Conn) -> None:
    """A11, B6."""
    worker_id = await enlist(connection)
    job_id = await submit(connection, retry=Retry.after("1m", jitter=0))
    (claimed,) = await claim(connection, worker_id)
    await finish(connection, claimed.lease, FLAKY)
    await _pause(connection, job_id)
    assert (await _resume(connection, job_id, seconds=30)).next_fire_at == after(minutes=1)
    await _pause(connection, job_id)
    assert (await _resume(connection, job_id, minutes=2)).attempt == 1
    (again,) = await claim(connection, worker_id, now=after(minutes=2))
    assert (again.lease.attempt, again.lease.token) == (2, 2)


async def test_a_paused_job_can_be_edited_and_cancelled(connection: Conn) -> None:
    """A10, A11: an edit does not start it."""
    job_id = await submit(connection)
    await _pause(connection, job_id)
    shown = await _edit(connection, job_id, run_at=None, name="x")
    assert (shown.status, shown.name, shown.version) == ("paused", "x", 2)
    async with connection.transaction():
        await cancel_job(connection, TESTER, job_id, now=NOW)
    assert await status(connection, job_id) == "cancelled"
    for call in (_pause, _resume, _retry):
        with pytest.raises(NotAllowedIn, match="cancelled"):
            await call(connection, job_id)


async def test_a_paused_job_still_misses_its_latest_start(connection: Conn) -> None:
    """A11: a pause does not stop the clock; resumed after its latest start, the job must not start."""
    job_id = await submit(connection, start_within="10s")
    await _pause(connection, job_id, "why")
    (overdue,) = await runs.expired(connection, limit=10, now=after(seconds=10))
    await finish(connection, overdue.lease, Missed("too late"), now=after(seconds=10))
    shown = await jobs.show(connection, job_id)
    assert (shown.status, shown.note) == ("failed", "why")


async def test_a_running_job_cannot_be_paused_and_resuming_it_does_nothing(connection: Conn) -> None:
    """A11."""
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    assert (await _resume(connection, job_id)).status == "pending"
    await claim(connection, worker_id)
    before = await snapshot(connection)
    with pytest.raises(NotAllowedIn, match="pause a job that is running"):
        await _pause(connection, job_id)
    assert (await _resume(connection, job_id)).status == "running"
    assert await snapshot(connection) == before
    for call in (_pause, _resume, _retry):
        with pytest.raises(NotFound):
            await call(connection, uuid4())


async def test_a_pause_waits_for_a_claim_and_then_sees_it(connection: Conn, rival: Conn) -> None:
    """Rule "lock, then decide": a leased run must not be paused while its worker executes it."""
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    claiming = rival.transaction()
    await claiming.start()
    await claim(rival, worker_id)
    work = await blocked_task(rival, connection, _pause(connection, job_id))
    await claiming.commit()
    with pytest.raises(NotAllowedIn, match="running"):
        await work


async def test_a_paused_job_counts_as_pending_for_equal_jobs(connection: Conn) -> None:
    """A7: while a unique job is paused, an equal job is not accepted."""
    job_id = await submit(connection, unique=Unique())
    await _pause(connection, job_id)
    assert await submit(connection, unique=Unique()) == job_id


# Retry.


async def test_retrying_a_failed_job_replays_its_newest_letter(connection: Conn) -> None:
    """A11, rule "a replay consumes its letter": the letter is consumed, so a second retry finds a pending job."""
    worker_id = await enlist(connection)
    job_id = await bury(connection, worker_id)
    assert (await _retry(connection, job_id)).status == "pending"
    with pytest.raises(NotAllowedIn, match="pending"):
        await _retry(connection, job_id)
    (claimed,) = await claim(connection, worker_id)
    assert (claimed.lease.attempt, claimed.lease.origin) == (1, "replay")
    with pytest.raises(NotAllowedIn, match="running"):
        await _retry(connection, job_id)
    await finish(connection, claimed.lease, Succeeded())
    with pytest.raises(NotAllowedIn, match="completed"):
        await _retry(connection, job_id)


async def test_a_failed_job_without_its_letter_cannot_be_retried(connection: Conn) -> None:
    """A11: and the message has the reason."""
    worker_id = await enlist(connection)
    job_id = await bury(connection, worker_id)
    (letter,) = await dead_letters.find(connection, dead_letters.Filter())
    await replay.discard(connection, TESTER, [letter.id])
    with pytest.raises(NotAllowedIn, match="discarded"):
        await _retry(connection, job_id)


async def test_a_retry_at_the_same_time_as_a_replay_gets_a_conflict(connection: Conn, rival: Conn) -> None:
    """Rule "a replay consumes its letter": only one of the two replays it."""
    worker_id = await enlist(connection)
    job_id = await bury(connection, worker_id)
    (letter,) = await dead_letters.find(connection, dead_letters.Filter())
    async with rival.transaction():
        await replay.replay(rival, TESTER, [letter.id], now=NOW)
        with pytest.raises(Contention):
            await _retry(connection, job_id)
    assert await status(connection, job_id) == "pending"


async def test_retrying_between_two_attempts_makes_the_next_due_now(connection: Conn) -> None:
    """A11: the budget stays the same; a job that has not begun has nothing to retry."""
    worker_id = await enlist(connection)
    job_id = await submit(connection, delay="10s")
    with pytest.raises(NotAllowedIn, match="pending"):
        await _retry(connection, job_id)
    await _promote(connection, seconds=10)
    (claimed,) = await claim(connection, worker_id, now=after(seconds=10))
    await finish(connection, claimed.lease, FLAKY, now=after(seconds=10))
    assert await claim(connection, worker_id, now=after(seconds=11)) == []
    shown = await _retry(connection, job_id, seconds=11)
    assert (shown.next_fire_at, shown.attempt) == (after(seconds=11), 1)
    (again,) = await claim(connection, worker_id, now=after(seconds=11))
    assert again.lease.attempt == 2
    await finish(connection, again.lease, BROKEN, now=after(seconds=11))


async def test_a_run_that_becomes_ready_is_announced(connection: Conn, rival: Conn) -> None:
    """B10: an edit, a resume and a retry wake an idle worker, as a submission does."""
    heard: list[tuple[str, str]] = []
    for channel in ("sexton_ready", "sexton_due"):
        await rival.add_listener(channel, lambda _connection, _pid, name, payload: heard.append((name, payload)))
    worker_id = await enlist(connection)
    job_id = await submit(connection, delay="1h", queue="mail")

    async def told() -> list[tuple[str, str]]:
        await rival.execute("SELECT 1")
        channels = heard[:]
        heard.clear()
        return channels

    await _edit(connection, job_id, delay_s=2.0)
    assert await told() == [("sexton_due", "")]
    await _edit(connection, job_id, delay_s=0.0)
    assert await told() == [("sexton_ready", "mail")]
    await _pause(connection, job_id)
    assert await told() == []
    await _resume(connection, job_id)
    assert await told() == [("sexton_ready", "mail")]
    (claimed,) = await claim(connection, worker_id, queues=["mail"])
    await finish(connection, claimed.lease, FLAKY)
    heard.clear()
    await _retry(connection, job_id)
    assert await told() == [("sexton_ready", "mail")]
    assert json.loads((await jobs.show(connection, job_id)).payload_json) == {}
