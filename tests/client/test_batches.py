"""C17: batch tasks as a user declares, submits and tests them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest

from sexton import App, Batch, BatchContext, Retry, Run, testing
from sexton.errors import InvalidSubmission, PermanentError


class Mail(msgspec.Struct):
    user_id: int
    text: str = ""


@dataclass
class Point:
    x: int
    y: int = 0


class Row(TypedDict):
    id: int


class Late(msgspec.Struct):
    delay: int


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[App]:
    app = App(database_url)
    yield app
    await app.close()


async def test_the_fields_of_the_arguments_are_checked_when_a_job_is_submitted(app: App) -> None:
    @app.task(batch=Batch(10))
    async def send(ctx: BatchContext, runs: list[Run[Mail]]) -> None: ...

    await send.submit(user_id=42, tenant="acme")
    assert msgspec.json.decode(send.request(user_id=42, text="hi").submission.payload) == {"user_id": 42, "text": "hi"}
    with pytest.raises(InvalidSubmission, match="send has no such argument; it takes user_id, text"):
        await send.submit(user_id=42, subject="hi")
    with pytest.raises(InvalidSubmission, match="send needs this argument"):
        await send.submit(text="hi")
    with pytest.raises(InvalidSubmission, match="positional"):
        await send.submit(42)


@pytest.mark.parametrize(("kind", "fields"), [(Point, ("x", "y")), (Row, ("id",))])
async def test_dataclasses_and_typed_dicts_work_as_arguments(app: App, kind: Any, fields: tuple[str, ...]) -> None:
    async def send(ctx: BatchContext, runs: Any) -> None: ...

    send.__annotations__["runs"] = list[Run[kind]]
    task = app.task(batch=Batch(10))(send)
    assert task._parameters.names == fields


async def test_without_a_type_any_arguments_are_taken_as_a_dict(app: App) -> None:
    seen: list[Any] = []

    @app.task(batch=Batch(10))
    async def send(ctx: BatchContext, runs: list[Run[dict[str, Any]]]) -> None:
        seen.extend(run.args for run in runs)

    with testing.inline(app):
        await send.submit(anything=1)
    assert seen == [{"anything": 1}]


async def test_a_function_that_cannot_be_a_batch_task_is_refused(app: App) -> None:
    async def alone(ctx: BatchContext) -> None: ...
    async def numbers(ctx: BatchContext, runs: list[Run[int]]) -> None: ...
    async def unknown(ctx: BatchContext, runs: list[Run[Nowhere]]) -> None: ...  # type: ignore[name-defined]  # noqa: F821
    async def late(ctx: BatchContext, runs: list[Run[Late]]) -> None: ...
    async def send(ctx: BatchContext, runs: list[Run[Mail]]) -> None: ...

    refused: tuple[tuple[Any, Any, str], ...] = (
        (alone, (), "takes a context and its runs"),
        (numbers, (), "cannot be the arguments of a run"),
        (unknown, (), "define it at the top level of its module"),
        (late, (), "the parameter 'delay' has the name of a submission option"),
        (send, "region", "batch.by='region' is no argument of its runs; they have text, user_id"),
    )
    for fn, by, message in refused:
        with pytest.raises(TypeError, match=message):
            app.task(batch=Batch(10, by=by))(fn)


class TestInline:
    async def test_a_submitted_list_is_a_batch_and_a_single_job_is_a_call(self, app: App) -> None:
        sizes: list[int] = []

        @app.task(batch=Batch(3))
        async def send(ctx: BatchContext, runs: list[Run[Mail]]) -> list[int]:
            sizes.append(len(runs))
            ctx.succeed(runs[0], "first")
            return [run.args.user_id for run in runs]

        with testing.inline(app) as inline:
            jobs = await app.submit_many([send.request(user_id=n) for n in range(5)])
            assert [await job.result() for job in jobs] == ["first", 1, 2, "first", 4]
            assert await send.submit_sync(user_id=9).result() == "first"
        assert sizes == [3, 2, 1]
        assert len(inline.requests) == 6

    async def test_runs_are_kept_apart_as_in_a_worker(self, app: App) -> None:
        seen: list[list[int]] = []

        @app.task(batch=Batch(9, by=("tenant", "text")))
        def send(ctx: BatchContext, runs: list[Run[Mail]]) -> None:
            seen.append([run.args.user_id for run in runs])

        with testing.inline(app):
            given = [("a", "x"), ("b", "x"), ("a", "y"), ("a", "x")]
            await app.submit_many([send.request(user_id=n, text=text, tenant=who) for n, (who, text) in enumerate(given)])
        assert seen == [[0, 3], [1], [2]]

    async def test_errors_reach_the_submitter(self, app: App) -> None:
        @app.task(batch=Batch(3))
        async def send(ctx: BatchContext, runs: list[Run[Mail]]) -> None:
            ctx.fail(runs[-1], ValueError("no such user"))

        with testing.inline(app):
            with pytest.raises(ValueError, match="no such user"):
                await send.submit(user_id=1)
            with pytest.raises(PermanentError, match="user_id"):
                await send.submit(user_id="one")


def crunch(ctx: BatchContext, runs: list[Run[Mail]]) -> list[Any]:
    """In a child process."""
    ctx.log(f"{len(runs)} runs")
    for run in runs:
        if run.args.text == "fail":
            assert ctx.fail(run, ValueError(f"no user {run.args.user_id}"))
            assert not ctx.succeed(run)
        elif run.args.text == "poison":
            os._exit(3)
        elif run.args.text == "snooze":
            ctx.snooze(run, "1h")
        elif run.args.text == "early":
            run.progress(0.5)
            ctx.succeed(run, "early")
    return [run.args.user_id for run in runs]


async def crunch_async(ctx: BatchContext, runs: list[Run[Mail]]) -> list[Any]:
    return crunch(ctx, runs)


class TestInThePipeline:
    async def test_a_batch_is_what_is_due_together(self, app: App) -> None:
        sizes: list[int] = []

        @app.task(batch=Batch(4, wait="1s"))
        async def send(ctx: BatchContext, runs: list[Run[Mail]]) -> list[int]:
            sizes.append(len(runs))
            return [run.args.user_id for run in runs]

        async with testing.pipeline(app) as pipeline:
            jobs = await app.submit_many([send.request(user_id=n) for n in range(6)])
            later = await send.submit(user_id=9, delay="1h")
            assert len(await pipeline.drain()) == 6
            assert [await job.result(timeout=0) for job in jobs] == list(range(6))
            pipeline.move("1h")
            (ended,) = await pipeline.drain()
            assert ended.status == "succeeded"
            assert await later.result(timeout=0) == 9
        assert sizes == [4, 2, 1]

    async def test_one_bad_run_is_found_and_retried_alone(self, app: App) -> None:
        sizes: list[int] = []

        @app.task(batch=Batch(8), retry=Retry.after("1h", jitter=0))
        async def send(ctx: BatchContext, runs: list[Run[Mail]]) -> None:
            sizes.append(len(runs))
            for run in runs:
                if run.args.user_id == 5 and run.attempt == 1:
                    raise ValueError("no such user")

        async with testing.pipeline(app) as pipeline:
            await app.submit_many([send.request(user_id=n) for n in range(8)])
            ended = await pipeline.drain()
            assert [one.status for one in ended if one.status != "released"].count("failed") == 1
            assert len(sizes) <= 2 * 3 + 1
            pipeline.move("1h")
            (last,) = await pipeline.drain()
            assert (last.status, last.attempt) == ("succeeded", 2)

    @pytest.mark.parametrize("fn", [crunch, crunch_async], ids=["def", "async"])
    async def test_a_child_process_decides_run_by_run(self, app: App, fn: Any) -> None:
        task = app.task(process=True, batch=Batch(9), retry=Retry.never())(fn)
        async with testing.pipeline(app) as pipeline:
            texts = ["", "fail", "early", "snooze"]
            jobs = await app.submit_many([task.request(user_id=n, text=text) for n, text in enumerate(texts)])
            await pipeline.drain()
            last = [(await app.executions(job.id))[-1] for job in jobs]
            assert [one.status for one in last] == ["succeeded", "failed", "succeeded", "snoozed"]
            assert [one.result_json for one in last] == ["0", None, '"early"', None]
            assert {one.output for one in last} == {"4 runs"}
            assert last[1].error is not None
            assert (last[1].error.type, last[1].error.message) == ("ValueError", "no user 1")

    async def test_a_run_that_ends_its_child_process_is_found_alone(self, app: App) -> None:
        task = app.task(process=True, batch=Batch(9), retry=Retry.never())(crunch)
        async with testing.pipeline(app) as pipeline:
            texts = ["", "", "poison", ""]
            jobs = await app.submit_many([task.request(user_id=n, text=text) for n, text in enumerate(texts)])
            await pipeline.drain()
            assert [(await app.job(job.id)).status for job in jobs] == ["completed", "completed", "failed", "completed"]
            assert {(await app.executions(job.id))[-1].attempt for job in jobs} == {1}
