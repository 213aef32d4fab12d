"""How an app finds its database: on first use, by URL, by settings or the embedded one, and again in a forked process (A1,
D1)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from sexton import App, Context, SchemaMismatch, Settings
from sexton.client.location import data_dir
from sexton.store import migrations
from sexton.store.database import Postgres
from sexton.store.embedded.server import EmbeddedPostgres


@pytest.fixture
def empty_dir() -> Iterator[Path]:
    """Not below pytest's tmp_path, which PostgreSQL's own user cannot enter when the tests run as root."""
    path = Path(tempfile.mkdtemp(prefix="sexton-test-client-"))
    yield path
    EmbeddedPostgres.start(path).stop("immediate")
    subprocess.run(["rm", "-rf", str(path)], check=True)


async def test_nothing_is_read_before_it_is_needed(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A1: an app at module level reads its settings when it is first used."""
    app = App()

    @app.task
    def work(ctx: Context) -> None: ...

    monkeypatch.setenv("SEXTON_DATABASE_URL", database_url)
    async with app:
        assert (await work.submit()).created


async def test_a_given_database_is_checked_and_never_migrated(empty_database_url: str) -> None:
    """D7: once the database has been migrated, the same app works."""
    app = App(empty_database_url)
    for _ in range(2):
        with pytest.raises(SchemaMismatch, match="sexton migrate"):
            await app.submit("work")
    database = await Postgres.open(empty_database_url)
    await migrations.migrate(database)
    await database.close()
    assert (await app.submit("work")).created
    await app.close()


async def test_without_a_url_it_uses_the_embedded_database(empty_dir: Path) -> None:
    """D1: started and migrated by the first use; it outlives the app, for the workers."""
    settings = Settings(data_dir=empty_dir)
    for _ in range(2):
        async with App(settings=settings) as app:
            assert (await app.submit("work", key="k")).id == (await app.submit("work", key="k")).id
    assert EmbeddedPostgres.start(empty_dir).is_owner is False


def test_the_embedded_database_is_in_the_xdg_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """D1."""
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert data_dir(Settings()) == Path("/home/ada/.local/share/sexton")
    monkeypatch.setenv("XDG_DATA_HOME", "not/absolute")
    assert data_dir(Settings()) == Path("/home/ada/.local/share/sexton")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert data_dir(Settings()) == Path("/data/sexton")
    assert data_dir(Settings(data_dir=Path("/elsewhere"))) == Path("/elsewhere")


FORKING = """
import os, sys
from sexton import App

app = App(sys.argv[1])
app.submit_sync("work")
child = os.fork()
app.submit_sync("work")
if child:
    os.waitpid(child, 0)
"""


async def test_a_forked_process_submits_too_and_both_exit_without_errors(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    """A1: web servers fork after loading the application."""
    command = [sys.executable, "-W", "error", "-c", FORKING, database_url]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert await connection.fetchval("SELECT count(*) FROM sexton.jobs") == 3
