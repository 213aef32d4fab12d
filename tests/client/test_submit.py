"""Submission over the SDK's own pool: what arrives, keys, batches, threads, and how often workers are woken."""

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
from sexton.store.fleet import workers
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
    said: list[tuple[str, str]] = []
    for channel in ("sexton_ready", "sexton_due"):
        await connection.add_listener(channel, lambda *heard: said.append((heard[2], heard[3])))
    return said


def sender(app: App) -> Task[..., None]:
    @app.task(queue="mail")
    def send(ctx: Context, user_id: int) -> None: ...

    return send


async def count(connection: asyncpg.Connection[Any]) -> int:
    return int(await connection.fetchval("SELECT count(*) FROM sexton.jobs"))


async def test_a_job_arrives_as_it_was_said(app: App, send: Task[..., None]) -> None:
    """A1, A8."""
    submitted = await send.submit(user_id=42, name="welcome", tenant="acme", tags=["a"], submitted_by="ada")
    job = await app.job(submitted.id)
    assert (job.task, job.queue, job.tenant, job.name, job.tags) == ("send", "mail", "acme", "welcome", ["a"])
    assert (job.payload_json, job.submitted_by, job.status) == ('{"user_id": 42}', "ada", "pending")


async def test_a_job_may_be_for_later(database_url: str) -> None:
    """A1."""
    async with App(database_url, clock=ManualClock(NOW)) as app:
        send = sender(app)
        delayed = await app.job((await send.submit(user_id=1, delay="24h")).id)
        dated = await app.job((await send.submit(user_id=1, run_at=NOW + timedelta(days=3))).id)
    assert delayed.next_fire_at == NOW + timedelta(days=1)
    assert dated.next_fire_at == NOW + timedelta(days=3)


async def test_a_task_of_another_program_is_submitted_by_name(app: App, connection: asyncpg.Connection[Any]) -> None:
    """A1: with the options that its workers registered, laid under the caller's."""
    options = {"queue": "far", "policy": {"retry": {"max_attempts": 1}, "max_lost": 9}}
    await workers.register_tasks(connection, {"elsewhere": options})
    submitted = await app.submit("elsewhere", {"n": 1}, deadline="1m")
    assert (await app.job(submitted.id)).queue == "far"
    policy = await connection.fetchval("SELECT policy::text FROM sexton.jobs WHERE id = $1", submitted.id)
    assert policy == '{"retry": {"max_attempts": 1}, "max_lost": 9, "deadline_s": 60.0}'


async def test_what_a_job_says_outweighs_what_workers_registered(app: App, connection: asyncpg.Connection[Any]) -> None:
    """A1: also where it asks for the product's default back."""

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


async def test_a_key_gives_the_first_answer_again_and_refuses_another_body(app: App, send: Task[..., None]) -> None:
    """A10."""
    first = await send.submit(user_id=1, key="k")
    again = await send.submit(1, key="k", trace="another")
    assert (again.id, first.created, again.created) == (first.id, True, False)
    with pytest.raises(KeyReused) as reused:
        await send.submit(user_id=2, key="k")
    assert isinstance(reused.value.__cause__, asyncpg.PostgresError)


async def test_a_changed_decorator_does_not_make_a_retry_a_conflict(database_url: str, app: App) -> None:
    """A10: the first release submitted, the next one repeats."""
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


async def test_a_large_batch_is_split_and_still_one(
    app: App, connection: asyncpg.Connection[Any], send: Task[..., None]
) -> None:
    """A11, F4: 25,000 in many statements and one transaction."""
    answers = await app.submit_many(send.request(n) for n in range(25_000))
    assert len({answer.id for answer in answers}) == 25_000
    assert await count(connection) == 25_000
    users = await connection.fetch("SELECT payload->>'user_id' AS n FROM sexton.jobs ORDER BY id")
    assert [int(row["n"]) for row in users] == list(range(25_000))


@pytest.mark.parametrize("bad", [0, 12_345, 24_999])
async def test_one_bad_job_in_a_large_batch_leaves_nothing(
    app: App, connection: asyncpg.Connection[Any], send: Task[..., None], bad: int
) -> None:
    """A11."""
    await send.submit(user_id=-1, key="taken")
    requests: list[Request] = [send.request(n) for n in range(25_000)]
    requests[bad] = send.request(bad, key="taken")
    with pytest.raises(KeyReused):
        await app.submit_many(requests)
    assert await count(connection) == 1


async def test_a_generator_that_fails_halfway_leaves_nothing(
    app: App, connection: asyncpg.Connection[Any], send: Task[..., None]
) -> None:
    """A11: while the last part before it is still on its way; the connection is as good as before."""

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


async def test_one_part_is_sent_while_the_next_is_made(
    app: App, send: Task[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """F4: the second part is not there before half of the third was made; whoever waited for it first would wait in vain."""
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


async def test_an_empty_batch_is_no_work(app: App) -> None:
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
    """A12, A1: and from the thread of a running event loop, which waits meanwhile."""
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


async def test_what_notified_nobody_covers_nobody(
    database_url: str, connection: asyncpg.Connection[Any], heard: list[tuple[str, str]]
) -> None:
    """B10: a repeated key, a refused submission and a job for later wake no worker, so the next one still does."""
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


async def test_what_is_due_soon_is_always_announced(
    database_url: str, connection: asyncpg.Connection[Any], heard: list[tuple[str, str]]
) -> None:
    """B8: schedulers have no second look, and a queue unknown here may be one that nobody has woken."""
    async with App(database_url, clock=ManualClock(NOW)) as app:
        send = sender(app)
        await send.submit(user_id=1)
        await send.submit(user_id=1, delay="1s")
        await app.submit("elsewhere")
        await app.submit("elsewhere")
        await connection.execute("SELECT 1")
        assert heard == [("sexton_ready", "mail"), ("sexton_due", ""), *[("sexton_ready", "default")] * 2]


async def test_a_commit_that_came_too_late_for_the_second_look_notifies_after_all(
    database_url: str, connection: asyncpg.Connection[Any], heard: list[tuple[str, str]]
) -> None:
    """B10: nothing waits for the next poll."""

    class SlowCommits(ManualClock):
        def database_now(self) -> datetime:  # asked for after the throttle and before the statement
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
