"""Rule "dead only when watched": whose sessions have ended for good, and what becomes of the runs of such a worker."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from sexton.errors import DatabaseUnavailable
from sexton.scheduler.ended_sessions import AWAY_S, LOOK_S, EndedSessions
from sexton.scheduler.sweeper import Sweeper
from sexton.store.database import Postgres
from sexton.store.fleet.workers import AnnouncedSession, Survey
from sexton.telemetry.events import SESSIONS_ENDED, SILENT, WorkerLost
from tests.rig import LEASE_S, HandWorker, Rig
from tests.store.support import claim

OWN = "1/1"
ONE, TWO, THREE = uuid4(), uuid4(), uuid4()


class Looks:
    """A sweeper that looks every half second."""

    def __init__(self) -> None:
        self.ended_sessions = EndedSessions()

    def look(
        self,
        *ended: UUID,
        own: str | None = OWN,
        stayed: bool = True,
        gap_s: float = LOOK_S,
        parents: dict[UUID, UUID] | None = None,
    ) -> set[UUID]:
        sessions = {
            worker_id: AnnouncedSession(f"{worker_id}", worker_id in ended, (parents or {}).get(worker_id))
            for worker_id in (ONE, TWO, THREE)
        }
        seen = Survey({}, True, False, False, False, False, {}, sessions, own, stayed)
        return self.ended_sessions.observe(seen, gap_s=gap_s)


@pytest.fixture
def looks() -> Looks:
    looks = Looks()
    looks.look()
    return looks


class TestWhoIsDead:
    def test_one_whose_session_stays_away_for_a_second(self, looks: Looks) -> None:
        assert [looks.look(ONE) for _ in range(3)] == [set(), set(), {ONE}]

    def test_the_sweeper_looks_again_in_time(self, looks: Looks) -> None:
        assert looks.ended_sessions.rest_s is None
        looks.look(ONE)
        assert looks.ended_sessions.rest_s == LOOK_S
        looks.look(ONE, gap_s=0.4)
        assert looks.ended_sessions.rest_s == LOOK_S
        looks.look(ONE, gap_s=0.4)
        assert looks.ended_sessions.rest_s == pytest.approx(AWAY_S - 0.8)

    def test_not_one_that_comes_back(self, looks: Looks) -> None:
        for ended in ([ONE], [ONE], [], [ONE], [ONE]):
            assert looks.look(*ended) == set()

    def test_not_one_that_this_sweeper_has_not_seen_alive(self) -> None:
        looks = Looks()
        assert [looks.look(ONE) for _ in range(5)] == [set()] * 5

    def test_not_if_the_sweepers_own_session_has_ended_too(self, looks: Looks) -> None:
        looks.look(ONE)
        looks.look(ONE, own="2/2", stayed=False)
        assert [looks.look(ONE, own="2/2") for _ in range(5)] == [set()] * 5

    def test_also_if_each_look_comes_over_another_connection_of_the_pool(self, looks: Looks) -> None:
        assert [looks.look(ONE, own=own) for own in ("2/2", "3/3", "4/4")] == [set(), set(), {ONE}]
        assert looks.ended_sessions.own == "4/4", "whose end the next look asks for"

    def test_not_behind_a_pooler(self, looks: Looks) -> None:
        assert [looks.look(ONE, own=None) for _ in range(5)] == [set()] * 5

    def test_not_after_a_look_that_failed(self, looks: Looks) -> None:
        looks.look(ONE)
        looks.ended_sessions.forget()
        assert [looks.look(ONE) for _ in range(5)] == [set()] * 5

    def test_not_several_at_once(self, looks: Looks) -> None:
        """Whatever ended the sessions of both is no death, and so many come back slowly."""
        assert [looks.look(ONE, TWO) for _ in range(5)] == [set()] * 5

    def test_not_the_last_one_of_several_to_come_back(self, looks: Looks) -> None:
        for _ in range(3):
            assert looks.look(ONE, TWO) == set()
        assert looks.ended_sessions.rest_s is None, "there is nothing to look for"
        assert [looks.look(ONE) for _ in range(5)] == [set()] * 5
        looks.look()
        assert [looks.look(ONE) for _ in range(3)] == [set(), set(), {ONE}]

    def test_not_another_one_that_joins_them_later(self, looks: Looks) -> None:
        looks.look(ONE, TWO)
        assert [looks.look(ONE, TWO, THREE) for _ in range(5)] == [set()] * 5

    def test_one_whose_declaration_was_refused_is_tried_again_at_the_usual_pace(self, looks: Looks) -> None:
        assert [looks.look(ONE) for _ in range(5)][2:] == [{ONE}] * 3
        assert looks.ended_sessions.rest_s == LOOK_S

    def test_but_a_child_in_quarantine_with_its_parent(self, looks: Looks) -> None:
        parents = {TWO: ONE}
        assert [looks.look(ONE, TWO, parents=parents) for _ in range(3)] == [set(), set(), {ONE, TWO}]

    def test_not_in_a_gap_in_which_the_sweeper_stood_still(self, looks: Looks) -> None:
        looks.look(ONE)
        assert looks.look(ONE, gap_s=3600.0) == set()


class Scene:
    """A worker and a sweeper that have a session of their own each."""

    def __init__(self, rig: Rig, hand: HandWorker, sweeper: Sweeper, theirs: Postgres, ours: Postgres) -> None:
        self.rig, self.hand, self.sweeper, self.theirs, self.ours = rig, hand, sweeper, theirs, ours

    async def kill(self) -> None:
        (session,) = [row["session"] for row in await self.rig.execute("SELECT session FROM sexton.workers")]
        await self.theirs.close()
        await self._end_of(session)

    async def replace_own_session(self) -> None:
        own = self.sweeper._ended_sessions.own
        assert own is not None
        await self.ours.renew()
        async with self.ours.connection():
            await self._end_of(own)

    async def _end_of(self, session: str) -> None:
        while not (await self.rig.execute("SELECT sexton.has_ended($1) AS it", session))[0]["it"]:
            pass

    async def look(self, count: int) -> None:
        for _ in range(count):
            await self.sweeper.run_once()
            self.rig.move(LOOK_S)

    async def states(self, *job_ids: UUID) -> list[str | None]:
        return [await self.rig.state(job_id) for job_id in job_ids]


@pytest.fixture
async def scene(rig: Rig, database_url: str) -> Scene:
    theirs, ours = [await Postgres.open(database_url, size=1) for _ in range(2)]
    hand = await rig.worker(database=theirs)
    scene = Scene(rig, hand, rig.sweeper(ours, sweep_s=LOOK_S), theirs, ours)
    await scene.look(1)
    return scene


async def running(scene: Scene, **options: Any) -> UUID:
    job_id = await scene.rig.submit(timeout=0, **options)
    await scene.rig.promote()
    await scene.hand.take()
    return job_id


async def test_its_runs_start_elsewhere_after_a_second(scene: Scene) -> None:
    job_id = await running(scene)
    await scene.look(1)
    await scene.kill()
    await scene.look(2)
    assert await scene.states(job_id) == ["running"]
    await scene.look(1)
    assert await scene.states(job_id) == ["ready"]
    (lost,) = scene.rig.of(WorkerLost)
    assert (lost.worker_id, lost.reason) == (scene.hand.worker.worker_id, SESSIONS_ENDED)
    assert lost.silent_s < LEASE_S
    assert (await scene.rig.last(job_id)).reason == "its sessions ended; the worker held no other run"
    await scene.ours.close()


@pytest.mark.parametrize(
    ("options", "lease_s"), [({"delivery": "at_most_once"}, LEASE_S), ({"lease": 20}, 20)], ids=["at most once", "own lease"]
)
async def test_a_worker_with_a_run_to_keep_waits_for_the_lease(scene: Scene, options: dict[str, Any], lease_s: float) -> None:
    """With all its runs: a beat of a worker that was declared lost is not answered, and it may live."""
    plain, kept = [await running(scene, **more) for more in ({}, options)]
    await scene.look(1)
    await scene.kill()
    await scene.look(round((LEASE_S - 2 * LOOK_S) / LOOK_S))
    assert scene.rig.of(WorkerLost) == []
    assert await scene.states(plain, kept) == ["running", "running"]
    await scene.look(1)
    assert [lost.reason for lost in scene.rig.of(WorkerLost)] == [SILENT]
    assert await scene.states(plain) == ["ready"]
    await scene.look(round((lease_s - LEASE_S) / LOOK_S) - 1)
    assert lease_s == LEASE_S or await scene.states(kept) == ["running"]
    await scene.look(3)
    assert await scene.states(kept) == [None if "delivery" in options else "ready"]
    await scene.ours.close()


async def test_at_most_once_and_an_own_lease_wait_as_long_as_before(scene: Scene) -> None:
    """Also those that the worker claimed while a sweeper declared it dead."""
    await scene.look(1)
    await scene.kill()
    await scene.look(2)
    once, patient = [await scene.rig.submit(timeout=0, **more) for more in ({"delivery": "at_most_once"}, {"lease": 20})]
    await scene.rig.promote()
    async with scene.rig.database.transaction() as under_way:
        await claim(under_way, scene.hand.worker.worker_id, now=scene.rig.clock.database_now())
        await scene.look(1)
    assert len(scene.rig.of(WorkerLost)) == 1
    await scene.look(round((LEASE_S - LOOK_S) / LOOK_S))
    assert await scene.states(once, patient) == ["running", "running"]
    await scene.look(2)
    assert await scene.states(once, patient) == [None, "running"]
    await scene.look(round((20 - LEASE_S - 2 * LOOK_S) / LOOK_S))
    assert await scene.states(patient) == ["running"]
    await scene.look(3)
    assert await scene.states(patient) == ["ready"]
    await scene.ours.close()


async def test_a_sweeper_whose_own_session_ended_waits_for_the_lease(scene: Scene) -> None:
    job_id = await running(scene)
    await scene.look(1)
    await scene.kill()
    await scene.replace_own_session()
    await scene.look(round((LEASE_S - 2 * LOOK_S) / LOOK_S))
    assert await scene.states(job_id) == ["running"]
    await scene.look(3)
    assert await scene.states(job_id) == ["ready"]
    await scene.ours.close()


async def test_after_a_look_that_failed_the_lease_alone_counts(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = await running(scene)
    await scene.look(1)
    await scene.kill()
    await scene.look(1)

    def unavailable() -> None:
        raise DatabaseUnavailable("gone")

    with monkeypatch.context() as patched:
        patched.setattr(scene.ours, "connection", unavailable)
        with pytest.raises(DatabaseUnavailable):
            await scene.look(1)
    await scene.look(round((LEASE_S - LOOK_S) / LOOK_S))
    assert await scene.states(job_id) == ["running"]
    await scene.look(2)
    assert await scene.states(job_id) == ["ready"]
    await scene.ours.close()


async def test_one_that_announces_another_session_lives(scene: Scene) -> None:
    job_id = await running(scene)
    await scene.look(1)
    for _ in range(4):
        await scene.theirs.renew()
        await scene.look(1)
        await scene.hand.beat()
        await scene.look(1)
    assert await scene.states(job_id) == ["running"]
    assert scene.rig.of(WorkerLost) == []
    await scene.theirs.close()
    await scene.ours.close()
