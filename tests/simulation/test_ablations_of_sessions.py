"""Rule "dead only when watched", its second half: a worker whose sessions have ended. Each test takes one condition away, and
the search must find the harm.

- the sweeper's own session was there before: `test_without_a_session_of_its_own_…`, no worker is declared dead because of an
  outage
- one second to come back: `test_without_the_second_…`, no worker is declared dead because of an outage
- the worker stops its handlers within that second: `test_without_stopping_in_time_…`, no run is under two live leases

Two are in `tests/scheduler/test_ended_sessions.py`: at-most-once runs stay for the whole lease (a lost one never starts again,
so no invariant here breaks), and several at once have a common cause (here all come back in time).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sexton.scheduler import ended_sessions
from sexton.scheduler.ended_sessions import EndedSessions
from sexton.store.fleet import workers
from sexton.store.fleet.workers import Survey
from sexton.worker.own_session import OwnSession

from . import sessions
from .ablation import FreshDatabases, found
from .world import World

pytestmark = pytest.mark.timeout(300)

DECLARED_DEAD = "no worker is declared dead because of an outage"


async def sessions_end(world: World) -> None:
    """Nothing else does: so there is no other reason for a death."""
    world.sessions.is_on, world.sessions.fault_rate = True, 0.02
    world.fault_profile = replace(world.fault_profile, fault_rate=0.0, process_fault_rate=0.0, handler_s=(5.0, 20.0))


def stayed(survey: Survey) -> Survey:
    return survey._replace(own_session="1", own_stayed=True)


def declare_those_with_runs_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many workers hold such a run here, so few others would be declared dead early, rightly or wrongly."""
    kept = "(r.at_most_once OR r.lease_s IS NOT NULL)"
    declare_lost = workers._SQL["declare_lost"]
    assert kept in declare_lost
    monkeypatch.setitem(workers._SQL, "declare_lost", declare_lost.replace(kept, "false"))


async def one_outage_after_the_other(world: World) -> None:
    world.sessions.is_on, world.sessions.fault_rate = True, 0.0
    world.fault_profile = replace(
        world.fault_profile, fault_rate=0.0, process_fault_rate=0.1, process_fault_s=(2.0,), only="outage"
    )


async def test_without_a_session_of_its_own_that_stayed_an_outage_kills_the_living(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweeper remembers what it saw over a session that has ended since."""
    observe = EndedSessions.observe
    monkeypatch.setattr(EndedSessions, "observe", lambda self, survey, gap_s: observe(self, stayed(survey), gap_s=gap_s))
    monkeypatch.setattr(EndedSessions, "forget", lambda _self: None)
    monkeypatch.setattr(ended_sessions, "has_common_cause", lambda _ended, _sessions: False)  # it would guard them as well
    monkeypatch.setattr(ended_sessions, "AWAY_S", 0.0)  # else all come back in time here
    monkeypatch.setattr(OwnSession, "should_ask", False)
    declare_those_with_runs_to_keep(monkeypatch)
    assert await found(DECLARED_DEAD, fresh_databases, one_outage_after_the_other, first_seed=1000)


async def test_without_the_second_a_worker_dies_of_a_new_connection(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_sessions, "AWAY_S", 0.0)
    assert await found(DECLARED_DEAD, fresh_databases, sessions_end, first_seed=1007)


async def test_without_stopping_in_time_a_worker_that_is_cut_off_runs_on(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OwnSession, "should_ask", False)
    declare_those_with_runs_to_keep(monkeypatch)
    monkeypatch.setattr(ended_sessions, "has_common_cause", lambda _ended, _sessions: False)  # often several are away here
    monkeypatch.setattr(sessions, "RESET_S", (10.0,))  # its handler runs on until its lease is nearly over
    assert await found("no run is under two live leases", fresh_databases, sessions_end, first_seed=1012)


async def test_with_all_of_them_nothing_is_found(fresh_databases: FreshDatabases) -> None:
    """The same lives, with nothing taken away."""
    for seed, prepare in ((1000, sessions_end), (1001, sessions_end), (1000, one_outage_after_the_other)):
        async with fresh_databases() as url, World(url, seed) as world:
            world.open_transactions.is_on = False
            await prepare(world)
            await world.run()
