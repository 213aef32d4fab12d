"""Dead letters: finding, replaying once, discarding, automatic replays."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest

from sexton.domain.job import submission
from sexton.domain.outcome import Succeeded
from sexton.domain.retry import Retry
from sexton.operations import replay
from sexton.store.work import dead_letters, jobs, retention
from sexton.store.work.dead_letters import Filter
from tests.callers import TESTER
from tests.store.support import BROKEN, FLAKY, NOW, after, bury, claim, enlist, finish, plain, run_row, status, submit

if TYPE_CHECKING:
    from tests.store.support import Conn


async def _letters(connection: Conn, **chosen: Any) -> list[UUID]:
    return [letter.job_id for letter in await dead_letters.find(connection, Filter(**chosen))]


async def _only_letter(connection: Conn) -> UUID:
    (letter,) = await dead_letters.find(connection, Filter())
    return letter.id


async def test_letters_are_found_by_their_attributes(connection: Conn) -> None:
    """C7: newest first, every filter alone and together, in pages."""
    worker_id = await enlist(connection)
    options: list[dict[str, Any]] = [{}, {"tenant": "acme"}, {"queue": "mail"}, {"task": "b"}, {"tenant": "acme", "task": "b"}]
    ids = []
    for n, option in enumerate(options):
        ids.append(await submit(connection, **option, now=after(seconds=n)))
        (claimed,) = await claim(connection, worker_id, queues=["default", "mail"], tasks=["a", "b"], now=after(seconds=n))
        outcome = BROKEN if n else FLAKY
        while await finish(connection, claimed.lease, outcome, now=after(seconds=n)):
            await connection.execute("UPDATE sexton.runs SET state = 'ready' WHERE state = 'waiting'")
            more = await claim(connection, worker_id, now=after(seconds=n))
            if not more:
                break
            claimed = more[0]
    assert await _letters(connection) == ids[::-1]
    assert await _letters(connection, tenant="acme") == [ids[4], ids[1]]
    assert await _letters(connection, queue="mail") == [ids[2]]
    assert await _letters(connection, task="b") == [ids[4], ids[3]]
    assert await _letters(connection, task="b", tenant="acme") == [ids[4]]
    assert await _letters(connection, permanent=False) == [ids[0]]
    assert await _letters(connection, permanent=True, task="a", tenant="default", queue="default") == []
    page = await dead_letters.find(connection, Filter(), limit=2)
    rest = await dead_letters.find(connection, Filter(), before=page[-1].id, limit=10)
    assert [letter.job_id for letter in page + rest] == ids[::-1]
    assert await _letters(connection, ids=[page[0].id, uuid4()]) == [ids[4]]
    assert await _letters(connection, ids=[]) == []


async def test_a_replay_consumes_the_letter_and_gives_a_new_budget(connection: Conn) -> None:
    """C7, rule "a replay consumes its letter"."""
    worker_id = await enlist(connection)
    job_id = await bury(
        connection,
        worker_id,
        payload={"n": 1},
        priority="high",
        timeout="7s",
        lease="9s",
        deadline="1h",
        start_within="1s",
        max_lost=1,
    )
    now = after(hours=5)
    (replayed,) = await replay.replay(connection, TESTER, [await _only_letter(connection)], now=now)
    assert replayed.job_id == job_id
    assert await dead_letters.find(connection, Filter()) == []
    assert await status(connection, job_id) == "pending"
    row = await run_row(connection, job_id)
    assert row is not None
    assert (row["id"], row["state"], row["origin"], row["seq"], row["fire_at"]) == (replayed.run_id, "ready", "replay", 1, NOW)
    assert (row["due_at"], row["deadline_at"], row["start_by"]) == (now, after(hours=6), None)
    assert (row["lane"], row["timeout_s"], row["lease_s"], row["partition"]) == (1, 7.0, 9.0, job_id.int & 63)
    (claimed,) = await claim(connection, worker_id, now=now)
    assert (claimed.lease.attempt, claimed.lease.token, claimed.lease.seq) == (1, 1, 1)
    assert plain(claimed.payload_json) == {"n": 1}
    assert await finish(connection, claimed.lease, Succeeded(), now=now) is not None
    assert await status(connection, job_id) == "completed"
    assert [one.status for one in await jobs.executions(connection, job_id)] == ["failed", "succeeded"]


async def test_a_letter_may_be_buried_and_replayed_repeatedly(connection: Conn) -> None:
    """C7: replays differ by their number."""
    worker_id = await enlist(connection)
    job_id = await bury(connection, worker_id)
    for number in range(1, 4):
        now = after(minutes=number)
        await replay.replay(connection, TESTER, [await _only_letter(connection)], now=now)
        (claimed,) = await claim(connection, worker_id, now=now)
        assert (claimed.lease.origin, claimed.lease.seq) == ("replay", number)
        await finish(connection, claimed.lease, BROKEN, now=now)
    assert await status(connection, job_id) == "failed"


async def test_two_replays_at_once_create_one_run(connection: Conn, rival: Conn) -> None:
    """C7, rule "a replay consumes its letter": the second finds nothing, without waiting."""
    worker_id = await enlist(connection)
    await bury(connection, worker_id)
    letter_id = await _only_letter(connection)
    async with connection.transaction():
        first = await replay.replay(connection, TESTER, [letter_id], now=NOW)
        assert await replay.replay(rival, TESTER, [letter_id], now=NOW) == []
    assert len(first) == 1
    assert await replay.replay(rival, TESTER, [letter_id], now=NOW) == []


async def test_a_letter_named_twice_is_replayed_once(connection: Conn) -> None:
    """C7."""
    worker_id = await enlist(connection)
    await bury(connection, worker_id)
    letter_id = await _only_letter(connection)
    assert len(await replay.replay(connection, TESTER, [letter_id, letter_id, uuid4()], now=NOW)) == 1


async def test_a_discard_and_a_replay_at_once_cannot_both_win(connection: Conn, rival: Conn) -> None:
    """C7."""
    worker_id = await enlist(connection)
    await bury(connection, worker_id)
    letter_id = await _only_letter(connection)
    replayed, gone = await asyncio.gather(
        replay.replay(connection, TESTER, [letter_id], now=NOW), replay.discard(rival, TESTER, [letter_id])
    )
    assert len(replayed) + len(gone) == 1


async def test_many_are_replayed_in_one_statement_in_the_order_of_their_burial(connection: Conn) -> None:
    """C7: by filter."""
    worker_id = await enlist(connection)
    ids = [await bury(connection, worker_id, now=after(seconds=n)) for n in range(20)]
    letters = await dead_letters.find(connection, Filter(task="a"))
    replayed = await replay.replay(connection, TESTER, [letter.id for letter in letters], now=after(minutes=1))
    assert {one.job_id for one in replayed} == set(ids)
    claimed = await claim(connection, worker_id, now=after(minutes=1))
    assert [one.lease.job_id for one in claimed] == ids


async def test_a_replay_keeps_the_idempotency_key(connection: Conn) -> None:
    """C7, A10: a duplicate submission during the replay is still a duplicate."""
    worker_id = await enlist(connection)
    job_id = await bury(connection, worker_id, key="k")
    await replay.replay(connection, TESTER, [await _only_letter(connection)], now=NOW)
    assert await submit(connection, key="k") == job_id
    (claimed,) = await claim(connection, worker_id)
    assert claimed.idempotency_key == "k"


async def test_a_replay_may_release_the_key(connection: Conn) -> None:
    """C7."""
    worker_id = await enlist(connection)
    job_id = await bury(connection, worker_id, key="k")
    await replay.replay(connection, TESTER, [await _only_letter(connection)], keep_key=False, now=NOW)
    assert await submit(connection, key="k") != job_id


async def test_a_released_key_stays_with_the_job_that_has_it_now(connection: Conn) -> None:
    """C7, A10: the key had expired and belongs to another job."""
    worker_id = await enlist(connection)
    await bury(connection, worker_id, key="k", key_ttl="1h")
    heir = await submit(connection, key="k", payload={"n": 2}, now=after(hours=2))
    await replay.replay(connection, TESTER, [await _only_letter(connection)], keep_key=False, now=after(hours=2))
    assert await submit(connection, key="k", payload={"n": 2}, now=after(hours=2)) == heir


@pytest.mark.made_up_rows
async def test_a_letter_whose_job_is_gone_is_kept(connection: Conn) -> None:
    """C7: nothing is lost without a report."""
    worker_id = await enlist(connection)
    await bury(connection, worker_id)
    await connection.execute("DELETE FROM sexton.jobs")
    letter_id = await _only_letter(connection)
    assert await replay.replay(connection, TESTER, [letter_id], now=NOW) == []
    assert await _only_letter(connection) == letter_id


@pytest.mark.made_up_rows
async def test_a_letter_whose_job_is_live_again_is_kept(connection: Conn) -> None:
    """C7, B1: a job never has two runs of one fire."""
    worker_id = await enlist(connection)
    job_id = await bury(connection, worker_id)
    letter_id = await _only_letter(connection)
    await connection.execute("CREATE TABLE sexton.test_only_copy AS SELECT * FROM sexton.dead_letters")
    await replay.replay(connection, TESTER, [letter_id], now=NOW)
    await connection.execute("INSERT INTO sexton.dead_letters SELECT * FROM sexton.test_only_copy")
    assert await replay.replay(connection, TESTER, [letter_id], now=after(seconds=1)) == []
    assert await run_row(connection, job_id) is not None


async def test_a_rolled_back_replay_keeps_the_letter(connection: Conn) -> None:
    """C7."""
    worker_id = await enlist(connection)
    job_id = await bury(connection, worker_id)
    letter_id = await _only_letter(connection)
    transaction = connection.transaction()
    await transaction.start()
    await replay.replay(connection, TESTER, [letter_id], now=NOW)
    await transaction.rollback()
    assert await _only_letter(connection) == letter_id
    assert await status(connection, job_id) == "failed"


async def test_transient_failures_are_replayed_automatically_within_bounds(connection: Conn) -> None:
    """C7: `replays` times, after `replay_after`; then they stay."""
    worker_id = await enlist(connection)
    retry = Retry(max_attempts=1, replays=2, replay_after_s=600)
    await submit(connection, retry=retry)
    now = NOW
    for _ in range(2):
        (claimed,) = await claim(connection, worker_id, now=now)
        await finish(connection, claimed.lease, FLAKY, now=now)
        letter_id = await _only_letter(connection)
        assert await dead_letters.due_for_replay(connection, limit=10, now=now) == []
        now = now + (after(seconds=600) - NOW)
        assert await dead_letters.due_for_replay(connection, limit=10, now=now) == [letter_id]
        await replay.replay(connection, TESTER, [letter_id], now=now)
    (claimed,) = await claim(connection, worker_id, now=now)
    await finish(connection, claimed.lease, FLAKY, now=now)
    assert await dead_letters.due_for_replay(connection, limit=10, now=after(days=9)) == []


async def test_permanent_failures_are_never_replayed_automatically(connection: Conn) -> None:
    """C7."""
    worker_id = await enlist(connection)
    await bury(connection, worker_id, retry=Retry(replays=5, replay_after_s=1))
    assert await dead_letters.due_for_replay(connection, limit=10, now=after(days=9)) == []


async def test_a_discarded_letter_is_deleted_and_its_job_stays_failed(connection: Conn) -> None:
    """C7."""
    worker_id = await enlist(connection)
    job_id = await bury(connection, worker_id)
    letter_id = await _only_letter(connection)
    assert await replay.discard(connection, TESTER, [letter_id, uuid4()]) == [letter_id]
    assert await replay.discard(connection, TESTER, [letter_id]) == []
    assert await status(connection, job_id) == "failed"


async def test_letters_are_kept_for_their_retention(connection: Conn) -> None:
    """C7: 30 days by default; the janitor deletes them."""
    worker_id = await enlist(connection)
    await bury(connection, worker_id)
    keep_s = 30 * 86400.0
    await dead_letters.expire(connection, keep_s=keep_s, now=after(days=30))
    assert len(await _letters(connection)) == 1
    await dead_letters.expire(connection, keep_s=keep_s, now=after(days=30, seconds=1))
    assert await _letters(connection) == []


async def test_a_replayed_job_is_not_dropped_with_its_week(connection: Conn, database: Any) -> None:
    """C7, D5: neither while it is buried nor while it is live again."""
    worker_id = await enlist(connection)
    job_id = await bury(connection, worker_id)
    assert await retention.drop_partitions(database, "jobs", keep_s=0, now=after(days=60)) == []
    await replay.replay(connection, TESTER, [await _only_letter(connection)], now=after(days=60))
    assert await retention.drop_partitions(database, "jobs", keep_s=0, now=after(days=60)) == []
    (claimed,) = await claim(connection, worker_id, now=after(days=60))
    await finish(connection, claimed.lease, Succeeded(), now=after(days=60))
    assert await status(connection, job_id) == "completed"


async def test_a_replay_is_claimed_after_runs_that_were_ready_before(connection: Conn) -> None:
    """C7: its order depends on the time of the replay."""
    worker_id = await enlist(connection)
    buried = await bury(connection, worker_id)
    (earlier,) = await jobs.submit(connection, [submission("a", {})], now=after(seconds=1))
    await replay.replay(connection, TESTER, [await _only_letter(connection)], now=after(seconds=2))
    claimed = await claim(connection, worker_id, now=after(seconds=2))
    assert [one.lease.job_id for one in claimed] == [earlier.id, buried]
