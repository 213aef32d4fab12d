"""B3, C19, rule "never wait inside a batch": an application leaves a transaction open on one schedule of ten, on a run that is
executing, or on a limit. The others fire meanwhile, the services log the row and the session, and the held one continues when
the transaction ends."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import asyncpg
import pytest

from .cluster import SEXTON, SHORT, Cluster, StartCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from sexton import App

    Conn = asyncpg.Connection[asyncpg.Record]

COUNT = 10
LATE_S = 120.0  # a condition that does not hold after this time has failed; without the rule the others never fire
SUBMIT = "SELECT sexton.submit_schedule('nap', '{\"seconds\": 0}', name => $1, every => $2::text::interval)"
# A fire that was written late is due when it is written, so its time by the schedule counts.
FIRES = """
SELECT j.name, count(*) FILTER (WHERE e.status = 'succeeded') AS fired_count,
  count(*) FILTER (WHERE e.status = 'missed') AS missed_count,
  max(extract(epoch FROM e.started_at - e.fire_at))::float8 AS lag_s
FROM sexton.executions e JOIN sexton.jobs_recurring j ON j.id = e.job_id
WHERE e.fire_at > $1 GROUP BY j.name
"""
RUN = "SELECT FROM sexton.runs WHERE state = 'running' AND task = 'tick' FOR UPDATE"
LIMIT = "SELECT FROM sexton.limits WHERE key = 'busy' FOR UPDATE"


@dataclass
class Fleet:
    """A scheduler, a worker and ten schedules that fire every second."""

    cluster: Cluster
    connection: Conn
    forgotten: Conn  # the session that leaves its transaction open
    names: list[str]

    async def begin(self) -> None:
        for name in self.names:
            await self.connection.execute(SUBMIT, name, "1 second")
        await self.forgotten.execute("BEGIN")

    async def start(self) -> None:
        self.cluster.scheduler("scheduler")
        self.cluster.worker("worker")
        await self.cluster.until_ready()

    async def until_the_others_fire(self, names: list[str]) -> float:
        """Five times each, and no planner missed one. Returns how late the latest of their fires was."""
        begun_at = await self.connection.fetchval("SELECT clock_timestamp()")

        async def fires() -> dict[str, asyncpg.Record]:
            return {row["name"]: row for row in await self.connection.fetch(FIRES, begun_at) if row["name"] in names}

        async def all_fire() -> bool:
            seen = await fires()
            return seen.keys() == set(names) and all(row["fired_count"] >= 5 for row in seen.values())

        await self.cluster.until(all_fire, f"five fires each of {names}", within_s=LATE_S)
        seen = await fires()
        assert {name: row["missed_count"] for name, row in seen.items()} == dict.fromkeys(names, 0)
        return float(max(row["lag_s"] for row in seen.values()))

    async def until_said(self, member: str, words: str) -> str:
        """Returns the first line with these words. It names the session of the open transaction."""
        await self.cluster.until(lambda: words in self.cluster[member].log, f"{member} to say: {words}", within_s=LATE_S)
        line = next(line for line in self.cluster[member].log.splitlines() if words in line)
        assert f"session {self.forgotten.get_server_pid()}" in line
        assert "billing" in line
        return line

    async def close(self) -> None:
        await self.forgotten.close()


@pytest.fixture
async def fleet(database_url: str, connection: Conn, start_cluster: StartCluster) -> Fleet:
    forgotten = await asyncpg.connect(database_url, server_settings={"application_name": "billing"})
    return Fleet(start_cluster(**SHORT), connection, forgotten, [f"schedule-{n}" for n in range(COUNT)])


@pytest.mark.timeout(300)
async def test_an_open_transaction_on_one_schedule_stops_no_other(fleet: Fleet, figure: Callable[[str], None]) -> None:
    await fleet.begin()
    held, *others = fleet.names
    await fleet.forgotten.execute(SUBMIT, held, "7 seconds")
    await fleet.start()
    lag_s = await fleet.until_the_others_fire(others)
    assert held in await fleet.until_said("scheduler", "row locked")
    assert not await _has_fired(fleet.connection, held), "the planner could not plan it"
    await fleet.close()
    took_s = await fleet.cluster.until(lambda: _has_fired(fleet.connection, held), "the tenth to go on")
    figure(f"open transaction: the others at most {lag_s:.2f} s late; the tenth fires {took_s:.1f} s after its end")


@pytest.mark.timeout(300)
async def test_an_open_transaction_on_a_run_delays_no_other(fleet: Fleet, app: App, figure: Callable[[str], None]) -> None:
    await fleet.begin()
    await fleet.start()
    held = await app.submit("tick", {"seconds": 1.0})
    await fleet.cluster.until(lambda: fleet.forgotten.fetch(RUN), "the run to execute")
    lag_s = await fleet.until_the_others_fire(fleet.names)
    assert str(held.id) in await fleet.until_said("worker", "report held up")
    assert not await _has_ended(fleet.connection, 1, "tick")
    await fleet.close()
    took_s = await fleet.cluster.until(lambda: _has_ended(fleet.connection, 1, "tick"), "the run to be reported")
    figure(f"open transaction on a run: the others at most {lag_s:.2f} s late; reported {took_s:.1f} s after its end")


@pytest.mark.timeout(300)
async def test_an_open_transaction_on_a_limit_delays_no_run_without_it(
    fleet: Fleet, app: App, figure: Callable[[str], None]
) -> None:
    await fleet.begin()
    await fleet.start()
    limited = [app.request("tick", {"seconds": 0.5}, limit={"key": "busy", "running": 2}) for _ in range(10)]
    await app.submit_many(limited)
    await fleet.cluster.until(lambda: fleet.cluster.lines("start"), "the first to begin")
    await fleet.forgotten.execute(LIMIT)
    lag_s = await fleet.until_the_others_fire(fleet.names)
    assert not await _has_ended(fleet.connection, len(limited), "tick")
    await fleet.close()
    took_s = await fleet.cluster.until(lambda: _has_ended(fleet.connection, len(limited), "tick"), "the limited runs to end")
    figure(
        f"open transaction on a limit: the others at most {lag_s:.2f} s late; all limited ended {took_s:.1f} s after its end"
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", ["ACCESS EXCLUSIVE", "SHARE"])
async def test_a_session_that_has_locked_a_table_is_named(fleet: Fleet, database_url: str, mode: str) -> None:
    """C19, E7: by the log and by doctor, although neither can read the table."""
    await fleet.begin()
    await fleet.start()
    await fleet.until_the_others_fire(fleet.names)
    job_id = await fleet.connection.fetchval("SELECT id FROM sexton.jobs_recurring LIMIT 1")
    await fleet.forgotten.execute(f"LOCK TABLE sexton.runs, sexton.executions IN {mode} MODE")
    line = await fleet.until_said("scheduler", "table locked")
    assert f"{mode} mode" in line
    found = {one["check"]: one for one in json.loads(await _asked(database_url, "doctor", "--json"))}["table locks"]
    assert found["level"] == "fail"
    assert f"session {fleet.forgotten.get_server_pid()} (billing" in found["detail"]
    why = await _asked(database_url, "why", str(job_id))
    assert f"session {fleet.forgotten.get_server_pid()} (billing" in why
    assert f"sexton.executions and sexton.runs in {mode} mode" in why
    if mode == "ACCESS EXCLUSIVE":
        assert "sexton doctor names its session" in await _asked(database_url, "stats")
    logs = [fleet.cluster[name].log for name in ("scheduler", "worker")]
    told = [
        line for log in logs for line in log.splitlines() if "pg_terminate_backend" in line or "end that transaction" in line
    ]
    assert all(f"session {fleet.forgotten.get_server_pid()} " in line for line in told)
    await fleet.close()
    await fleet.until_the_others_fire(fleet.names)


async def _asked(database_url: str, *arguments: str) -> str:
    """What the command says, on both streams."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SEXTON_")}
    command = await asyncio.create_subprocess_exec(
        *SEXTON,
        *arguments,
        env={**environment, "SEXTON_DATABASE_URL": database_url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(command.communicate(), LATE_S)
    return out.decode()


async def _has_fired(connection: Conn, name: str) -> bool:
    query = """SELECT EXISTS (
        SELECT FROM sexton.executions e JOIN sexton.jobs_recurring j ON j.id = e.job_id
        WHERE j.name = $1 AND e.status = 'succeeded')"""
    return bool(await connection.fetchval(query, name))


async def _has_ended(connection: Conn, count: int, task: str) -> bool:
    query = "SELECT count(*) FROM sexton.executions WHERE task = $1 AND status = 'succeeded'"
    return bool(await connection.fetchval(query, task) == count)
