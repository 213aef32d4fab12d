"""A database with a past, brought up to date: what was there before a migration is found and served after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sexton.domain.job import submission
from sexton.operations import definition_change, one_time_jobs
from sexton.store import migrate
from sexton.store.database import Postgres
from sexton.store.views import search
from sexton.store.views.search import JobFilter
from sexton.store.work import jobs
from tests.callers import TESTER

if TYPE_CHECKING:
    import pytest


async def test_jobs_from_before_the_lists_are_found_by_all_that_they_are(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7, A8: migration 0005 on a database that has jobs, among them tagged ones."""
    everything = migrate.known()
    database = await Postgres.open(empty_database_url)
    monkeypatch.setattr(migrate, "known", lambda: [one for one in everything if one.number <= 4])
    await migrate.migrate(database)
    async with database.transaction() as connection:
        documents = [submission("a", {}, delay="1h", name="n", tags=["red", "red", "blue"]), submission("a", {}, delay="1h")]
        tagged, plain = [answer.id for answer in await jobs.submit(connection, documents)]
    monkeypatch.undo()
    await migrate.migrate(database)
    async with database.transaction() as connection:
        for chosen, expected in (
            (JobFilter(tag="red"), [tagged]),
            (JobFilter(name="n"), [tagged]),
            (JobFilter(tenant="default"), [plain, tagged]),
            (JobFilter(status="pending"), [plain, tagged]),
        ):
            assert [job.id for job in (await search.find_jobs(connection, chosen, limit=5)).rows] == expected
        assert (await one_time_jobs.edit(connection, TESTER, tagged, definition_change.Changes(tags=("green",)))).version == 2
        await one_time_jobs.pause(connection, TESTER, plain)
    await database.close()
