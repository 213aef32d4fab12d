"""Submission over the SDK's own pool: what is stored, keys, batches, threads, and how often workers are woken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from sexton import App, Context, InvalidSubmission, KeyReused, Request, Retry, Settings, Task, Unique
from sexton.client.submitter import PART
from sexton.client.throttle import WINDOW_S
from sexton.clock import ManualClock
from sexton.store.database import SUBMIT_LOCK_TIMEOUT_S
from sexton.store.fleet import workers
from sexton.store.postgres import waiting_pool
from sexton.store.work import jobs

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[App]:
    async with App(database_url) as app:
        yield app
    app.close_sync()


@pytest.fixture
def send(app: App) -> Task[..., None]:
    return sender(app)


@pytest.fixture
async def heard(connection: asyncpg.Connection[Any]) -> list[tuple[str, str]]:
    """Notifications, as (channel, payload)."""
    notified: list[tuple[str, str]] = []
    for channel in ("sexton_ready", "sexton_due"):
        await connection.add_listener(channel, lambda *heard: notified.append((heard[2], heard[3])))
    return notified


def sender(app: App) -> Task[..., None]:
    @app.task(queue="mail")
    def send(ctx: Context, user_id: int) -> None: ...

    return send


async def count(connection: asyncpg.Connection[Any]) -> int:
    return int(await connection.fetchval("SELECT count(*) FROM sexton.jobs"))


async def test_a_job_is_stored_as_submitted(app: App, send: Task[..., None]) -> None:
    """A1, A8."""
    submitted = await send.submit(user_id=42, name="welcome", tenant="acme", tags=["a"], submitted_by="ada")
    job = await app.job(submitted.id)
    assert (job.task, job.queue, job.tenant, job.name, job.tags) == ("send", "mail", "acme", "welcome", ["a"])
    assert (job.payload_json, job.submitted_by, job.status) == ('{"user_id": 42}', "ada", "pending")


async def test_a_job_may_be_due_later(database_url: str) -> None:
    """A1."""
    async with App(database_url, clock=ManualClock(NOW)) as app:
        send = sender(app)
        delayed = await app.job((await send.submit(user_id=1, delay="24h")).id)
        dated = await app.job((await send.submit(user_id=1, run_at=NOW + timedelta(days=3))).id)
    assert delayed.next_fire_at == NOW + timedelta(days=1)
    assert dated.next_fire_at == NOW + timedelta(days=3)
    assert (delayed.run_at, dated.run_at) == (delayed.next_fire_at, dated.next_fire_at)


async def test_a_task_of_another_program_is_submitted_by_name(app: App, connection: asyncpg.Connection[Any]) -> None:
    """A1: with the options that its workers registered; the caller's options override them."""
    options = {"queue": "far", "policy": {"retry": {"max_attempts": 1}, "max_lost": 9}}
    await workers.register_tasks(connection, {"elsewhere": options})
    submitted = await app.submit("elsewhere", {"n": 1}, deadline="1m")
    assert (await app.job(submitted.id)).queue == "far"
    policy = await connection.fetchval("SELECT policy::text FROM sexton.jobs WHERE id = $1", submitted.id)
    assert policy == '{"retry": {"max_attempts": 1}, "max_lost": 9, "deadline_s": 60.0}'


async def test_the_options_of_a_job_override_those_of_the_workers(app: App, connection: asyncpg.Connection[Any]) -> None:
    """A1: also if the caller resets an option to the product's default."""

    @app.task(retry=Retry.never())
    def once(ctx: Context) -> None: ...

    definition = app.registry.get("once")
    assert definition is not None
    await workers.register_tasks(connection, {"once": definition.options})
    submitted = await once.submit(retry=Retry())
    assert await connection.fetchval("SELECT policy::text FROM sexton.jobs WHERE id = $1", submitted.id) == '{"retry": {}}'


async def test_nothing_is_sent_when_an_argument_is_wrong(
    app: App, connection: asyncpg.Connection[Any], send: Task[..., None]
) -> None:
    """F2."""
    with pytest.raises(InvalidSubmission):
        await send.submit(user=1)
    with pytest.raises(InvalidSubmission):
        send.submit_sync(1, 2)
    with pytest.raises(InvalidSubmission):
        await app.submit_many([send.request(1), app.request("send", {"user": 1})])
    assert await count(connection) == 0


async def test_a_key_returns_the_first_job_again_and_rejects_another_body(app: App, send: Task[..., None]) -> None:
    """A10."""
    first = await send.submit(user_id=1, key="k")
    again = await send.submit(1, key="k", trace="another")
    assert (again.id, first.created, again.created) == (first.id, True, False)
    with pytest.raises(KeyReused) as reused:
        await send.submit(user_id=2, key="k")
    assert isinstance(reused.value.__cause__, asyncpg.PostgresError)


async def test_a_changed_decorator_does_not_make_a_retry_a_conflict(database_url: str, app: App) -> None:
    """A10: the first release submitted the job, the next one repeats the submission."""
    first = await sender(app).submit(user_id=1, key="k")
    async with App(database_url) as released:

        @released.task(queue="other", timeout="5m", retry=Retry.never())
        def send(ctx: Context, user_id: int) -> None: ...

        again = await send.submit(user_id=1, key="k")
    assert (again.id, again.created) == (first.id, False)


async def test_equal_jobs_are_one_if_the_task_says_so(app: App) -> None:
    """A10."""

    @app.task(unique=Unique.of("task", "payload.user_id"))
    def refresh(ctx: Context, user_id: int, why: str) -> None: ...

    first = await refresh.submit(1, "new")
    assert (await refresh.submit(1, "old")).id == first.id
    assert (await refresh.submit(2, "old")).id != first.id
    assert (await refresh.options(unique=False).submit(1, "new")).id != first.id


async def test_a_large_batch_is_split_and_still_atomic(
    app: App, connection: asyncpg.Connection[Any], send: Task[..., None]
) -> None:
    """A11, F4: 25,000 in many statements and one transaction."""
    answers = await app.submit_many(send.request(n) for n in range(25_000))
    assert len({answer.id for answer in answers}) == 25_000
    assert await count(connection) == 25_000
    users = await connection.fetch("SELECT payload->>'user_id' AS n FROM sexton.jobs ORDER BY id")
    assert [int(row["n"]) for row in users] == list(range(25_000))


@pytest.mark.parametrize("bad", [0, 12_345, 24_999])
async def test_one_invalid_job_in_a_large_batch_stores_nothing(
    app: App, connection: asyncpg.Connection[Any], send: Task[..., None], bad: int
) -> None:
    """A11."""
    await send.submit(user_id=-1, key="taken")
    requests: list[Request] = [send.request(n) for n in range(25_000)]
    requests[bad] = send.request(bad, key="taken")
    with pytest.raises(KeyReused):
        await app.submit_many(requests)
    assert await count(connection) == 1


async def test_a_generator_that_fails_halfway_stores_nothing(
    app: App, connection: asyncpg.Connection[Any], send: Task[..., None]
) -> None:
    """A11: while the part before is still being sent; the connection stays usable."""

    def requests() -> Iterator[Request]:
        for number in range(2 * PART):
            yield send.request(number)
        raise LookupError("no more users")

    for _ in range(2):
        with pytest.raises(LookupError, match="no more users"):
            await app.submit_many(requests())
    assert await count(connection) == 0
    await send.submit(user_id=1)
    assert await count(connection) == 1


async def test_one_part_is_sent_while_the_next_is_built(
    app: App, send: Task[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """F4: the second part is not complete before half of the third was built; waiting for it first would never end."""
    real, is_half_made = jobs.submit_documents, asyncio.Event()
    begun: list[object] = []

    async def submit_documents(*arguments: Any, **options: Any) -> list[jobs.Submitted]:
        begun.append(arguments)
        if len(begun) == 2:
            async with asyncio.timeout(10):
                await is_half_made.wait()
        return await real(*arguments, **options)

    def requests() -> Iterator[Request]:
        for number in range(3 * PART):
            if number == 2 * PART + PART // 2:
                is_half_made.set()
            yield send.request(number)

    monkeypatch.setattr(jobs, "submit_documents", submit_documents)
    assert len(await app.submit_many(requests())) == 3 * PART
    assert len(begun) == 3


async def test_an_empty_batch_sends_nothing(app: App) -> None:
    """A11."""
    assert await app.submit_many([]) == []
    assert app.submit_many_sync([]) == []


async def test_it_all_works_through_a_transaction_pooler(pooled_url: str, connection: asyncpg.Connection[Any]) -> None:
    """A1, A11 and rule "session state only on direct connections", behind PgBouncer."""
    async with App(pooled_url) as app:
        send = sender(app)
        assert not (await app.database()).direct
        first, again = [await send.submit(user_id=1, key="k") for _ in range(2)]
        assert (again.id, again.created) == (first.id, False)
        await asyncio.gather(*(send.submit(user_id=n) for n in range(20)))
        await app.submit_many(send.request(n) for n in range(10_001))
        assert (await app.cancel(first.id)).ended_count == 1
    send.submit_sync(user_id=1)
    app.close_sync()
    assert await count(connection) == 10_023


async def test_plain_functions_submit_from_any_thread(
    connection: asyncpg.Connection[Any], app: App, send: Task[..., None]
) -> None:
    """A12, A1: also from the thread of a running event loop, which waits in the meantime."""
    assert send.submit_sync(user_id=0).created
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda n: send.submit_sync(user_id=n), range(40)))
    assert len({answer.id for answer in answers}) == 40
    assert len(app.submit_many_sync([send.request(n) for n in range(10)])) == 10
    assert app.submit_sync("elsewhere").created
    assert await count(connection) == 52


async def test_several_event_loops_share_an_app(connection: asyncpg.Connection[Any], app: App, send: Task[..., None]) -> None:
    """A1."""

    async def submit_some(n: int) -> None:
        async with app:
            await asyncio.gather(*(send.submit(user_id=n) for _ in range(5)))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: asyncio.run(submit_some(n)), range(8)))
    await send.submit(user_id=1)
    assert await count(connection) == 41


async def test_a_closed_app_opens_again(app: App, send: Task[..., None]) -> None:
    """A1."""
    await send.submit(user_id=1)
    send.submit_sync(user_id=1)
    await app.close()
    app.close_sync()
    app.close_sync()
    assert (await send.submit(user_id=1)).created
    assert send.submit_sync(user_id=1).created


async def test_a_burst_wakes_the_workers_of_a_queue_once(
    database_url: str, connection: asyncpg.Connection[Any], heard: list[tuple[str, str]]
) -> None:
    """B10: each notifying commit takes a cluster-wide lock; a woken worker looks again after the window by itself."""
    clock = ManualClock(NOW)
    async with App(database_url, clock=clock) as app:
        send = sender(app)
        for n in range(5):
            await send.submit(user_id=n)
        await send.submit(user_id=1, queue="other")
        clock.move(timedelta(seconds=WINDOW_S))
        await app.submit_many([send.request(6), send.request(7)])
        await connection.execute("SELECT 1")
        assert heard == [("sexton_ready", "mail"), ("sexton_ready", "other"), ("sexton_ready", "mail")]


async def test_a_submission_without_a_notification_does_not_delay_the_next_notification(
    database_url: str, connection: asyncpg.Connection[Any], heard: list[tuple[str, str]]
) -> None:
    """B10: a repeated key, a rejected submission and a job for later wake no worker, so the next submission still does."""
    clock = ManualClock(NOW)
    async with App(database_url, clock=clock) as app:
        send = sender(app)
        await send.submit(user_id=1, key="k")
        clock.move(timedelta(seconds=WINDOW_S))
        await send.submit(user_id=1, key="k")
        with pytest.raises(KeyReused):
            await send.submit(user_id=2, key="k")
        await send.submit(user_id=1, delay="1h")
        await send.submit(user_id=1)
        await connection.execute("SELECT 1")
        assert heard == [("sexton_ready", "mail")] * 2


async def test_a_job_that_is_due_soon_is_always_announced(
    database_url: str, connection: asyncpg.Connection[Any], heard: list[tuple[str, str]]
) -> None:
    """B8: schedulers have no second look, and workers of a queue unknown here may not have been woken."""
    async with App(database_url, clock=ManualClock(NOW)) as app:
        send = sender(app)
        await send.submit(user_id=1)
        await send.submit(user_id=1, delay="1s")
        await app.submit("elsewhere")
        await app.submit("elsewhere")
        await connection.execute("SELECT 1")
        assert heard == [("sexton_ready", "mail"), ("sexton_due", ""), *[("sexton_ready", "default")] * 2]


async def test_a_commit_too_late_for_the_second_look_notifies_too(
    database_url: str, connection: asyncpg.Connection[Any], heard: list[tuple[str, str]]
) -> None:
    """B10: no job waits for the next poll."""

    class SlowCommits(ManualClock):
        def database_now(self) -> datetime:  # called after the throttle and before the statement
            self.move(timedelta(seconds=WINDOW_S * 0.8))
            return super().database_now()

    async with App(database_url, clock=SlowCommits(NOW)) as app:
        send = sender(app)
        await send.submit(user_id=1)
        await send.submit(user_id=2)
        await connection.execute("SELECT 1")
        assert heard == [("sexton_ready", "mail")] * 2


async def test_wake_ups_can_be_switched_off(
    database_url: str, connection: asyncpg.Connection[Any], heard: list[tuple[str, str]]
) -> None:
    """B10."""
    async with App(database_url, settings=Settings(notify=False)) as app:
        send = sender(app)
        await send.submit(user_id=1)
        async with connection.transaction():
            await send.submit(user_id=1, connection=connection)
        await connection.execute("SELECT 1")
        assert heard == []


@pytest.fixture
async def patience(connection: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A submission waits until the other transaction has ended, however slow this machine is."""
    name = await connection.fetchval("SELECT quote_ident(current_database())")
    await connection.execute(f"ALTER DATABASE {name} SET sexton.submit_wait = '25s'")
    monkeypatch.setattr(waiting_pool, "PATIENCE_S", 25.0)


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("count", [1, 50])
async def test_callers_of_a_busy_key_leave_the_connections_to_the_others(database_url: str, count: int) -> None:
    """C19: rule "a waiting caller leaves the group". They wait as long as before, with one job or several in a call."""
    holder = await asyncpg.connect(database_url)
    async with App(database_url, settings=Settings(pool_size=2)) as app:
        send = sender(app)
        try:
            await holder.execute("BEGIN")
            await holder.execute("""SELECT sexton.submit('send', '{"user_id": 0}', queue => 'mail', key => 'k')""")
            calls = [
                app.submit_many([send.request(user_id=n, key="k" if n == 0 else None) for n in range(count)]) for _ in range(3)
            ]
            waiting = [asyncio.create_task(call) for call in calls]
            await asyncio.sleep(0)
            assert (await send.submit(user_id=1)).created
            assert not any(call.done() for call in waiting)
            await holder.execute("ROLLBACK")
            answers = await asyncio.gather(*waiting)
        finally:
            await holder.close()
    assert len({answer[0].id for answer in answers}) == 1


@pytest.mark.usefixtures("patience")
async def test_a_large_submission_waits_for_a_busy_key_as_before(app: App, send: Task[..., None], database_url: str) -> None:
    """A10, A11: it cannot start again on another connection, because its jobs may come from a generator."""
    holder = await asyncpg.connect(database_url)
    try:
        await holder.execute("BEGIN")
        await holder.execute("SELECT sexton.submit('send', key => 'k')")
        large = asyncio.create_task(
            app.submit_many(send.request(user_id=n, key="k" if n == 0 else None) for n in range(PART + 1))
        )
        query = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"
        while not await holder.fetchval(query):  # noqa: ASYNC110  (no notification for this)
            await asyncio.sleep(0.01)
        await asyncio.sleep(3 * SUBMIT_LOCK_TIMEOUT_S)
        assert not large.done()
        await holder.execute("ROLLBACK")
        assert len(await large) == PART + 1
    finally:
        await holder.close()
