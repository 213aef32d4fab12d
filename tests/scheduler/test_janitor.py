"""The janitor: partitions are created ahead and dropped, keys and letters expire, transient failures are replayed."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import msgspec
import pytest

from sexton.domain.retry import Retry
from sexton.errors import PermanentError
from sexton.scheduler import janitor as janitors
from sexton.scheduler.janitor import REST_S
from sexton.telemetry.events import SlotsRepaired, WorkerLost
from tests.rig import LEASE_S, LONG_S, NOW, Between, HandWorker, Rig

if TYPE_CHECKING:
    Conn = asyncpg.Connection[Any]
DAY_S = 86_400.0


async def partitions(rig: Rig, parent: str) -> list[str]:
    rows = await rig.execute(
        "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = ('sexton.' || $1)::regclass ORDER BY 1",
        parent,
    )
    return [row["name"].removeprefix(f"sexton.{parent}_") for row in rows]


async def fail(rig: Rig, hand: HandWorker, error: Exception, **options: Any) -> UUID:
    job_id = await rig.submit(**options)
    await hand.beat()
    await hand.take()
    hand.stage.running[0].raises(error)
    await hand.report()
    return job_id


async def test_partitions_exist_before_they_are_needed(rig: Rig) -> None:
    """A9, rule "lock in id order": at least fourteen days ahead, by the database's clock, even if it moved by months."""
    for months in (0, 5, 30):
        rig.clock.move(timedelta(days=30 * months))
        assert await rig.janitor().run_once() == REST_S
        days = await partitions(rig, "executions")
        now = rig.clock.database_now()
        for ahead in range(15):
            assert f"{now + timedelta(days=ahead):%Y%m%d}" in days
        for parent in ("jobs", "endings"):
            assert f"{now + timedelta(days=14):%Gw%V}" in await partitions(rig, parent)


async def test_a_second_pass_finds_nothing_to_do(rig: Rig) -> None:
    before = [await rig.janitor().run_once(), await partitions(rig, "executions")]
    assert [await rig.janitor().run_once(), await partitions(rig, "executions")] == before


async def test_history_is_dropped_when_its_time_is_over_and_not_a_day_earlier(rig: Rig) -> None:
    """A9, D5: kept 90 days."""
    hand = await rig.worker()
    job_id = await rig.submit()
    await hand.take()
    hand.stage.handles[0].returns("done")
    await hand.report()
    rig.move(90 * DAY_S)
    await rig.janitor().run_once()
    assert await rig.statuses(job_id) == ["succeeded"]
    assert await rig.status(job_id) == "completed"
    rig.move(8 * DAY_S)
    await rig.janitor().run_once()
    assert await rig.statuses(job_id) == []
    assert await rig.execute("SELECT FROM sexton.jobs") == []
    assert "20260304" not in await partitions(rig, "executions")


async def test_history_that_a_live_run_needs_is_kept(rig: Rig) -> None:
    """D5: a job submitted for next year keeps its definition."""
    job_id = await rig.submit(delay="200d")
    rig.move(199 * DAY_S)
    await rig.janitor().run_once()
    assert await rig.status(job_id) == "pending"
    rig.move(DAY_S)
    await rig.promote()
    hand = await rig.worker()
    await hand.take()
    hand.stage.handles[0].returns()
    await hand.report()
    assert await rig.status(job_id) == "completed"


async def test_recurring_jobs_are_never_dropped(rig: Rig) -> None:
    rig.move(1000 * DAY_S)
    await rig.janitor().run_once()
    assert "recurring" in await partitions(rig, "jobs")


async def test_a_long_reader_delays_only_the_dropping(rig: Rig, connection: Conn) -> None:
    """D5: a dump of the history locks its partitions for an hour; keys, letters and replays do not wait for it."""
    await rig.submit(key="k", key_ttl="1h")
    await rig.submit(delay="400d")  # so that the invariant between jobs and runs holds
    rig.move(100 * DAY_S)
    async with connection.transaction():
        await connection.fetch("SELECT FROM sexton.executions LIMIT 1")
        async with asyncio.timeout(LONG_S):
            assert await rig.janitor().run_once() == REST_S
        assert await rig.execute("SELECT FROM sexton.idempotency_keys") == []
        assert "20260304" in await partitions(rig, "executions")
    await rig.janitor().run_once()
    assert "20260304" not in await partitions(rig, "executions")


async def test_cleaning_is_done_every_ten_minutes_and_at_once_after_a_delay(rig: Rig, connection: Conn) -> None:
    """B10, D5."""
    between = Between(rig.database)
    janitor = rig.janitor(between)
    await janitor.run_once()
    assert "make_partitions" in between.statements
    between.statements.clear()
    rig.move(REST_S)
    await janitor.run_once()
    assert between.statements == ["expire_keys", "expire_unique_keys", "expire", "due_for_replay", "submit_held"]
    rig.move(100 * DAY_S)
    async with connection.transaction():
        await connection.fetch("SELECT FROM sexton.executions LIMIT 1")
        await janitor.run_once()
        assert "20260304" in await partitions(rig, "executions")
    rig.move(REST_S)
    await janitor.run_once()
    assert "20260304" not in await partitions(rig, "executions")


async def test_more_than_one_batch_of_keys_is_deleted_in_one_pass(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """D5: at any rate of submissions with keys, as many are deleted as are created."""
    monkeypatch.setattr("sexton.store.work.retention.KEY_BATCH", 2)
    for n in range(7):
        await rig.submit(key=f"k{n}", key_ttl="1h", delay="400d")
    rig.move(3601)
    await rig.janitor().run_once()
    assert await rig.execute("SELECT FROM sexton.idempotency_keys") == []


async def test_unique_keys_beyond_the_first_batch_are_deleted_by_a_later_pass(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D5: a pass examines a bounded number, and the next pass continues behind them, even if all were in use."""
    monkeypatch.setattr("sexton.store.work.retention.KEY_BATCH", 2)
    for n in range(3):
        await rig.submit("a", {"n": n}, tenant="a", unique=True, delay="400d")
    await rig.cancel(await rig.submit(tenant="z", unique=True, delay="1h"))
    janitor = rig.janitor()
    for left in (4, 3):
        await janitor.run_once()
        assert len(await rig.execute("SELECT FROM sexton.unique_keys")) == left


async def test_an_idempotency_key_expires_on_time(rig: Rig) -> None:
    """A10: after seven days by default, or after the time in the submission."""
    await rig.submit(key="week", delay="400d")
    await rig.submit(key="hour", key_ttl="1h", delay="400d")

    async def keys() -> list[str]:
        return [row["key"] for row in await rig.execute("SELECT key FROM sexton.idempotency_keys ORDER BY key")]

    rig.move(3601)
    await rig.janitor().run_once()
    assert await keys() == ["week"]
    rig.move(7 * DAY_S)
    await rig.janitor().run_once()
    assert await keys() == []


async def test_dead_letters_are_kept_thirty_days(rig: Rig) -> None:
    """C7."""
    hand = await rig.worker()
    await fail(rig, hand, PermanentError("hopeless"))
    rig.move(30 * DAY_S - 1)
    await rig.janitor().run_once()
    assert len(await rig.letters()) == 1
    rig.move(2)
    await rig.janitor().run_once()
    assert await rig.letters() == []


def replayed(times: int, after_s: float = 60.0) -> Retry:
    return msgspec.structs.replace(Retry.never(), replays=times, replay_after_s=after_s)


async def test_a_transient_failure_is_replayed_automatically_a_bounded_number_of_times(rig: Rig) -> None:
    """C7: each time with a new budget, and its letter is consumed."""
    hand = await rig.worker()
    job_id = await fail(rig, hand, ConnectionError("try later"), retry=replayed(2))
    for replays in (1, 2):
        rig.move(59)
        await rig.janitor().run_once()
        assert await rig.state(job_id) is None
        rig.move(1)
        await rig.janitor().run_once()
        assert await rig.letters() == []
        run = await rig.run(job_id)
        assert run is not None
        assert (run["state"], run["origin"], run["seq"], run["attempt"]) == ("ready", "replay", replays, 0)
        await hand.beat()
        await hand.take()
        hand.stage.running[0].raises(ConnectionError("try later"))
        await hand.report()
    rig.move(3600)
    await rig.janitor().run_once()
    (letter,) = await rig.letters()
    assert (letter.replay_at, letter.permanent) == (None, False)
    assert len(await rig.executions(job_id)) == 3


@pytest.mark.parametrize(
    "error", [PermanentError("hopeless"), ConnectionError("at most once")], ids=["permanent", "at_most_once"]
)
async def test_a_permanent_failure_is_never_replayed_automatically(rig: Rig, error: Exception) -> None:
    """C7."""
    hand = await rig.worker()
    delivery = "at_most_once" if isinstance(error, ConnectionError) else None
    await fail(rig, hand, error, retry=replayed(5), delivery=delivery)
    rig.move(3600)
    await rig.janitor().run_once()
    assert [letter.replay_at for letter in await rig.letters()] == [None]


async def test_letters_that_failed_together_are_not_replayed_all_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """C7."""
    monkeypatch.setattr(janitors, "REPLAY_LIMIT", 2)
    hand = await rig.worker(worker_concurrency=10)
    await rig.submit_many(5, retry=replayed(1))
    await hand.take()
    for handle in hand.stage.running:
        handle.raises(ConnectionError("all at once"))
    await hand.report()
    rig.move(60)
    for left in (3, 1, 0):
        await rig.janitor().run_once()
        assert len(await rig.letters()) == left


async def test_two_janitors_replay_each_letter_once(rig: Rig) -> None:
    """Rule "a replay consumes its letter"."""
    hand = await rig.worker(worker_concurrency=10)
    jobs = await rig.submit_many(10, retry=replayed(1))
    await hand.take()
    for handle in hand.stage.running:
        handle.raises(ConnectionError("all at once"))
    await hand.report()
    rig.move(60)
    await asyncio.gather(rig.janitor().run_once(), rig.janitor().run_once())
    assert await rig.states() == ["ready"] * len(jobs)
    assert await rig.letters() == []


async def test_dead_workers_and_nodes_are_forgotten_after_an_hour(rig: Rig) -> None:
    await rig.worker()
    sweeper = rig.sweeper()
    for _ in range(round(LEASE_S) + 1):
        await sweeper.run_once()
        rig.move(1)
    assert len(rig.of(WorkerLost)) == 1
    await rig.execute("INSERT INTO sexton.nodes VALUES (gen_random_uuid(), 'gone', $1, $1)", NOW)
    for span_s, left in ((3000.0, 1), (700.0, 0)):
        rig.move(span_s)
        await rig.janitor().run_once()
        assert len(await rig.execute("SELECT FROM sexton.workers")) == left
        assert len(await rig.execute("SELECT FROM sexton.nodes")) == left


async def test_output_without_an_end_is_deleted(rig: Rig) -> None:
    """C13: live output of a run that has ended."""
    hand = await rig.worker()
    job_id = await rig.submit(timeout=0)
    await hand.take()
    hand.stage.handles[0].context.log("half way")
    await hand.worker.progress_writer.run_once()
    rig.move(3600)
    await rig.janitor().run_once()
    assert await rig.live_output(job_id) is not None, "it still runs"
    await rig.execute("UPDATE sexton.live_output SET token = 99")
    await rig.janitor().run_once()
    assert await rig.execute("SELECT FROM sexton.live_output") == []


async def test_slots_without_a_run_are_freed_and_logged(rig: Rig) -> None:
    """C10: they show a defect elsewhere, so the janitor logs them."""
    await rig.janitor().run_once()
    assert rig.of(SlotsRepaired) == []
    await rig.execute("INSERT INTO sexton.slots (key, n, run_id) VALUES ('stripe', 1, gen_random_uuid())")
    await rig.janitor().run_once()
    assert rig.of(SlotsRepaired) == [SlotsRepaired(1)]
