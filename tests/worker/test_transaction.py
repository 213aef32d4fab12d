"""C6c: `ctx.transaction()` commits the handler's own writes and the end of its run together, or neither."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from sexton.domain.job import RESULT_BYTES_LIMIT
from sexton.domain.retry import Retry
from sexton.errors import LeaseLost, PermanentError
from sexton.handlers.context import Context
from sexton.store.database import Postgres
from sexton.store.work import runs
from sexton.telemetry import events
from tests.rig import LONG_S, Between, HandWorker, Rig, settle

EFFECT = "INSERT INTO public.effects (job_id) VALUES ('{}')"


@pytest.fixture
async def rig(rig: Rig) -> Rig:
    await rig.execute("CREATE TABLE public.effects (job_id uuid NOT NULL)")
    return rig


async def effects(rig: Rig) -> int:
    return len(await rig.execute("SELECT FROM public.effects"))


async def started(rig: Rig, *, database: Between | None = None, **options: Any) -> tuple[HandWorker, UUID, Context]:
    hand = await rig.worker(database=database)
    job_id = await rig.submit(**options)
    await hand.take()
    return hand, job_id, hand.stage.handles[0].context


async def take_over(rig: Rig) -> None:
    await rig.execute("DELETE FROM sexton.workers")
    await rig.sweeper().run_once()


# Each way returns a connection inside a transaction that the handler has begun, and a function that runs a statement on it.
Statement = Callable[[str], Any]
Own = Callable[[str], Any]


@asynccontextmanager
async def by_asyncpg(url: str) -> AsyncIterator[tuple[object, Statement]]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield connection, connection.execute
    finally:
        await connection.close()


@asynccontextmanager
async def by_psycopg(url: str) -> AsyncIterator[tuple[object, Statement]]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection, connection.execute


@asynccontextmanager
async def by_sqlalchemy_connection(url: str) -> AsyncIterator[tuple[object, Statement]]:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    try:
        async with engine.begin() as connection:
            yield connection, lambda query: connection.execute(sqlalchemy.text(query))
    finally:
        await engine.dispose()


@asynccontextmanager
async def by_sqlalchemy_session(url: str) -> AsyncIterator[tuple[object, Statement]]:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        async with AsyncSession(engine) as session, session.begin():
            yield session, lambda query: session.execute(sqlalchemy.text(query))
    finally:
        await engine.dispose()


OWN_WAYS = pytest.mark.parametrize(
    "own", [by_asyncpg, by_psycopg, by_sqlalchemy_connection, by_sqlalchemy_session], ids=lambda way: way.__name__[3:]
)


class TestOnOurPool:
    async def test_effect_and_end_commit_together(self, rig: Rig) -> None:
        hand, job_id, context = await started(rig, key="k")
        async with context.transaction() as connection:
            await connection.execute(EFFECT.format(job_id))
            assert await effects(rig) == 0
            assert await rig.state(job_id) == "running"
        assert await effects(rig) == 1
        assert await rig.status(job_id) == "completed"
        assert [row[0] for row in await rig.execute("SELECT completed_at IS NOT NULL FROM sexton.idempotency_keys")] == [True]
        hand.stage.handles[0].returns()
        await hand.report()
        assert await rig.statuses(job_id) == ["succeeded"]
        (ended,) = rig.of(events.Ended)
        assert (ended.status, ended.ending) == ("succeeded", "completed")
        assert rig.of(events.LeaseLost) == []
        assert hand.intake.slots.used == 0

    @pytest.mark.parametrize("end", ["raises", "declared dead"])
    async def test_events_after_the_commit_do_not_change_the_outcome(self, rig: Rig, end: str) -> None:
        """C6: the history has its success, so the event is a success too, whatever happens to the handler or the worker
        afterwards."""
        hand, job_id, context = await started(rig)
        async with context.transaction() as connection:
            await connection.execute(EFFECT.format(job_id))
        if end == "raises":
            hand.stage.handles[0].raises(ValueError("after the commit"))
        else:
            hand.worker.declared_lost(hand.worker.worker_id)
        await hand.report()
        assert await rig.statuses(job_id) == ["succeeded"]
        assert [(event.status, event.ending) for event in rig.of(events.Ended)] == [("succeeded", "completed")]
        assert rig.of(events.LeaseLost) == []

    async def test_the_result_and_the_output_given_inside_are_kept(self, rig: Rig) -> None:
        """C13, C14."""
        hand, job_id, context = await started(rig)
        transaction = context.transaction()
        async with transaction:
            context.log("paid")
            context.progress(1.0)
            transaction.result = {"invoice": 7}
        hand.stage.handles[0].returns("what it returns comes too late")
        await hand.report()
        execution = await rig.last(job_id)
        assert (execution.result_json, execution.output, execution.progress_json) == (
            '{"invoice": 7}',
            "paid",
            '{"fraction": 1.0}',
        )

    async def test_an_error_inside_rolls_everything_back_and_fails_the_attempt(self, rig: Rig) -> None:
        hand, job_id, context = await started(rig, retry=Retry.after(30))

        async def pays() -> None:
            async with context.transaction() as connection:
                await connection.execute(EFFECT.format(job_id))
                raise ValueError("no luck")

        with pytest.raises(ValueError, match="no luck") as raised:
            await pays()
        hand.stage.handles[0].raises(raised.value)
        await hand.report()
        assert await effects(rig) == 0
        assert await rig.state(job_id) == "waiting"
        assert await rig.statuses(job_id) == ["failed"]

    async def test_a_failed_statement_whose_error_was_ignored_commits_nothing(self, rig: Rig) -> None:
        """PostgreSQL answers COMMIT of a failed transaction with ROLLBACK; that must not count as a success."""
        _, job_id, context = await started(rig)

        async def pays() -> None:
            async with context.transaction() as connection:
                await connection.execute(EFFECT.format(job_id))
                with suppress(asyncpg.PostgresError):
                    await connection.execute("SELECT 1/0")

        with pytest.raises(Exception, match="current transaction is aborted"):
            await pays()
        assert await effects(rig) == 0
        assert await rig.state(job_id) == "running"

    async def test_a_lost_lease_rolls_everything_back(self, rig: Rig) -> None:
        """C4: the effect belongs to the worker that holds the run now."""
        hand, job_id, context = await started(rig)

        async def pays() -> None:
            async with context.transaction() as connection:
                await connection.execute(EFFECT.format(job_id))
                await take_over(rig)

        with pytest.raises(LeaseLost) as raised:
            await pays()
        assert await rig.execute("SELECT FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'") == [], "at once"
        hand.stage.handles[0].raises(raised.value)
        await hand.report()
        assert await effects(rig) == 0
        assert await rig.state(job_id) == "ready"
        assert await rig.statuses(job_id) == ["lost"]

    async def test_a_sweeper_waits_for_the_end_of_a_transaction_and_then_changes_nothing(self, rig: Rig) -> None:
        """C6: the session that locks the run first decides; the other changes nothing."""
        between = Between(rig.database)
        _, job_id, context = await started(rig, database=between)

        async def sweeps() -> None:
            await take_over(rig)

        between.after("finish", sweeps)
        async with context.transaction() as connection:
            await connection.execute(EFFECT.format(job_id))
        assert await effects(rig) == 1
        assert await rig.statuses(job_id) == ["succeeded"]

    async def test_a_result_that_cannot_be_stored_rolls_everything_back(self, rig: Rig) -> None:
        """C14: unlike a return value, it is known before the commit."""
        _, job_id, context = await started(rig)

        async def pays() -> None:
            transaction = context.transaction()
            async with transaction as connection:
                await connection.execute(EFFECT.format(job_id))
                transaction.result = "x" * RESULT_BYTES_LIMIT

        with pytest.raises(PermanentError, match="the limit is 65,536"):
            await pays()
        assert await effects(rig) == 0
        assert await rig.state(job_id) == "running"

    async def test_a_cancel_during_the_transaction_does_not_undo_it(self, rig: Rig) -> None:
        """A5."""
        _, job_id, context = await started(rig)
        async with context.transaction() as connection:
            await rig.cancel(job_id)
            await connection.execute(EFFECT.format(job_id))
        assert await effects(rig) == 1
        assert await rig.status(job_id) == "completed"

    async def test_a_handler_that_continues_after_its_transaction_is_not_stopped(self, rig: Rig) -> None:
        """Its run has ended by its own transaction; that is not a lost lease."""
        hand, _, context = await started(rig, timeout=0)
        async with context.transaction():
            pass
        for _ in range(3):
            rig.move(1)
            await hand.beat()
        (handle,) = hand.stage.handles
        assert not handle.asked
        handle.returns()
        await hand.report()
        assert rig.of(events.LeaseLost) == []

    async def test_a_heartbeat_during_its_last_statement_does_not_stop_it(self, rig: Rig) -> None:
        between = Between(rig.database)
        hand, _, context = await started(rig, database=between)

        async def beats() -> None:
            await hand.beat()

        for moment in (between.before, between.after):
            moment("finish", beats)
        async with context.transaction():
            pass
        await hand.beat()
        assert not hand.stage.handles[0].asked

    async def test_a_transaction_that_rolled_back_can_still_lose_its_lease(self, rig: Rig) -> None:
        """C4: this time another session removes the row."""
        between = Between(rig.database)
        hand, _, context = await started(rig, database=between, timeout=0)
        between.refuse("finish")
        with pytest.raises(Exception, match="gone"):
            async with context.transaction():
                pass
        await rig.execute("UPDATE sexton.workers SET lost_at = $1", rig.clock.database_now())
        await rig.sweeper().run_once()
        await rig.execute("UPDATE sexton.workers SET lost_at = NULL")
        await hand.beat()
        assert hand.stage.handles[0].asked

    async def test_a_real_async_handler_uses_it(self, rig: Rig) -> None:
        async def pays(ctx: Context) -> str:
            async with ctx.transaction() as connection:
                await connection.execute(EFFECT.format(ctx.job_id))
            return "not kept"

        hand = await rig.worker(pays, tasks=())
        job_id = await rig.submit("pays")
        await hand.take()
        await hand.ends()
        assert await effects(rig) == 1
        assert (await rig.last(job_id)).result_json is None

    async def test_a_plain_function_is_asked_to_pass_its_connection(self, rig: Rig) -> None:
        _, _, context = await started(rig)
        with pytest.raises(TypeError, match=r"with ctx\.transaction\(connection\)"), context.transaction():
            pass


class TestOnTheirConnection:
    @OWN_WAYS
    async def test_effect_and_end_commit_together(self, rig: Rig, database_url: str, own: Own) -> None:
        hand, job_id, context = await started(rig)
        async with own(database_url) as (connection, execute):
            async with context.transaction(connection):
                await execute(EFFECT.format(job_id))
            assert await rig.state(job_id) == "running", "the commit is theirs"
            assert await effects(rig) == 0
        assert await effects(rig) == 1
        hand.stage.handles[0].returns()
        await hand.report()
        assert await rig.statuses(job_id) == ["succeeded"]

    @OWN_WAYS
    async def test_a_rollback_by_the_library_takes_the_end_back_too(self, rig: Rig, database_url: str, own: Own) -> None:
        hand, job_id, context = await started(rig, retry=Retry.immediate())
        error = ValueError("no luck")

        async def pays() -> None:
            async with own(database_url) as (connection, execute):
                async with context.transaction(connection):
                    await execute(EFFECT.format(job_id))
                raise error

        with pytest.raises(ValueError, match="no luck"):
            await pays()
        assert await effects(rig) == 0
        assert await rig.state(job_id) == "running"
        hand.stage.handles[0].raises(error)
        await hand.report()
        assert await rig.statuses(job_id) == ["failed"]
        assert await rig.state(job_id) == "ready"

    @OWN_WAYS
    async def test_a_lost_lease_commits_nothing(self, rig: Rig, database_url: str, own: Own) -> None:
        _, job_id, context = await started(rig)

        async def pays() -> None:
            async with own(database_url) as (connection, execute), context.transaction(connection):
                await execute(EFFECT.format(job_id))
                await take_over(rig)

        with pytest.raises(LeaseLost):
            await pays()
        assert await effects(rig) == 0
        assert await rig.state(job_id) == "ready"

    async def test_a_plain_function_with_psycopg(self, rig: Rig, database_url: str) -> None:
        def pays(ctx: Context) -> None:
            with psycopg.connect(database_url) as connection, ctx.transaction(connection):
                connection.execute(EFFECT.format(ctx.job_id).encode())

        hand = await rig.worker(pays, tasks=())
        job_id = await rig.submit("pays")
        await hand.take()
        await hand.ends()
        assert await effects(rig) == 1
        assert await rig.status(job_id) == "completed"

    async def test_a_plain_function_with_sqlalchemy_that_fails(self, rig: Rig, database_url: str) -> None:
        engine = sqlalchemy.create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"))

        def pays(ctx: Context) -> None:
            with engine.begin() as connection, ctx.transaction(connection):
                connection.execute(sqlalchemy.text(EFFECT.format(ctx.job_id)))
                raise ValueError("no luck")

        hand = await rig.worker(pays, tasks=())
        job_id = await rig.submit("pays", retry=Retry.never())
        await hand.take()
        await hand.ends()
        engine.dispose()
        assert await effects(rig) == 0
        assert await rig.status(job_id) == "failed"

    async def test_a_connection_of_the_wrong_kind_is_named(self, rig: Rig) -> None:
        _, _, context = await started(rig)
        with pytest.raises(TypeError, match=r"builtins\.object"):
            async with context.transaction(object()):
                pass


async def test_handlers_in_transactions_keep_claims_and_reports_going(rig: Rig, database_url: str) -> None:
    """C1: they have a pool of their own, so that four slow transactions do not stop a worker."""
    small = await Postgres.open(database_url, size=1)
    own = await Postgres.open(database_url, size=1)
    try:
        hand = await rig.worker(database=small, transactions=own)
        await rig.submit_many(2)
        await hand.take()
        first, second = hand.stage.handles
        async with first.context.transaction():
            second.returns()
            async with asyncio.timeout(LONG_S):
                await hand.report()
        first.returns()
        await hand.report()
        assert await rig.states() == []
    finally:
        await small.close()
        await own.close()


async def test_the_end_of_a_run_has_one_statement_for_all_callers(rig: Rig) -> None:
    """Rule "one path in, one path out"."""
    between = Between(rig.database)
    hand, _, context = await started(rig, database=between)
    between.statements.clear()
    async with context.transaction():
        pass
    assert between.statements == ["finish"]
    assert runs.finish_statement([])[0] == runs._FINISH
    hand.stage.handles[0].returns()
    await settle()
