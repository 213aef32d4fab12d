"""A database of the previous release, upgraded by `sexton migrate`: no row changes, and this tree continues with it.

fixtures/413f5aa.sql.gz is a dump of such a database, created by fixtures/make_413f5aa.py."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from chaos.fires import judge
from chaos.ledger import recorded
from chaos.network import proxied
from tests.process import checker
from tests.process.cluster import ROOT, Cluster

from .fixtures.any_host import proxy_for_any_host
from .fixtures.settings import APP, settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    Conn = asyncpg.Connection[asyncpg.Record]

DUMP = Path(__file__).parent / "fixtures" / "413f5aa.sql.gz"
EVERYTHING_RAN_S = 180.0
ROUND_TRIP_S = 0.1  # to another continent
FIRST_RECURRING = "80000000-0000-0000-0000-000000000000"

COLUMNS = """
SELECT c.relname, array_agg(quote_ident(a.attname) ORDER BY a.attnum) AS columns
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'sexton'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
GROUP BY 1
"""
# Runs that may start: due, and not paused by their job, queue or tenant. `fail` is retried a minute later.
DUE = """
SELECT r.id, r.job_id, r.fire_at, r.state, r.origin, r.task, j.name FROM sexton.runs r JOIN sexton.jobs j ON j.id = r.job_id
WHERE r.state <> 'paused' AND r.due_at <= clock_timestamp()
  AND r.queue <> 'closed' AND r.tenant <> 'frozen' AND r.task <> 'fail'
"""
HELD_BACK = """
SELECT j.name, r.state FROM sexton.runs r JOIN sexton.jobs j ON j.id = r.job_id
WHERE r.state = 'paused' OR r.queue = 'closed' OR r.tenant = 'frozen' OR j.name IN ('far', 'edited') ORDER BY 1
"""
LOST = f"""
SELECT j.id FROM sexton.jobs j WHERE j.id < '{FIRST_RECURRING}'
  AND NOT EXISTS (SELECT FROM sexton.runs r WHERE r.job_id = j.id)
  AND NOT EXISTS (SELECT FROM sexton.endings e WHERE e.job_id = j.id)
"""
FIRED_SINCE = """
SELECT count(*) FROM sexton.executions e JOIN sexton.jobs_recurring j ON j.id = e.job_id
WHERE j.name = $1 AND e.fire_at > $2 AND e.status = 'succeeded'
"""
NOT_PLANNED = """
SELECT j.name FROM sexton.jobs_recurring j WHERE j.paused_at IS NULL AND j.over_at IS NULL
  AND NOT EXISTS (SELECT FROM sexton.runs r WHERE r.job_id = j.id AND r.state = 'waiting' AND r.due_at > clock_timestamp())
  AND NOT j.plan_at > clock_timestamp()
"""


@pytest.fixture
async def loaded(empty_database_url: str) -> AsyncIterator[Conn]:
    """The fixture in a database of its own, restored as by `psql`."""
    connection = await asyncpg.connect(empty_database_url)
    await connection.execute(gzip.decompress(DUMP.read_bytes()).decode(), timeout=120)
    await connection.execute("RESET ALL")  # the dump sets an empty search_path, and more
    yield connection
    await connection.close()


def _migrate(url: str) -> None:
    """As an operator does it. The copy is migrated; if the command ends with an error, that says how to adopt the copy."""
    environment = {**os.environ, "SEXTON_DATABASE_URL": url}
    done = subprocess.run(
        [sys.executable, "-m", "sexton", "migrate"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0 or "--adopt" in done.stderr, done.stdout + done.stderr


async def _columns(connection: Conn) -> dict[str, str]:
    return {row["relname"]: ", ".join(row["columns"]) for row in await connection.fetch(COLUMNS)}


async def _rows(connection: Conn, tables: dict[str, str]) -> dict[str, list[str]]:
    """All rows of these tables, by these columns."""
    return {
        table: [
            row["row"]
            for row in await connection.fetch(
                f"SELECT row_to_json(t)::text AS row FROM (SELECT {columns} FROM sexton.{table}) t ORDER BY 1"
            )
        ]
        for table, columns in tables.items()
    }


@pytest.mark.timeout(120)
async def test_no_row_of_the_previous_release_changes(loaded: Conn, empty_database_url: str) -> None:
    """D7: every job, run, execution, dead letter, schedule, limit and key exists afterwards, unchanged. A migration may add a
    column; it may not drop, rename or rewrite what the previous release still reads."""
    tables = await _columns(loaded)
    before = await _rows(loaded, tables)
    assert all(before.values()), "the fixture lacks something, so this test says nothing about it"
    _migrate(empty_database_url)
    changed = _changes(before, await _rows(loaded, tables))
    assert not changed, json.dumps(changed, indent=1)


@pytest.mark.parametrize(
    ("table", "migration"),
    [
        ("dead_letters", "DELETE FROM sexton.dead_letters WHERE id = (SELECT max(id::text)::uuid FROM sexton.dead_letters)"),
        ("runs", "UPDATE sexton.runs SET token = token + 1 WHERE state = 'ready'"),
        ("jobs", "UPDATE sexton.jobs SET policy = '{}' WHERE policy IS NULL"),
    ],
)
async def test_a_migration_that_changes_a_row_is_noticed(loaded: Conn, table: str, migration: str) -> None:
    tables = await _columns(loaded)
    before = await _rows(loaded, tables)
    await loaded.execute(migration)
    assert list(_changes(before, await _rows(loaded, tables))) == [table]


def _changes(before: dict[str, list[str]], after: dict[str, list[str]]) -> dict[str, Any]:
    """By table: some of the missing rows, and of the new ones."""
    return {
        table: {"gone": list(Counter(rows) - Counter(after[table]))[:3], "new": list(Counter(after[table]) - Counter(rows))[:3]}
        for table, rows in before.items()
        if rows != after[table]
    }


@pytest.mark.timeout(120)
async def test_a_distant_database_is_migrated_too(loaded: Conn, empty_database_url: str) -> None:
    """D7: the time for a migration's locks is limited. It must not need a round trip per function, or a database in another
    region could never be migrated."""
    place = parse_qs(urlsplit(empty_database_url).query)
    if "host" not in place:
        pytest.skip("the proxy leads to a socket of this machine")
    socket = Path(place["host"][0]) / f".s.PGSQL.{place['port'][0]}"
    async with proxied(socket, ["migrate"]) as network:
        await network.delay(["migrate"], up_s=ROUND_TRIP_S / 2, down_s=ROUND_TRIP_S / 2)
        url = urlsplit(network.url("migrate"))._replace(path=urlsplit(empty_database_url).path).geturl()
        await asyncio.to_thread(_migrate, url)


@pytest.mark.timeout(400)
async def test_this_tree_continues_with_the_database_of_the_previous_release(
    loaded: Conn, empty_database_url: str, tmp_path: Path
) -> None:
    """D7: due runs start once, leases of a dead worker are swept, paused jobs stay paused, schedules fire."""
    held_back = [tuple(row) for row in await loaded.fetch(HELD_BACK)]
    assert Counter(state for _, state in held_back) == {"paused": 1, "ready": 2, "waiting": 2}, held_back
    due = await loaded.fetch(DUE)
    assert {row["state"] for row in due} == {"ready", "running", "waiting", "blocked", "parked"}
    history = {row["id"] for row in await loaded.fetch("SELECT id FROM sexton.executions")}
    assert await loaded.fetch(LOST) == []
    _migrate(empty_database_url)
    with (
        proxy_for_any_host(some_are_down=False) as proxy,
        closing(Cluster(tmp_path / "cluster", empty_database_url, settings(proxy))) as cluster,
    ):
        adopted_at = await loaded.fetchval("SELECT clock_timestamp()")
        cluster.scheduler("scheduler", "--adopt")
        await cluster.until_ready()
        cluster.worker("worker", app=APP)
        await cluster.until_ready()
        await _until_all_ran(cluster, loaded, [row["id"] for row in due], adopted_at)
        found = await checker.check(loaded, cluster.journal_directory, _one_time(due, {"work", "hold"}))
        assert found.is_sound, f"{found}\n{cluster.logs()}"
        await _judge_ends(loaded, due, history)
        await _judge_fires(loaded, [row for row in due if row["origin"] == "schedule"])
        assert [tuple(row) for row in await loaded.fetch(HELD_BACK)] == held_back
        assert await loaded.fetchval(FIRED_SINCE, "paused", adopted_at) == 0
        assert await loaded.fetch(NOT_PLANNED) == [], cluster.logs()
        assert await loaded.fetch(LOST) == []


async def _until_all_ran(cluster: Cluster, connection: Conn, run_ids: list[UUID], adopted_at: Any) -> None:
    async def all_ran() -> bool:
        live = await connection.fetchval("SELECT count(*) FROM sexton.runs WHERE id = ANY ($1)", run_ids)
        held = await connection.fetchval("SELECT count(*) FROM sexton.held_deliveries")
        fired = await connection.fetchval(FIRED_SINCE, "every second", adopted_at)
        return not live and not held and fired >= 3

    await cluster.until(all_ran, "all that is due to run, and three more fires", within_s=EVERYTHING_RAN_S)


def _one_time(due: list[asyncpg.Record], tasks: set[str]) -> list[UUID]:
    return [row["job_id"] for row in due if row["task"] in tasks and row["job_id"].hex < FIRST_RECURRING[:8]]


async def _judge_ends(connection: Conn, due: list[asyncpg.Record], history: set[UUID]) -> None:
    """The outcome of each run of the fixture since the upgrade, by its kind."""
    rows = await connection.fetch("SELECT id, run_id, status FROM sexton.executions ORDER BY id")
    assert history <= {row["id"] for row in rows}, "history is lost"
    ends: dict[UUID, list[str]] = {row["id"]: [] for row in due}
    for row in rows:
        if row["run_id"] in ends and row["id"] not in history:
            ends[row["run_id"]].append(row["status"])
    for run in due:
        came = ends[run["id"]]
        match run["name"], run["state"]:
            case "held at most once", _:
                assert came == ["lost"], (run, came)
            case "held and cancelled", _:
                assert came in (["cancelled"], ["lost", "cancelled"], ["lost"]), (run, came)
            case _, "running":
                assert came == ["lost", "succeeded"], (run, came)
            case _ if run["origin"] == "schedule":
                pass  # runs that were planned ahead and are long overdue are planned again: see _judge_fires
            case _ if run["task"] == "sexton.http":  # a host gets a limited number of calls at once: the others are postponed
                assert set(came[:-1]) <= {"snoozed"}, (run, came)
                assert came[-1] == "succeeded", (run, came)
            case _:
                assert came == ["succeeded"], (run, came)
    letters = await connection.fetch("SELECT name FROM sexton.dead_letters WHERE name = 'held at most once'")
    assert len(letters) == 1, "a run that may start once and was lost is buried"


async def _judge_fires(connection: Conn, planned: list[asyncpg.Record]) -> None:
    """Each fire that the previous release had planned ran once, or the ledger has the reason."""
    assert len(planned) > 50
    fires = {(row["job_id"], row["fire_at"]) for row in planned}
    found = judge(fires, await recorded(connection, {job_id for job_id, _ in fires}))
    assert [*found.missing, *found.doubled] == [], str(found)
