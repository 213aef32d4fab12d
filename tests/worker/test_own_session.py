"""Rule "dead only when watched", the worker's side: when its session ends, it announces another one or stops its handlers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from sexton.errors import DatabaseDown
from sexton.scheduler.ended_sessions import AWAY_S, LOOK_S
from sexton.service import Wake, repeat
from sexton.store.database import ClientEnd, Postgres, client_end
from sexton.store.fleet import workers
from sexton.telemetry.events import DeclaredLost, WorkerLost
from sexton.worker.heartbeat import AGAIN_S
from sexton.worker.own_session import ASK_AFTER_S, FORCE_AFTER_S, LEASE_S_MAX, OwnSession
from tests.rig import LEASE_S, HandWorker, Rig, settle

FIRST, SECOND, THIRD = ClientEnd(1), ClientEnd(2), ClientEnd(3)


@pytest.fixture
def session(rig: Rig) -> OwnSession:
    """One that is announced."""
    session = OwnSession(lease_s=LEASE_S, clock=rig.clock)
    announce(session, FIRST)
    return session


def announce(session: OwnSession, end: ClientEnd) -> None:
    session.answered(session.announcing(end), is_announced=True)


def verdict(rig: Rig, session: OwnSession, after_s: float) -> tuple[bool, bool]:
    rig.move(after_s)
    return session.should_ask, session.should_force


class TestOwnSession:
    def test_handlers_are_asked_and_then_forced_before_a_sweeper_acts(self, rig: Rig, session: OwnSession) -> None:
        assert ASK_AFTER_S < FORCE_AFTER_S < AWAY_S
        assert session.ended(1)
        assert verdict(rig, session, 0.3) == (False, False)
        assert verdict(rig, session, 0.1) == (True, False)
        assert verdict(rig, session, 0.3) == (True, True)

    def test_another_session_ends_the_danger(self, rig: Rig, session: OwnSession) -> None:
        session.ended(1)
        announce(session, SECOND)
        assert not session.ended(1), "no sweeper looks at the old one"
        assert verdict(rig, session, 60) == (False, False)

    def test_a_session_that_ends_behind_its_reply_announces_nothing(self, rig: Rig, session: OwnSession) -> None:
        announced = session.announcing(SECOND)
        session.ended(2)
        session.answered(announced, is_announced=True)
        assert verdict(rig, session, FORCE_AFTER_S) == (True, True)

    def test_a_reply_that_was_lost_may_have_announced_it(self, rig: Rig) -> None:
        session = OwnSession(lease_s=LEASE_S, clock=rig.clock)
        session.announcing(FIRST)
        assert session.ended(1)
        assert verdict(rig, session, FORCE_AFTER_S) == (True, True)

    def test_the_first_end_counts(self, rig: Rig, session: OwnSession) -> None:
        session.ended(1)
        rig.move(0.5)
        session.announcing(SECOND)
        session.ended(2)
        assert verdict(rig, session, FORCE_AFTER_S - 0.5) == (True, True)

    def test_a_heartbeat_is_urgent_once(self, session: OwnSession) -> None:
        """After that each failure has its backoff, however many sessions end meanwhile."""
        assert session.ended(1)
        session.announcing(SECOND)
        assert not session.ended(2)
        announce(session, THIRD)
        assert session.ended(3)

    def test_a_session_that_the_server_does_not_announce_stops_no_handler(self, rig: Rig, session: OwnSession) -> None:
        session.answered(session.announcing(SECOND), is_announced=False)
        assert not session.ended(2)
        assert verdict(rig, session, 60) == (False, False)

    def test_behind_a_pooler_and_with_a_long_lease_nothing_is_announced(self, rig: Rig, session: OwnSession) -> None:
        assert session.announcing(None) is None
        assert OwnSession(lease_s=LEASE_S_MAX + 1, clock=rig.clock).announcing(FIRST) is None

    def test_a_server_that_is_down_has_ended_the_sweepers_sessions_too(self, rig: Rig, session: OwnSession) -> None:
        session.ended(1)
        session.server_is_down()
        assert verdict(rig, session, 60) == (False, False)


@pytest.fixture
async def own(database_url: str) -> AsyncIterator[Postgres]:
    """The heartbeat's own connection."""
    database = await Postgres.open(database_url, size=1)
    yield database
    await database.close()


async def session_of(own: Postgres) -> int:
    async with own.connection() as connection:
        end = client_end(connection)
    assert end is not None
    return end.number


async def started(rig: Rig, own: Postgres, lease_s: float = LEASE_S, **options: Any) -> HandWorker:
    hand = await rig.worker(database=own, listens=False, lease_s=lease_s)
    await rig.submit(timeout=0, **options)
    await hand.take()
    return hand


async def test_a_worker_that_cannot_announce_another_session_stops_its_handlers(rig: Rig, own: Postgres) -> None:
    hand = await started(rig, own)
    (handle,) = hand.stage.handles
    assert hand.heartbeat.session_ended(await session_of(own))
    for after_s, asked, forced in ((ASK_AFTER_S - 0.1, False, False), (0.1, True, False), (0.3, True, True)):
        rig.move(after_s)
        assert hand.heartbeat.is_overdue is asked, "a worker in danger claims nothing"
        hand.heartbeat.watch()
        assert (handle.asked, handle.forced) == (asked, forced)
    await hand.beat()
    await hand.report()


@pytest.mark.parametrize("options", [{"delivery": "at_most_once"}, {"lease": 20}], ids=["at most once", "own lease"])
async def test_what_no_other_worker_gets_so_early_goes_on(rig: Rig, own: Postgres, options: dict[str, Any]) -> None:
    hand = await started(rig, own, **options)
    hand.heartbeat.session_ended(await session_of(own))
    rig.move(FORCE_AFTER_S)
    hand.heartbeat.watch()
    assert not hand.stage.handles[0].asked
    rig.move(LEASE_S if "delivery" in options else 20)
    hand.heartbeat.watch()
    assert hand.stage.handles[0].asked
    await hand.beat()
    await hand.report()


async def test_a_heartbeat_over_a_new_connection_is_all_it_takes(rig: Rig, own: Postgres) -> None:
    hand = await started(rig, own)
    hand.heartbeat.session_ended(await session_of(own))
    await own.renew()
    await hand.beat()
    rig.move(FORCE_AFTER_S)
    hand.heartbeat.watch()
    assert not hand.stage.handles[0].asked
    assert not hand.heartbeat.is_overdue


@pytest.mark.parametrize("options", [{"delivery": "at_most_once"}, {"lease": 20}], ids=["at most once", "own lease"])
async def test_and_is_reported_after_a_reconnect_that_took_long(
    rig: Rig, own: Postgres, database_url: str, options: dict[str, Any]
) -> None:
    """It took longer than a sweeper waits for a worker that has ended."""
    sweeps = await Postgres.open(database_url, size=1)
    sweeper = rig.sweeper(sweeps, sweep_s=LOOK_S)
    hand = await started(rig, own, **options)
    await sweeper.run_once()
    number = await session_of(own)
    (announced,) = await rig.execute("SELECT session FROM sexton.workers")
    await own.renew()
    await session_of(own)
    while not (await rig.execute("SELECT sexton.has_ended($1) AS it", announced["session"]))[0]["it"]:
        pass
    hand.heartbeat.session_ended(number)
    for _ in range(4):
        rig.move(LOOK_S)
        await sweeper.run_once()
        hand.heartbeat.watch()
    await hand.beat()
    assert (rig.of(WorkerLost), rig.of(DeclaredLost)) == ([], [])
    (handle,) = hand.stage.handles
    assert not handle.asked
    handle.returns()
    await hand.report()
    assert await rig.status(handle.call.job_id) == "completed"
    await sweeps.close()


async def test_a_session_that_ended_right_behind_the_reply_is_replaced_soon(
    rig: Rig, own: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = await started(rig, own)
    number, beat = await session_of(own), workers.beat

    async def beat_and_end(*arguments: Any, **options: Any) -> workers.Beaten | None:
        beaten = await beat(*arguments, **options)
        hand.heartbeat.session_ended(number)
        return beaten

    with monkeypatch.context() as patched:
        patched.setattr(workers, "beat", beat_and_end)
        assert await hand.beat() == AGAIN_S < ASK_AFTER_S
    assert await hand.beat() > AGAIN_S


class RestsOf5S(Wake):
    """By the test's clock. It ends the loop after that, or after a hundred rests."""

    def __init__(self, rig: Rig) -> None:
        super().__init__()
        self.rig, self.ends_at, self.rest_count = rig, rig.clock.monotonic() + 5, 0

    async def rest(self, rest_s: float) -> bool:
        await settle()  # for what the connections that a pass has closed tell
        self.rest_count += 1
        woken = self.is_set
        self.clear()
        if not woken:
            self.rig.move(rest_s)
        if self.rest_count == 100 or self.rig.clock.monotonic() >= self.ends_at:
            raise asyncio.CancelledError
        return woken


class Beating:
    name = "heartbeat"

    def __init__(self, hand: HandWorker) -> None:
        self.run_once = hand.beat


async def test_a_full_disk_is_waited_for_over_the_same_session(rig: Rig, database_url: str) -> None:
    """A heartbeat that the server refuses is no sign that it cannot be reached: no handler stops, and there is a backoff."""
    wake, ended = RestsOf5S(rig), []

    def tell(number: int) -> None:
        ended.append(number)
        if hand.heartbeat.session_ended(number):
            wake()

    own = await Postgres.open(database_url, size=1, ended=tell)
    hand = await started(rig, own, lease_s=8)
    number = await session_of(own)
    await rig.execute(
        "CREATE FUNCTION public.is_full() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = '53100'; END $$"
    )
    await rig.execute("CREATE TRIGGER is_full BEFORE UPDATE ON sexton.workers FOR EACH ROW EXECUTE FUNCTION public.is_full()")
    with suppress(asyncio.CancelledError):
        await repeat(Beating(hand), wake, clock=rig.clock, emit=rig.heard, rng=rig.rng)
    assert wake.rest_count <= 10
    hand.heartbeat.watch()
    assert not hand.stage.handles[0].asked
    assert not hand.heartbeat.is_overdue
    assert (await session_of(own), ended) == (number, [])
    await own.close()


async def test_while_the_server_is_down_the_lease_alone_counts(
    rig: Rig, own: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = await started(rig, own)
    hand.heartbeat.session_ended(await session_of(own))

    def down() -> None:
        raise DatabaseDown("the database system is starting up")

    with monkeypatch.context() as patched:
        patched.setattr(own, "connection", down)
        with pytest.raises(DatabaseDown):
            await hand.beat()
    rig.move(FORCE_AFTER_S)
    hand.heartbeat.watch()
    assert not hand.stage.handles[0].asked


async def test_a_pool_tells_at_once_which_of_its_connections_has_ended(database_url: str, own: Postgres) -> None:
    told: asyncio.Queue[int] = asyncio.Queue()
    watched = await Postgres.open(database_url, size=1, ended=told.put_nowait)
    number = await session_of(watched)
    async with watched.connection() as connection:
        (row,) = await connection.fetch("SELECT pg_backend_pid() AS pid")
    async with own.connection() as connection:
        await connection.fetch("SELECT pg_terminate_backend($1)", row["pid"])
    async with asyncio.timeout(30):
        assert await told.get() == number
    assert await session_of(watched) != number
    await watched.close()
