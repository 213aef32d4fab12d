"""C4, C6c: `with ctx.transaction(connection)` in a plain function. The effect and the end of the run commit together or not at
all, and not at all once the lease is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from sexton.errors import LeaseLost
from sexton.handlers.context import Context
from tests.rig import HandWorker, Rig

Statement = Callable[[str], Any]
Own = Callable[[str], Any]


@contextmanager
def by_psycopg(url: str) -> Iterator[tuple[object, Statement]]:
    with psycopg.connect(url) as connection:
        yield connection, lambda query: connection.execute(query.encode())


@contextmanager
def by_sqlalchemy(url: str) -> Iterator[tuple[object, Statement]]:
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with engine.begin() as connection:
            yield connection, lambda query: connection.execute(sqlalchemy.text(query))
    finally:
        engine.dispose()


@contextmanager
def by_session(url: str) -> Iterator[tuple[object, Statement]]:
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with Session(engine) as session, session.begin():
            yield session, lambda query: session.execute(sqlalchemy.text(query))
    finally:
        engine.dispose()


OWN_WAYS = pytest.mark.parametrize("own", [by_psycopg, by_sqlalchemy, by_session])


@pytest.fixture
async def rig(rig: Rig) -> Rig:
    await rig.execute("CREATE TABLE public.effects (job_id uuid NOT NULL)")
    return rig


async def effects(rig: Rig) -> int:
    return len(await rig.execute("SELECT FROM public.effects"))


async def started(rig: Rig) -> tuple[HandWorker, UUID, Context, str]:
    hand = await rig.worker()
    job_id = await rig.submit(timeout=0)
    await hand.take()
    return hand, job_id, hand.stage.handles[0].context, f"INSERT INTO public.effects (job_id) VALUES ('{job_id}')"


async def sweep(rig: Rig) -> None:
    """The worker is declared dead for a moment, and its run is handed back."""
    await rig.execute("UPDATE sexton.workers SET lost_at = $1", rig.clock.database_now())
    await rig.sweeper().run_once()
    await rig.execute("UPDATE sexton.workers SET lost_at = NULL")


@OWN_WAYS
async def test_effect_and_end_commit_together(rig: Rig, database_url: str, own: Own) -> None:
    hand, job_id, context, effect = await started(rig)
    with own(database_url) as (connection, execute):
        with context.transaction(connection):
            execute(effect)
        assert await rig.state(job_id) == "running", "the commit is theirs"
    assert await effects(rig) == 1
    hand.stage.handles[0].returns()
    await hand.report()
    assert await rig.statuses(job_id) == ["succeeded"]


@OWN_WAYS
async def test_a_lost_lease_commits_nothing(rig: Rig, database_url: str, own: Own) -> None:
    _, job_id, context, effect = await started(rig)

    async def pays() -> None:
        with own(database_url) as (connection, execute), context.transaction(connection):
            execute(effect)
            await sweep(rig)

    with pytest.raises(LeaseLost):
        await pays()
    assert await effects(rig) == 0
    assert await rig.state(job_id) == "ready"


async def test_a_run_whose_end_failed_can_still_lose_its_lease(rig: Rig, database_url: str) -> None:
    """Only during its last statement may a run disappear without a lost lease."""
    hand, _, context, effect = await started(rig)

    def pays() -> None:
        with psycopg.connect(database_url) as connection, context.transaction(connection):
            connection.execute(effect.encode())
            with suppress(psycopg.Error):
                connection.execute(b"SELECT 1 / 0")

    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        pays()
    await sweep(rig)
    await hand.beat()
    assert hand.stage.handles[0].asked
