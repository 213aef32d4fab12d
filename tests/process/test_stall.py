"""One handler that blocks the event loop, or all of Python, beside harmless ones: the worker logs its name, and only its run is
charged."""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING

import pytest

from . import apps
from .cluster import SHORT, Member, StartCluster
from .test_hostile_handlers import processes_of
from .test_poison import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import asyncpg

    from sexton import App

    Conn = asyncpg.Connection[asyncpg.Record]

pytestmark = pytest.mark.timeout(180)  # they wait for leases of real processes, whatever else the machine runs
INNOCENTS = 20
BLOCK_S = SHORT["loop_stall_s"] + SHORT["lease_s"] + 1.0


async def test_one_that_blocks_the_loop_is_named_and_buried_alone(
    app: App, connection: Conn, start_cluster: StartCluster, figure: Callable[[str], None]
) -> None:
    """It blocks a worker's loop three times. Without the name, all runs of the worker would be lost with it three times."""
    cluster = start_cluster(**SHORT)
    workers = [cluster.worker(f"worker-{n}") for n in range(2)]
    cluster.scheduler("scheduler")
    await cluster.until_ready()
    culprit = await app.submit("block", {"seconds": BLOCK_S}, max_lost=3)
    innocents = await app.submit_many(app.request("tick", {"seconds": 1.5}) for _ in range(INNOCENTS))

    async def is_over() -> bool:
        ended: int = await connection.fetchval("SELECT count(*) FROM sexton.endings")
        return ended == INNOCENTS + 1

    took_s = await cluster.until(is_over, "all to end", within_s=90)
    figure(f"stalled loop: {INNOCENTS} innocents beside 1 blocker, all over after {took_s:.1f} s")
    assert [(await app.job(job.id)).status for job in innocents] == ["completed"] * INNOCENTS
    assert (await app.job(culprit.id)).status == "failed"
    tries = await app.executions(culprit.id)
    assert {each.status for each in tries} == {"lost"}
    place = f"{apps.__file__}:{line_of(apps.block, 'time.sleep')} in block"
    assert any(place in (each.reason or "") for each in tries)
    lines = [line for member in workers for line in member.log.splitlines() if "loop stalled" in line and "task=" in line]
    assert lines != []
    assert all("task=block" in line and place in line and f"run_id={tries[0].run_id}" in line for line in lines), lines


async def test_one_that_blocks_the_loop_for_ever_leaves_no_process_behind(
    app: App, connection: Conn, start_cluster: StartCluster
) -> None:
    """Rule "leave in bounded time": a supervisor starts a new worker only if the old one has ended."""
    cluster = start_cluster(**SHORT, worker_drain_s=0.0, worker_grace_s=0.0)
    names = [f"worker-{n}" for n in range(3)]
    first = {name: cluster.worker(name).pid for name in names}
    cluster.scheduler("scheduler")
    await cluster.until_ready()
    culprit = await app.submit("block", {"seconds": 3600}, max_lost=3)
    innocents = await app.submit_many(app.request("tick", {"seconds": 1.0}) for _ in range(INNOCENTS))
    supervisor = Supervisor(cluster, names)

    async def is_over() -> bool:
        ended: int = await connection.fetchval("SELECT count(*) FROM sexton.endings")
        return ended == INNOCENTS + 1

    async with supervisor.at_work():
        await cluster.until(is_over, "all to end", within_s=120)
        await cluster.until(lambda: supervisor.death_count >= 2, "both workers that it blocked to end", within_s=120)
        await cluster.until(lambda: all(map(supervisor.has_joined, names)), "new workers to join")
    letters = await connection.fetch("SELECT job_id FROM sexton.dead_letters")
    assert [row["job_id"] for row in letters] == [culprit.id]
    assert [(await app.job(job.id)).status for job in innocents] == ["completed"] * INNOCENTS
    ended = [pid for name, pid in first.items() if cluster[name].pid != pid]
    assert [processes_of(pid) for pid in ended] == [[]] * len(ended)
    forced = [line for name in names for line in cluster[name].log.splitlines() if "exit forced" in line]
    assert len(forced) >= 3, "two workers and a child in quarantine"
    assert all("in task block, run " in line for line in forced), forced
    assert await (await app.submit("tick", {"seconds": 0.0})).result(timeout="30s") is None


async def test_one_that_blocks_the_whole_interpreter_is_named_afterwards(
    app: App, start_cluster: StartCluster, tmp_path: Path
) -> None:
    """No thread of the worker runs then: it sends no heartbeat, and loses its runs once. `faulthandler` writes the stack."""
    cluster = start_cluster(**SHORT)
    workers = [cluster.worker(f"worker-{n}") for n in range(2)]
    cluster.scheduler("scheduler")
    await cluster.until_ready()
    culprit = await app.submit("freeze", {"seconds": 6, "mark": str(tmp_path / "mark")})
    innocents = await app.submit_many(app.request("tick", {"seconds": 1.0}) for _ in range(INNOCENTS))
    for job in [culprit, *innocents]:
        await job.result(timeout="60s")
    await cluster.until(lambda: any(names(member) for member in workers), "the worker to name it")


async def test_one_whose_worker_was_killed_is_named_by_the_next_process(
    app: App, start_cluster: StartCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # otherwise a worker of another test might find the file first
    cluster = start_cluster(**SHORT)
    worker = cluster.worker("worker")
    await cluster.until_ready()
    await app.submit("freeze", {"seconds": 60, "mark": str(tmp_path / "mark")})
    folder = tmp_path / f"sexton-{os.getuid()}"

    def is_written() -> bool:
        return any("in serve" in dump.read_text() for dump in folder.glob(f"*-{worker.pid}.stack"))

    await cluster.until(is_written, "the stack to be written")
    cluster.kill("worker")
    restarted = cluster.restart("worker")
    await cluster.until(lambda: "stall found" in restarted.log, "the next process to find it")
    (line,) = [line for line in restarted.log.splitlines() if "stall found" in line]
    assert f"pid={worker.pid}" in line
    assert "task=freeze" in line
    assert f"{apps.__file__}:{line_of(apps.freeze, 'PyDLL')} in freeze" in line


def names(member: Member) -> bool:
    place = f"{apps.__file__}:{line_of(apps.freeze, 'PyDLL')} in freeze"
    return any("loop stalled" in line and "task=freeze" in line and place in line for line in member.log.splitlines())


def line_of(function: Callable[..., object], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(n for n, line in enumerate(lines) if text in line)
