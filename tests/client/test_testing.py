"""E10: the test kit, as a user would use it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from sexton import App, Context, Retry, testing
from sexton.errors import UnknownTask
from sexton.operations.recurring import recurring_jobs
from tests.callers import TESTER


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[App]:
    app = App(database_url)
    yield app
    await app.close()


async def test_inline_runs_the_handler_where_it_is_submitted(app: App) -> None:
    @app.task
    async def double(ctx: Context, number: int) -> dict[str, int]:
        return {"doubled": number * 2, "attempt": ctx.attempt}

    with testing.inline(app) as inline:
        submitted = await double.submit(number=21, delay="24h")
        assert await submitted.result() == {"doubled": 42, "attempt": 1}
        assert [request.submission.delay_s for request in inline.requests] == [86400]
        with pytest.raises(UnknownTask, match="elsewhere"):
            await app.submit("elsewhere", {})
    assert (await app.submit("elsewhere", {})).created  # after the block it goes to the database again


async def test_inline_raises_exceptions_and_runs_plain_functions(app: App) -> None:
    @app.task
    def divide(ctx: Context, by: int) -> float:
        return 1 / by

    with testing.inline(app):
        assert await (await divide.submit(by=2)).result() == 0.5
        with pytest.raises(ZeroDivisionError):
            await divide.submit(by=0)


async def test_a_delayed_job_runs_at_its_due_time(app: App) -> None:
    """A1, C14"""

    @app.task
    async def greet(ctx: Context, who: str) -> str:
        return f"hello {who}"

    async with testing.pipeline(app) as pipeline:
        submitted = await greet.submit(who="you", delay="24h")
        assert await pipeline.drain() == []
        pipeline.move("23h")
        assert await pipeline.drain() == []
        pipeline.move("1h")
        (ended,) = await pipeline.drain()
        assert (ended.status, ended.lag_s) == ("succeeded", 0.0)
        assert await submitted.result(timeout=0) == "hello you"


async def test_retries_wait_in_moved_time(app: App) -> None:
    """C5"""
    attempts = []

    @app.task(retry=Retry.after("1s", "1h", jitter=0))
    async def flaky(ctx: Context) -> None:
        attempts.append((ctx.attempt, pipeline.now))
        if ctx.attempt < 3:
            raise ConnectionError("not yet")

    async with testing.pipeline(app) as pipeline:
        submitted = await flaky.submit()
        start = pipeline.now
        statuses = [ended.status for ended in await pipeline.drain()]
        while await pipeline.move_to_next():
            statuses += [ended.status for ended in await pipeline.drain()]
        assert statuses == ["failed", "failed", "succeeded"]
        assert [(number, (at - start).total_seconds()) for number, at in attempts] == [(1, 0), (2, 1), (3, 3601)]
        assert (await app.job(submitted.id)).status == "completed"


async def test_all_kinds_of_functions_and_jobs_that_submit_jobs(app: App) -> None:
    """C2, C11"""

    @app.task(queue="mail")
    def in_a_thread(ctx: Context, n: int) -> int:
        return n + 1

    @app.task
    async def parent(ctx: Context) -> None:
        await asyncio.gather(*(in_a_thread.submit(n=n) for n in range(3)))

    async with testing.pipeline(app) as pipeline:
        await parent.submit()
        ended = await pipeline.drain()
    assert sorted(event.task for event in ended) == ["in_a_thread"] * 3 + ["parent"]
    assert {event.status for event in ended} == {"succeeded"}


async def test_two_days_of_a_recurring_job_pass_at_once(app: App) -> None:
    """A4, B3, B4: through the night in which New York's clocks go forward."""
    fired: list[tuple[datetime, str | None]] = []

    @app.cron("30 2 * * *", timezone="America/New_York", retry=Retry.after("10m", jitter=0))
    async def nightly(ctx: Context) -> None:
        fired.append((pipeline.now, None if ctx.previous is None else ctx.previous.status))
        if len(fired) == 1:
            raise ConnectionError("not yet")

    async with testing.pipeline(app, start=datetime(2026, 3, 7, tzinfo=UTC)) as pipeline:
        assert (await pipeline.sync()).created == ["nightly"]
        ended = await pipeline.live_through("48h")
        assert pipeline.now == datetime(2026, 3, 9, tzinfo=UTC)
    assert [event.status for event in ended] == ["failed", "succeeded", "succeeded"]
    assert fired == [
        (datetime(2026, 3, 7, 7, 30, tzinfo=UTC), None),
        (datetime(2026, 3, 7, 7, 40, tzinfo=UTC), None),  # the retry is of the same fire
        (datetime(2026, 3, 8, 7, 0, tzinfo=UTC), "succeeded"),  # 02:30 does not exist on that day: the first instant after it
    ]


async def test_a_single_jump_in_time_is_an_outage(app: App) -> None:
    """B6: the latest fire is caught up, the others are in the ledger."""

    @app.task
    async def tick(ctx: Context) -> None: ...

    async with testing.pipeline(app) as pipeline:
        scheduled = await tick.schedule(every="10m")
        pipeline.move("2h")
        assert len(await pipeline.drain()) == 1
        tries = await app.executions(scheduled.id)
    assert sorted(one.status for one in tries) == ["missed", "succeeded"]
    assert [one.reason for one in tries if one.status == "missed"] == ["11 fires: missed, and only the latest one is caught up"]


async def test_a_pause_that_ends_by_itself_ends_in_moved_time(app: App) -> None:
    """A6."""

    @app.task
    async def tick(ctx: Context) -> None: ...

    async with testing.pipeline(app) as pipeline:
        scheduled = await tick.schedule(every="1h")
        async with (await app.database()).transaction() as connection:
            resume_at = pipeline.now + timedelta(hours=3)
            await recurring_jobs.pause(
                connection, TESTER, scheduled.id, recurring_jobs.Pause(resume_at=resume_at), now=pipeline.now
            )
        assert await pipeline.live_through("3h") == []
        assert len(await pipeline.live_through("1h")) == 1


async def test_inline_stores_schedules_and_fires_none(app: App) -> None:
    @app.task
    async def tick(ctx: Context) -> None:
        raise AssertionError

    with testing.inline(app) as inline:
        assert (await tick.schedule(cron="@daily", name="n")).created
        assert tick.schedule_sync(cron="@daily").created
    assert [request.document.name for request in inline.schedules] == ["n", None]


def test_a_temporary_server_starts_migrated() -> None:
    with testing.postgres() as url:
        app = App(url)
        assert app.submit_sync("anything", {}).created
        app.close_sync()


async def test_a_plain_task_may_submit_another_inline(app: App) -> None:
    """In production it has a thread of its own."""

    @app.task
    def second(ctx: Context, number: int) -> int:
        return number + 1

    @app.task
    def first(ctx: Context) -> int:
        return int(second.submit_sync(number=1).result_sync())

    with testing.inline(app) as inline:
        assert await (await first.submit()).result() == 2
        assert await asyncio.to_thread(lambda: first.submit_sync().result_sync()) == 2
    assert [request.submission.task for request in inline.requests] == ["first", "second"] * 2


async def test_no_thread_is_left_behind(app: App) -> None:
    @app.task
    def plain(ctx: Context) -> None: ...

    def count() -> int:
        return sum(thread.name.startswith("sexton-handler") for thread in threading.enumerate())

    before = count()
    async with testing.pipeline(app) as pipeline:
        for _ in range(5):
            await plain.submit()
            await pipeline.drain()
    async with asyncio.timeout(5):
        while count() > before:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
