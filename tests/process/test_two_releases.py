"""The previous release and this tree on one database, while it is migrated under load. The long form is `python -m
chaos.upgrade --seconds 120`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg
import pytest

from chaos.fires import FireFindings
from chaos.upgrade.course import Course, Plan, settings
from chaos.upgrade.locks import Seen, migrating_role, watched
from chaos.upgrade.verdict import Verdict
from tests.migration.previous_release import Release, ReleaseMissing, install
from tests.sizes import size

from .checker import Findings
from .cluster import StartCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    Conn = asyncpg.Connection[asyncpg.Record]

JOBS = size("UPGRADE_JOBS", 150)
SECONDS = size("UPGRADE_S", 5)
JOB = UUID(int=1)


@pytest.fixture(scope="session")
def previous_release() -> Release:
    try:
        return install()
    except ReleaseMissing as missing:
        pytest.skip(str(missing))


@pytest.mark.timeout(400)
async def test_two_releases_share_a_database_while_it_is_migrated(
    previous_release: Release, empty_database_url: str, start_cluster: StartCluster, figure: Callable[[str], None]
) -> None:
    """D7: no job is lost or leased twice; the figures show how long the migration blocked other sessions."""
    cluster = start_cluster(empty_database_url, **settings())
    connection = await asyncpg.connect(empty_database_url)
    course = Course(previous_release, cluster, connection, empty_database_url, Plan(JOBS, SECONDS), say=print)
    verdict = await course.run()
    await connection.close()
    figure(str(verdict))
    assert not verdict.faults, f"{verdict.faults}\n{verdict.findings}\n{verdict.fires}\n{cluster.logs()}"


SOUND = Verdict(
    Findings(submitted_count=2, completed_count=2),
    FireFindings(expected_count=1, executed_count=1),
    Seen(samples=1),
    {JOB},
    1,
    {"previous": 1, "current": 1},
)
FALSIFIED = {
    "1 jobs lost": replace(SOUND, findings=Findings(2, 1, lost=[JOB])),
    "1 double leases": replace(SOUND, findings=Findings(2, 2, double_leases=["two"])),
    "1 jobs unexplained": replace(SOUND, findings=Findings(2, 2, unexplained=["why"])),
    "1 jobs not completed": replace(SOUND, findings=Findings(2, 1)),
    "1 fires missing": replace(SOUND, fires=FireFindings(1, missing=["at noon"])),
    "1 fires doubled": replace(SOUND, fires=FireFindings(1, doubled=["at noon"])),
    "1 fires unexpected": replace(SOUND, fires=FireFindings(1, unexpected=["at noon"])),
    "2 jobs under 1 keys": replace(SOUND, shared={JOB, UUID(int=2)}),
    "a lock on sexton.runs held for 6.0 s": replace(SOUND, locks=Seen(samples=1, held_s=6, held_on="sexton.runs")),
    "a session waited 6.0 s for the migration": replace(SOUND, locks=Seen(samples=1, waited_s=6)),
    "the locks were never sampled": replace(SOUND, locks=Seen()),
    "one of the releases executed nothing": replace(SOUND, executed_by={"previous": 1, "current": 0}),
}


def test_a_sound_upgrade_has_no_faults() -> None:
    assert SOUND.faults == []


@pytest.mark.parametrize("fault", FALSIFIED)
def test_a_falsified_upgrade_is_rejected(fault: str) -> None:
    assert fault in FALSIFIED[fault].faults


async def test_a_lock_that_blocks_others_is_seen_and_one_that_does_not_is_ignored(database_url: str, connection: Conn) -> None:
    async with migrating_role(connection, database_url) as (role, url):
        migrating = await asyncpg.connect(url)
        async with watched(database_url, role) as harmless, migrating.transaction():
            await migrating.execute("LOCK TABLE sexton.runs IN ROW EXCLUSIVE MODE")
            await _sampled(harmless)
        async with watched(database_url, role) as seen:
            async with migrating.transaction():
                await migrating.execute("LOCK TABLE sexton.runs IN ACCESS EXCLUSIVE MODE")
                waiting = asyncio.create_task(connection.fetchval("SELECT count(*) FROM sexton.runs"))
                await _sampled(seen)
            await waiting
        await migrating.close()
    assert (harmless.held_s, harmless.waited_s) == (0, 0)
    assert seen.held_s > 0
    assert seen.held_on == "sexton.runs"
    assert seen.waited_s > 0


async def _sampled(seen: Seen) -> None:
    """Waits until the lock has been sampled a few times."""
    enough = seen.samples + 10
    while seen.samples < enough:  # noqa: ASYNC110  (the sampler sends no notification)
        await asyncio.sleep(0.01)
