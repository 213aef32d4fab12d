"""Rule "one instant, one fire", in the store: the newest release of the time zone data counts, and a node with older data does
not replace it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from sexton.operations.recurring import recurring_jobs
from sexton.store.work import zones
from tests.callers import TESTER
from tests.store.support import NOW
from tests.tzdata import FakeRelease, rules, using

if TYPE_CHECKING:
    import asyncpg

    Conn = asyncpg.Connection[Any]

LATER = NOW + timedelta(days=31)
ZONE = "Europe/Berlin"
A, B = (FakeRelease(version, {ZONE: rules(hours)}) for version, hours in (("2026a", 1), ("2026b", 2)))


async def releases(connection: Conn) -> list[tuple[str, bytes]]:
    rows = await connection.fetch(
        "SELECT t.version, z.rules FROM sexton.tzdata t JOIN sexton.zones z ON z.tzdata = t.version AND z.name = $1 ORDER BY 1",
        ZONE,
    )
    return [(row["version"], row["rules"]) for row in rows]


async def test_of_many_nodes_that_start_with_the_same_data_one_takes_over(connection: Conn) -> None:
    """Rule "one instant, one fire"; its zones are kept beside it."""
    assert await zones.newest(connection) is None
    with using(A):
        assert await zones.take_over(connection, now=NOW)
        assert not await zones.take_over(connection, now=NOW)
    assert await zones.newest(connection) == "2026a"
    assert await releases(connection) == [("2026a", rules(1))]


async def test_older_data_never_take_over(connection: Conn) -> None:
    """Rule "one instant, one fire": also if the node compared before the newer release came."""
    with using(B):
        assert await zones.take_over(connection, now=NOW)
    with using(A):
        assert not await zones.take_over(connection, now=NOW)
        await zones.forget(connection, now=LATER)
    assert await releases(connection) == [("2026b", rules(2))]


async def test_older_data_are_kept_while_something_is_planned_by_them(connection: Conn) -> None:
    """Rule "one instant, one fire": only they show which wall time has fired."""
    with using(A):
        await zones.take_over(connection, now=NOW)
        await recurring_jobs.submit(connection, TESTER, [{"task": "a", "schedule": {"cron": "0 9 * * *"}}], now=NOW)
    with using(B):
        await zones.take_over(connection, now=NOW)
        await zones.forget(connection, now=LATER)
        assert [version for version, _ in await releases(connection)] == ["2026a", "2026b"]
        await connection.execute("UPDATE sexton.jobs_recurring SET tzdata = '2026b'")
        await zones.forget(connection, now=NOW)  # a node that was not upgraded may still plan by them
        assert [version for version, _ in await releases(connection)] == ["2026a", "2026b"]
        await zones.forget(connection, now=LATER)
        assert [version for version, _ in await releases(connection)] == ["2026b"]


async def test_an_invalid_release_is_rejected(connection: Conn) -> None:
    """Releases are compared as texts, so each must have the form of a release."""
    with using(FakeRelease("newest", {})), pytest.raises(Exception, match="tzdata_version_check"):
        await zones.take_over(connection, now=NOW)
