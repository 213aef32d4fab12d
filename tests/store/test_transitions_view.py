"""The live view: every transition is returned, again with the same key within the overlap, and never without a bound."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sexton.domain.job import submission
from sexton.domain.outcome import Succeeded
from sexton.domain.partition import ALL
from sexton.operations.caller import SCHEDULER
from sexton.operations.cancel import cancel as cancel_job
from sexton.operations.recurring import recurring_jobs
from sexton.operations.recurring.admit import admit
from sexton.store import clock as database_clock
from sexton.store.views import transitions
from tests.callers import TESTER
from tests.store.support import BROKEN, FLAKY, NOW, after, claim, enlist, finish, submit, submit_many

if TYPE_CHECKING:
    from datetime import datetime

    from sexton.store.database import Postgres
    from tests.store.support import Conn


async def _types(connection: Conn, mark: datetime) -> list[str]:
    return [one.type for one in await transitions.since(connection, mark)]


async def test_every_transition_is_returned_in_order(connection: Conn) -> None:
    """A13: submitted, started, and how the try ended."""
    worker_id = await enlist(connection)
    mark = await database_clock.now(connection, now=NOW)
    assert mark == NOW
    assert await transitions.since(connection, mark) == []

    job_id = await submit(connection, tenant="acme", now=after(seconds=1))
    (told,) = await transitions.since(connection, mark)
    assert (told.type, told.at, told.job_id, told.tenant) == ("submitted", after(seconds=1), job_id, "acme")
    (claimed,) = await claim(connection, worker_id, now=after(seconds=2))
    _, started = await transitions.since(connection, mark)
    assert (started.type, started.at, started.attempt, started.worker_id) == ("started", after(seconds=2), 1, worker_id)

    await finish(connection, claimed.lease, FLAKY, now=after(seconds=3))
    *earlier, retrying = await transitions.since(connection, mark)
    assert [one.key for one in earlier] == [told.key, started.key]
    assert (retrying.type, retrying.status, retrying.ending) == ("retrying", "failed", None)
    assert abs(retrying.at - after(seconds=3)) < timedelta(milliseconds=1)

    async with connection.transaction():
        await cancel_job(connection, TESTER, job_id, now=after(seconds=4))
    *_, ended = await transitions.since(connection, mark)
    assert (ended.type, ended.status, ended.ending, ended.attempt) == ("ended", "cancelled", "cancelled", 1)


async def test_a_try_that_began_and_ended_between_two_looks_is_returned_completely(connection: Conn) -> None:
    """A13: short jobs are never seen running."""
    worker_id = await enlist(connection)
    await submit_many(connection, [submission("a", {})] * 2)
    first, second = await claim(connection, worker_id)
    await finish(connection, first.lease, Succeeded(), started_s=0.5, took_s=0.5, now=after(seconds=1))
    await finish(connection, second.lease, BROKEN, started_s=0.5, took_s=0.5, now=after(seconds=2))
    told = await transitions.since(connection, NOW)
    assert [one.type for one in told] == ["submitted"] * 2 + ["started"] * 2 + ["ended", "dead_lettered"]
    assert len({one.key for one in told}) == len(told)
    assert [(one.ending, one.status) for one in told[-2:]] == [("completed", "succeeded"), ("failed", "failed")]


async def test_a_transition_that_commits_late_is_returned_by_the_next_look(connection: Conn, rival: Conn) -> None:
    """Rule "one clock reading per statement": a look only after the mark would miss it."""
    late = rival.transaction()
    await late.start()
    older = await submit(rival, now=after(seconds=1))
    newer = await submit(connection, now=after(seconds=3))
    (told,) = await transitions.since(connection, NOW)
    assert told.job_id == newer
    await late.commit()
    assert [one.job_id for one in await transitions.since(connection, told.at)] == [older, newer]


async def test_transitions_older_than_the_overlap_are_not_repeated(connection: Conn) -> None:
    """A13: a stream resumes where it left off."""
    worker_id = await enlist(connection)
    await submit(connection)
    (claimed,) = await claim(connection, worker_id)
    assert await _types(connection, after(seconds=4)) == ["submitted", "started"]
    assert await _types(connection, after(seconds=6)) == []
    await finish(connection, claimed.lease, Succeeded(), now=after(seconds=60))
    assert await _types(connection, after(seconds=60)) == ["ended"]


async def test_of_very_many_the_newest_are_returned(connection: Conn) -> None:
    """A13: a listener never costs more than its limit, and always makes progress."""
    ids = await submit_many(connection, [submission("a", {}, delay="1h")] * 50)
    told = await transitions.since(connection, NOW, limit=10)
    assert [one.job_id for one in told] == ids[-10:]


async def test_a_job_that_never_started_is_returned_as_ended_only(connection: Conn) -> None:
    """A13: a cancelled one has no start."""
    job_id = await submit(connection, delay="1h")
    async with connection.transaction():
        await cancel_job(connection, TESTER, job_id, now=NOW)
    assert await _types(connection, NOW) == ["submitted", "ended"]


async def test_runs_of_recurring_jobs_are_returned_with_their_ends(database: Postgres, connection: Conn) -> None:
    """A13: submitted with its time, and a successful fire is not marked for a retry."""
    worker_id = await enlist(connection)
    async with connection.transaction():
        document = {"task": "a", "tenant": "acme", "schedule": {"every": "1s"}}
        (written,) = await recurring_jobs.submit(connection, TESTER, [document], now=after(seconds=1))
    (told,) = await transitions.since(connection, NOW)
    assert (told.type, told.at, told.job_id, told.tenant) == ("submitted", after(seconds=1), written.id, "acme")
    for second, outcome in ((2, Succeeded()), (3, BROKEN), (4, FLAKY)):
        await admit(database, SCHEDULER, ALL, limit=100, now=after(seconds=second))
        (claimed,) = await claim(connection, worker_id, now=after(seconds=second))
        await finish(connection, claimed.lease, outcome, now=after(seconds=second, milliseconds=500))
    told_of = [
        (one.type, one.status) for one in await transitions.since(connection, NOW) if one.type not in ("submitted", "started")
    ]
    assert told_of == [("ended", "succeeded"), ("dead_lettered", "failed"), ("retrying", "failed")]
