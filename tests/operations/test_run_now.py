"""A run by hand with another payload: the payload belongs to that run alone, in every attempt, in its dead letter and in the
replay."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from sexton.domain.outcome import Released, Succeeded
from sexton.domain.partition import ALL
from sexton.operations import replay
from sexton.operations.caller import SCHEDULER
from sexton.operations.explain import explain
from sexton.operations.recurring import recurring_jobs
from sexton.operations.recurring.admit import admit
from sexton.operations.versions import AtVersion
from sexton.store.sharing import parked_runs
from sexton.store.work import dead_letters, jobs, run_payloads
from tests.callers import TESTER
from tests.store.support import BROKEN, FLAKY, NOW, after, claim, enlist, finish, plain

if TYPE_CHECKING:
    from sexton.domain.run import Claimed
    from sexton.store.database import Postgres
    from tests.store.support import Conn


def document(**fields: Any) -> dict[str, Any]:
    return {"task": "a", "schedule": {"cron": "0 0 * * *"}, "payload": {"n": 1}, **fields}


async def write(connection: Conn, **fields: Any) -> UUID:
    async with connection.transaction():
        (written,) = await recurring_jobs.submit(connection, TESTER, [document(**fields)], now=NOW)
    return written.id


async def fire(connection: Conn, job_id: UUID, payload: object = None, *, now: datetime = NOW) -> None:
    async with connection.transaction():
        given = None if payload is None else msgspec.Raw(msgspec.json.encode(payload))
        await recurring_jobs.fire(connection, TESTER, job_id, payload=given, now=now)


async def begun(database: Postgres, connection: Conn, worker_id: UUID, now: datetime = NOW) -> Claimed:
    await admit(database, SCHEDULER, ALL, limit=100, now=now)
    (claimed,) = await claim(connection, worker_id, now=now)
    return claimed


async def test_the_payload_belongs_to_that_run_alone(database: Postgres, connection: Conn) -> None:
    """A7: the next run has the job's payload again."""
    job_id, worker_id = await write(connection), await enlist(connection)
    await fire(connection, job_id, {"n": 2})
    first = await begun(database, connection, worker_id)
    assert (plain(first.payload_json), first.lease.origin, first.lease.policy_json) == ({"n": 2}, "now", None)
    await finish(connection, first.lease, Succeeded())
    await fire(connection, job_id, now=after(minutes=1))
    second = await begun(database, connection, worker_id, after(minutes=1))
    assert plain(second.payload_json) == {"n": 1}
    assert plain((await jobs.show(connection, job_id)).payload_json) == {"n": 1}


async def test_null_is_a_payload_too(database: Postgres, connection: Conn) -> None:
    job_id, worker_id = await write(connection), await enlist(connection)
    async with connection.transaction():
        await recurring_jobs.fire(connection, TESTER, job_id, payload=msgspec.Raw(b"null"), now=NOW)
    assert (await begun(database, connection, worker_id)).payload_json == "null"


async def test_every_attempt_has_it_even_if_the_job_changes(database: Postgres, connection: Conn) -> None:
    """A7: an edit between two attempts changes neither the payload nor the policy of the run."""
    job_id, worker_id = await write(connection, policy={"max_lost": 7}), await enlist(connection)
    await fire(connection, job_id, {"n": 2})
    first = await begun(database, connection, worker_id)
    await finish(connection, first.lease, Released("drain"))
    async with connection.transaction():
        await recurring_jobs.edit(connection, TESTER, AtVersion(job_id), document(payload={"n": 3}), now=NOW)
    (second,) = await claim(connection, worker_id)
    assert (second.job_version, plain(second.payload_json), second.lease.policy.max_lost) == (1, {"n": 2}, 7)


async def test_an_edit_before_it_starts_does_not_change_its_payload(database: Postgres, connection: Conn) -> None:
    job_id, worker_id = await write(connection), await enlist(connection)
    await fire(connection, job_id, {"n": 2})
    async with connection.transaction():
        await recurring_jobs.edit(connection, TESTER, AtVersion(job_id), document(payload={"n": 3}), now=NOW)
    claimed = await begun(database, connection, worker_id)
    assert (claimed.job_version, plain(claimed.payload_json)) == (2, {"n": 2})


async def test_its_dead_letter_contains_it_and_a_replay_keeps_it(database: Postgres, connection: Conn) -> None:
    """A7, C7: also a replay of the replay."""
    job_id, worker_id = await write(connection), await enlist(connection)
    await fire(connection, job_id, {"n": 2})
    claimed = await begun(database, connection, worker_id)
    for _ in range(2):
        await finish(connection, claimed.lease, BROKEN)
        (letter,) = await dead_letters.find(connection, dead_letters.Filter())
        assert plain(letter.payload_json) == {"n": 2}
        async with connection.transaction():
            assert len(await replay.replay(connection, TESTER, [letter.id], now=NOW)) == 1
        claimed = await begun(database, connection, worker_id)
        assert (claimed.lease.origin, plain(claimed.payload_json)) == ("replay", {"n": 2})
    assert claimed.lease.job_id == job_id


async def test_a_dead_letter_contains_the_payload_of_the_executed_version(database: Postgres, connection: Conn) -> None:
    """A7, C7: the letter shows what a replay will run."""
    job_id, worker_id = await write(connection), await enlist(connection)
    await fire(connection, job_id)
    claimed = await begun(database, connection, worker_id)
    async with connection.transaction():
        await recurring_jobs.edit(connection, TESTER, AtVersion(job_id), document(payload={"n": 3}), now=NOW)
    await finish(connection, claimed.lease, BROKEN)
    (letter,) = await dead_letters.find(connection, dead_letters.Filter())
    assert (letter.job_version, plain(letter.payload_json)) == (1, {"n": 1})


async def test_why_shows_that_it_was_run_by_hand_with_another_payload(database: Postgres, connection: Conn) -> None:
    """A8: while it waits, while it runs and after."""
    job_id, worker_id = await write(connection), await enlist(connection)
    words = "by hand with another payload"
    await fire(connection, job_id, {"n": 2})
    claimed = await begun(database, connection, worker_id)
    assert words in (await explain(connection, TESTER, job_id, now=NOW)).answer
    await finish(connection, claimed.lease, FLAKY)
    (link,) = [one for one in (await explain(connection, TESTER, job_id, now=NOW)).chain if one.check == "due"]
    assert words in link.detail
    (claimed,) = await _again(database, connection, worker_id)
    await finish(connection, claimed.lease, Succeeded(), now=after(minutes=1))
    (link,) = [
        one for one in (await explain(connection, TESTER, job_id, now=after(minutes=2))).chain if one.check == "last_fire"
    ]
    assert words in link.detail


async def _again(database: Postgres, connection: Conn, worker_id: UUID) -> list[Claimed]:
    await connection.execute("UPDATE sexton.runs SET state = 'ready' WHERE token > 0")
    return await claim(connection, worker_id, now=after(minutes=1))


async def test_it_is_kept_as_long_as_its_history_and_while_it_may_be_replayed(database: Postgres, connection: Conn) -> None:
    """D5: nothing is kept for ever."""
    day = timedelta(days=1).total_seconds()
    job_id, worker_id = await write(connection), await enlist(connection)

    async def kept(**later: float) -> int:
        await run_payloads.forget(connection, keep_s=day, now=after(**later))
        return int(await connection.fetchval("SELECT count(*) FROM sexton.run_payloads"))

    await fire(connection, job_id, {"n": 2})
    assert await kept(days=2) == 1, "its run lives"
    claimed = await begun(database, connection, worker_id)
    await finish(connection, claimed.lease, BROKEN)
    assert await kept(days=2) == 1, "its letter may be replayed"
    await connection.execute("DELETE FROM sexton.dead_letters")
    assert await kept(hours=23) == 1, "its history is there"
    assert await kept(days=2) == 0


async def test_an_edit_leaves_it_under_the_limit_of_its_own_payload(connection: Conn) -> None:
    """C10."""
    limit = {"key": "account:{payload.n}", "running": 1}
    job_id = await write(connection, limit=limit)
    await fire(connection, job_id, {"n": 2})
    async with connection.transaction():
        await recurring_jobs.edit(connection, TESTER, AtVersion(job_id), document(limit=limit, tags=["x"]), now=NOW)
    (row,) = await connection.fetch("SELECT limit_key, job_version FROM sexton.runs WHERE origin = 'now'")
    assert tuple(row) == ("account:2", 2)


async def test_a_replay_is_under_the_limit_of_its_own_version(database: Postgres, connection: Conn) -> None:
    """C10, rule "a replay consumes its letter": by the job's current policy its payload has no key; that once failed the replay
    of the other letters too."""
    job_id, worker_id = await write(connection, limit={"key": "account:{payload.n}", "running": 1}), await enlist(connection)
    await fire(connection, job_id)
    await admit(database, SCHEDULER, ALL, limit=100, now=NOW)
    await parked_runs.release(connection, now=NOW)
    (claimed,) = await claim(connection, worker_id)
    await finish(connection, claimed.lease, BROKEN)
    (letter,) = await dead_letters.find(connection, dead_letters.Filter())
    new = document(payload={"customer": 3}, limit={"key": "customer:{payload.customer}", "running": 1})
    async with connection.transaction():
        await recurring_jobs.edit(connection, TESTER, AtVersion(job_id), new, now=NOW)
    assert len(await replay.replay(connection, TESTER, [letter.id], now=NOW)) == 1
    (row,) = await connection.fetch("SELECT limit_key, job_version FROM sexton.runs WHERE origin = 'replay'")
    assert tuple(row) == ("account:1", 1)
