"""Announced sessions: what the server says of them, to roles with rights and without (rule "dead only when watched")."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from sexton.store.database import ClientEnd, Connection, Postgres, client_end
from sexton.store.fleet import workers
from tests.store.support import NOW, enlist

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from tests.store.support import Conn


async def beat(connection: Connection, worker_id: UUID, announced: ClientEnd | None) -> bool:
    beaten = await workers.beat(
        connection, worker_id, running_count=0, draining=False, refused_count=0, announced=announced, now=NOW
    )
    assert beaten is not None
    return beaten.is_announced


async def sessions(connection: Conn) -> dict[UUID, workers.AnnouncedSession]:
    return dict((await workers.survey(connection, lease_s=6, end=ClientEnd(1))).sessions)


@pytest.fixture
async def announced(connection: Conn, database: Postgres) -> tuple[UUID, str]:
    """A worker whose heartbeats come over another connection, and the name of its session."""
    worker_id = await enlist(connection)
    async with database.connection() as own:
        assert await beat(own, worker_id, client_end(own))
    return worker_id, (await sessions(connection))[worker_id].name


async def end(connection: Conn, database: Postgres, session: str) -> None:
    await database.close()
    while not await connection.fetchval("SELECT sexton.has_ended($1)", session):
        pass


async def test_a_sweeper_sees_whether_it_has_ended(connection: Conn, database: Postgres, announced: tuple[UUID, str]) -> None:
    worker_id, session = announced
    assert not (await sessions(connection))[worker_id].has_ended
    await end(connection, database, session)
    assert (await sessions(connection))[worker_id].has_ended


async def test_a_proxy_in_between_is_not_announced(connection: Conn) -> None:
    """The server sees another address and port than the client has."""
    worker_id = await enlist(connection)
    for elsewhere in (ClientEnd(1, "127.0.0.1", 4711), ClientEnd(1, "fe80::1", 4711), ClientEnd(1, None, 4711), None):
        assert not await beat(connection, worker_id, elsewhere)
        assert await sessions(connection) == {}


async def test_one_that_beats_without_announcing_takes_the_old_session_back(
    connection: Conn, announced: tuple[UUID, str]
) -> None:
    assert not await beat(connection, announced[0], None)
    assert await sessions(connection) == {}


async def test_another_process_with_the_same_id_is_not_the_session(connection: Conn) -> None:
    own: str = await connection.fetchval("SELECT sexton.own_session(inet_client_addr(), inet_client_port())")
    pid, _, started = own.partition("/")
    assert not await connection.fetchval("SELECT sexton.has_ended($1)", own)
    assert await connection.fetchval("SELECT sexton.has_ended($1)", f"{pid}/{float(started) - 3600:.6f}")


async def test_a_session_that_was_not_announced_has_not_ended(connection: Conn) -> None:
    assert await connection.fetchval("SELECT sexton.has_ended(NULL)") is False


@pytest.fixture
async def clerk(connection: Conn) -> AsyncIterator[Conn]:
    """A role that may look, and nothing else."""
    role = f"clerk_{uuid4().hex[:8]}"
    await connection.execute(
        f"CREATE ROLE {role} NOLOGIN; GRANT USAGE ON SCHEMA sexton TO {role};"
        f"GRANT EXECUTE ON FUNCTION sexton.has_ended TO {role}"
    )
    await connection.execute(f"SET ROLE {role}")
    yield connection
    await connection.execute(f"RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}")


async def test_a_role_without_rights_sees_an_end_and_not_a_reused_process_id(
    connection: Conn, database: Postgres, announced: tuple[UUID, str], clerk: Conn
) -> None:
    _, session = announced
    pid = session.partition("/")[0]
    assert not await clerk.fetchval("SELECT sexton.has_ended($1)", session)
    assert not await clerk.fetchval("SELECT sexton.has_ended($1)", f"{pid}/1"), (
        "it cannot see the start, so the session counts as alive"
    )
    await end(connection, database, session)
    assert await clerk.fetchval("SELECT sexton.has_ended($1)", session)


async def test_one_that_is_back_is_not_declared_lost(connection: Conn, announced: tuple[UUID, str]) -> None:
    worker_id, _ = announced
    assert await workers.declare_lost(connection, {worker_id: 1}, lease_left_s=6, now=NOW) == []
    assert await workers.declare_lost(connection, {worker_id: 1}, now=NOW) == [worker_id]


async def test_a_child_is_lost_with_a_parent_whose_session_has_ended_too(
    connection: Conn, database: Postgres, announced: tuple[UUID, str]
) -> None:
    parent_id, session = announced
    children = [await enlist(connection, parent_id=parent_id) for _ in range(2)]
    await connection.execute("UPDATE sexton.workers SET session = '1/1' WHERE parent_id IS NOT NULL")
    one, other = children
    assert await workers.declare_lost(connection, {one: 0}, lease_left_s=6, now=NOW) == [one]
    await end(connection, database, session)
    assert await workers.declare_lost(connection, {other: 0}, lease_left_s=6, now=NOW) == [other]
    rows = await connection.fetch("SELECT id, lost_with_parent FROM sexton.workers WHERE parent_id IS NOT NULL")
    assert {row["id"]: row["lost_with_parent"] for row in rows} == {one: False, other: True}


async def test_a_worker_of_the_release_before_is_judged_by_its_beats(connection: Conn) -> None:
    worker_id = await enlist(connection)
    await beat(connection, worker_id, None)
    survey = await workers.survey(connection, lease_s=6, end=ClientEnd(1))
    assert (list(survey.beats), dict(survey.sessions)) == ([worker_id], {})


async def test_a_look_says_whether_the_session_of_the_last_one_is_still_there(connection: Conn, database: Postgres) -> None:
    async with database.connection() as own:
        first = await workers.survey(own, lease_s=6, end=client_end(own))
    assert (first.own_stayed, first.own_session is None) == (False, False)
    last = {"lease_s": 6.0, "end": ClientEnd(1), "last_session": first.own_session}
    assert (await workers.survey(connection, **last)).own_stayed  # type: ignore[arg-type]
    assert first.own_session is not None
    await end(connection, database, first.own_session)
    assert not (await workers.survey(connection, **last)).own_stayed  # type: ignore[arg-type]
