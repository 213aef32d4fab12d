"""What a submitter can read afterwards: the result (C14), status and history (A8, A9), cancel (A5), the dead letters (C7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from uuid import UUID, uuid4

import msgspec
import pytest

from sexton import App, Context, Filter, JobFailed, NotAllowedIn, NotFound, ResultTimeout, Submitted, Task
from sexton.domain import run
from sexton.domain.outcome import ErrorInfo, Failed, Outcome, Succeeded
from sexton.store.database import Postgres
from sexton.store.fleet import workers
from sexton.store.work import runs

BROKEN = Failed(ErrorInfo("ValueError", "broken"), permanent=True)


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[App]:
    async with App(database_url) as app:
        yield app
    app.close_sync()


@pytest.fixture
def work(app: App) -> Task[[], int]:
    @app.task
    def work(ctx: Context) -> int:
        return 42

    return work


async def end(database: Postgres, outcome: Outcome, *, result: object = None) -> None:
    """Does what a worker does with all waiting jobs."""
    worker_id = uuid4()
    async with database.connection() as connection:
        await workers.enlist(connection, worker_id, name="w", queues=["default"], tasks=["work"], concurrency=10)
        claimed = await runs.claim(connection, worker_id=worker_id, queues=["default"], tasks=["work"], limit=10, grace_s=10.0)
        raw = None if result is None else msgspec.Raw(msgspec.json.encode(result))
        reports = [run.report(one.lease, outcome, Random(1), started_s=0.0, took_s=0.1, result=raw) for one in claimed]
        assert await runs.finish(connection, reports)


async def buried(database: Postgres, work: Task[[], int], number: int) -> list[UUID]:
    answers = [await work.submit() for _ in range(number)]
    await end(database, BROKEN)
    return [answer.id for answer in answers]


async def test_a_result_can_be_awaited(database: Postgres, app: App, work: Task[[], int]) -> None:
    """C14: before the job ends, after it, and by its id alone."""
    submitted = await work.submit()
    waiting = asyncio.create_task(submitted.result(timeout="10s"))
    await asyncio.sleep(0)
    await end(database, Succeeded(), result={"sent": [1, 2]})
    assert await waiting == {"sent": [1, 2]}
    assert await submitted.result(timeout=0) == {"sent": [1, 2]}
    assert await app.result(submitted.id) == {"sent": [1, 2]}
    assert submitted.result_sync(timeout="10s") == {"sent": [1, 2]}


async def test_a_job_may_return_nothing(database: Postgres, work: Task[[], int]) -> None:
    """C14."""
    submitted = await work.submit()
    await end(database, Succeeded())
    assert await submitted.result() is None


async def test_a_failed_job_raises_its_error(database: Postgres, work: Task[[], int]) -> None:
    """C14."""
    submitted = await work.submit()
    await end(database, BROKEN)
    with pytest.raises(JobFailed, match="ValueError: broken") as failed:
        await submitted.result(timeout="10s")
    assert (failed.value.status, failed.value.error) == ("failed", "ValueError: broken")


async def test_waiting_for_a_live_job_times_out_and_the_job_continues(database: Postgres, work: Task[[], int]) -> None:
    """C14."""
    submitted = await work.submit()
    with pytest.raises(ResultTimeout, match=r"has not ended after 0\.03 s"):
        await submitted.result(timeout="30ms")
    with pytest.raises(ResultTimeout):
        submitted.result_sync(timeout=0)
    await end(database, Succeeded(), result=1)
    assert await submitted.result(timeout="10s") == 1


async def test_a_timeout_is_a_span(work: Task[[], int]) -> None:
    """F2."""
    submitted = await work.submit()
    with pytest.raises(ValueError, match="timeout: 'later' is not a duration"):
        await submitted.result(timeout="later")


async def test_a_pending_job_is_cancelled_and_an_ended_one_is_not(database: Postgres, app: App, work: Task[[], int]) -> None:
    """A5, A8."""
    submitted = await work.submit(delay="1h")
    assert (await app.cancel(submitted.id)).ended_count == 1
    assert (await app.job(submitted.id)).status == "cancelled"
    with pytest.raises(JobFailed, match="cancelled on request") as cancelled:
        await submitted.result()
    assert cancelled.value.status == "cancelled"
    with pytest.raises(NotAllowedIn):
        await app.cancel(submitted.id)
    with pytest.raises(NotFound):
        await app.cancel(uuid4())
    with pytest.raises(NotFound):
        await app.job(uuid4())


async def test_history_is_returned_on_request(database: Postgres, app: App, work: Task[[], int]) -> None:
    """A9, A8."""
    submitted = await work.submit()
    assert await app.executions(submitted.id) == []
    await end(database, Succeeded(), result=7)
    (execution,) = await app.executions(submitted.id)
    assert (execution.status, execution.attempt, execution.result_json) == ("succeeded", 1, "7")
    assert (await app.job(submitted.id)).status == "completed"


async def test_dead_letters_are_listed_and_shown(database: Postgres, app: App, work: Task[[], int]) -> None:
    """C7."""
    job_ids = await buried(database, work, 3)
    letters = await app.dead_letters.list()
    assert {letter.job_id for letter in letters} == set(job_ids)
    (newest,) = await app.dead_letters.list(limit=1)
    assert newest.id not in {letter.id for letter in await app.dead_letters.list(before=newest.id)}
    assert await app.dead_letters.show(newest.id) == newest
    assert await app.dead_letters.list(Filter(task="other")) == []
    with pytest.raises(NotFound):
        await app.dead_letters.show(uuid4())


async def test_dead_letters_are_replayed_by_id_or_by_filter_and_only_once(
    database: Postgres, app: App, work: Task[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """C7."""
    monkeypatch.setattr("sexton.client.dead_letters.PAGE", 2)
    job_ids = await buried(database, work, 5)
    letters = await app.dead_letters.list()

    tried = await app.dead_letters.replay(Filter(task="work"), dry_run=True)
    assert (len(tried.letter_ids), tried.replayed) == (5, [])
    one = await app.dead_letters.replay([letters[0].id])
    assert [run.job_id for run in one.replayed] == [letters[0].job_id]
    assert (await app.dead_letters.replay([letters[0].id])).replayed == []
    rest = await app.dead_letters.replay(Filter(task="work"))
    assert {run.job_id for run in rest.replayed} == set(job_ids) - {letters[0].job_id}

    await end(database, Succeeded(), result="replayed")
    assert await app.result(job_ids[0], timeout="10s") == "replayed"


async def test_dead_letters_are_discarded(database: Postgres, app: App, work: Task[[], int]) -> None:
    """C7."""
    await buried(database, work, 2)
    letters = await app.dead_letters.list()
    assert len(await app.dead_letters.discard(Filter(), dry_run=True)) == 2
    assert await app.dead_letters.discard([letters[0].id]) == [letters[0].id]
    assert await app.dead_letters.discard(Filter(permanent=True)) == [letters[1].id]
    assert await app.dead_letters.list() == []


def test_an_answer_prints_without_private_fields() -> None:
    assert repr(Submitted(UUID(int=1), True, None)) == f"Submitted(id={UUID(int=1)!r}, created=True)"  # type: ignore[arg-type]
