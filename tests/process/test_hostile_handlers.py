"""A handler that does to its process what it should not do: each case has a defined outcome, and no other run is affected."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from sexton.cli.composition import STOP_S

from . import hostile_apps
from .cluster import Cluster, StartCluster

if TYPE_CHECKING:
    from sexton import App

APP = "tests.process.hostile_apps:app"
DRAIN = {"worker_drain_s": 0.5, "worker_grace_s": 1.0}
PROMISED_EXIT_S = 2.0  # after the drain: rule "leave in bounded time"
EXIT_WITHIN_S = 90.0  # generous; the promise is drain, a quarter of the grace and 2 s, on a machine that is not busy

FAIL = {
    "exits": "SystemExit(3)",
    "exits_on_the_loop": "SystemExit(3)",
    "interrupts": "KeyboardInterrupt()",
    "stops_the_loop": "cannot call stop()",
    "closes_the_loop": "cannot call close()",
    "shuts_down_async_generators": "cannot call shutdown_asyncgens()",
    "shuts_down_the_executor": "cannot call shutdown_default_executor()",
    "sets_an_executor": "cannot call set_default_executor()",
    "sets_a_task_factory": "cannot call set_task_factory()",
    "sets_an_exception_handler": "cannot call set_exception_handler()",
    "sets_debug_mode": "cannot call set_debug()",
}
RETURN: dict[str, Any] = {
    "exits_in_a_task_of_its_own": "SystemExit(4)",
    "exits_in_a_callback": "went on",
    "forks": None,  # any pid
    "forks_on_the_loop": None,
    "forks_and_yields": None,
    "forks_in_a_task_of_its_own": None,
    "forks_and_raises": 1,
    "forks_and_exits": 6,
    "forks_and_signals": None,  # by the signal, or by the worker's own handler if the signal came before that was removed
    "forks_by_multiprocessing": 0,
}
CHANGE = {
    "changes_directory": "working directory",
    "changes_locale": "locale",
    "changes_umask": "umask",
    "changes_stdout": "sys.stdout",
    "closes_stderr": "sys.stderr",
    "changes_recursion_limit": "recursion limit",
    "changes_signals": "signal handlers",
    "handles_signals": "signal handlers",
}


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[App]:
    async with hostile_apps.make(database_url) as app:
        yield app


async def hello(app: App) -> int:
    """The pid of the worker, which still executes runs."""
    pids = {await (await app.submit(task)).result(timeout="30s") for task in ("hello", "hello_in_a_thread")}
    (pid,) = pids
    return int(pid)


async def process_state(app: App) -> list[str]:
    """As the next handler finds it."""
    found: list[str] = await (await app.submit("process_state")).result(timeout="30s")
    return found


async def test_a_worker_survives_whatever_a_handler_does_to_it(app: App, start_cluster: StartCluster) -> None:
    """C18: one process for all of them, then a drain with exit code 0."""
    cluster = start_cluster(**DRAIN)
    worker = cluster.worker("worker", "--log-json", app=APP)
    assert await hello(app) == worker.pid
    for task, message in FAIL.items():
        job = await app.submit(task)
        assert [await status_of(app, cluster, job.id)] == ["failed"], task
        (execution,) = await app.executions(job.id)
        assert execution.error is not None
        assert message in execution.error.message, task
    for task, expected in RETURN.items():
        job = await app.submit(task)
        assert await status_of(app, cluster, job.id) == "succeeded", (task, await app.executions(job.id), cluster.logs())
        result = await job.result()
        assert expected is None or result == expected, task
        assert len(await app.executions(job.id)) == 1, f"{task}: the child reported, too"
    for task, what in CHANGE.items():
        await app.submit(task)
        await cluster.until(lambda what=what, task=task: is_named(worker.log, what, task), f"{task} to be named")  # type: ignore[misc]
    assert await hello(app) == worker.pid
    await cluster.until(lambda: processes_of(worker.pid) == [worker.pid], "the forked processes to end")
    assert [line["error"] for line in events(worker.log, "loop interrupted")] == ["SystemExit(4)", "SystemExit(5)"]
    refused = [line["task"] for line in events(worker.log, "loop call refused")]
    assert refused == [task for task, message in FAIL.items() if message.startswith("cannot call")]
    assert worker.log.count("forked has returned from the handler") == 4
    cluster.terminate("worker")
    assert await cluster.exit_code("worker", within_s=EXIT_WITHIN_S) == 0


async def test_a_handler_that_cancels_all_tasks_harms_no_other(app: App, start_cluster: StartCluster) -> None:
    """C18: neither the worker's own tasks nor those of other runs."""
    cluster = start_cluster(**DRAIN)
    worker = cluster.worker("worker", "--log-json", app=APP)
    innocents = [await app.submit("naps", {"nap_s": 2.0}) for _ in range(5)]
    await cluster.until(lambda: is_running(app, innocents[-1].id), "the start")
    for task in ("cancels_all_tasks", "cancels_all_tasks_after_its_end"):
        assert await status_of(app, cluster, (await app.submit(task)).id) == "succeeded"
        await cluster.until(
            lambda task=task: task in [line["task"] for line in events(worker.log, "loop call refused")],  # type: ignore[misc]
            f"{task} to be named",
        )
    for job in innocents:
        assert await job.result(timeout="30s") == "rested"
        assert [execution.status for execution in await app.executions(job.id)] == ["succeeded"]
    assert await hello(app) == worker.pid
    cluster.terminate("worker")
    assert await cluster.exit_code("worker", within_s=EXIT_WITHIN_S) == 0


@pytest.mark.parametrize("task", ["cancels_the_service", "cancels_the_intake", "closes_the_pools"])
async def test_a_worker_that_was_disabled_returns_its_runs_and_exits(task: str, app: App, start_cluster: StartCluster) -> None:
    """C18: by code that hides which handler it belongs to. The worker must not look alive, and charges nothing."""
    cluster = start_cluster(**DRAIN)
    worker = cluster.worker("worker", "--log-json", app=APP)
    innocents = [await app.submit("naps", {"nap_s": 3600.0}) for _ in range(5)]
    for job in innocents:
        await cluster.until(lambda job=job: is_running(app, job.id), "the start")  # type: ignore[misc]
    await app.submit(task)
    assert await cluster.exit_code("worker", within_s=EXIT_WITHIN_S) == 1
    assert "start a new" in worker.log
    assert task == "cancels_the_service" or len(events(worker.log, "worker disabled")) == 1
    assert "Traceback" not in worker.log
    for job in innocents:
        assert [execution.status for execution in await app.executions(job.id)] == ["released"]


async def test_each_change_is_restored_before_later_handlers_run(app: App, start_cluster: StartCluster) -> None:
    """C18: in the process of the worker, within a moment."""
    cluster = start_cluster(**DRAIN)
    worker = cluster.worker("worker", "--log-json", app=APP)
    before = await process_state(app)
    for task in CHANGE:
        await (await app.submit(task)).result(timeout="30s")

        async def is_as_before() -> bool:
            return await process_state(app) == before

        await cluster.until(is_as_before, f"the state before {task}")
    changed = events(worker.log, "process changed")
    assert {line["what"] for line in changed} == set(CHANGE.values())
    assert [line for line in changed if "not_restored" in line] == []


async def test_process_state_is_restored_for_the_next_handler(app: App, start_cluster: StartCluster) -> None:
    """C18: also in a child process, which executes task after task."""
    cluster = start_cluster(**DRAIN, worker_processes=1)
    cluster.worker("worker", "--log-json", app=APP)
    first, second = [await (await app.submit("changes_in_its_process")).result(timeout="30s") for _ in range(2)]
    assert first == second


async def test_a_drained_worker_exits_though_handlers_left_threads_and_processes(app: App, start_cluster: StartCluster) -> None:
    """C12: and logs them with the task that left them."""
    cluster = start_cluster(**DRAIN)
    worker = cluster.worker("worker", "--log-json", app=APP)
    leaving = ["leaves_a_thread", "leaves_a_thread_from_the_loop", "leaves_an_executor", "leaves_a_child"]
    for task in [*leaving, "leaves_a_child_of_a_thread"]:
        assert await status_of(app, cluster, (await app.submit(task)).id) == "succeeded"
    cluster.terminate("worker")
    assert await cluster.exit_code("worker", within_s=EXIT_WITHIN_S) == 0
    (line,) = events(worker.log, "exit forced")
    for task in ("leaves_a_thread", "leaves_a_thread_from_the_loop", "leaves_an_executor"):
        assert task in line["threads"].partition("left by")[2], line
    assert line["threads"].count("poller") == 3, line
    assert re.search(r"sleeper \(pid \d+\), left by leaves_a_child(?![\w ])", line["children"]), "the fork knows its task"
    assert re.search(r"grandchild \(pid \d+\), left by (\w+ or )*leaves_a_child_of_a_thread", line["children"]), line
    assert processes_of(worker.pid) == [], "a child outlives its worker"


async def test_a_drained_worker_exits_though_code_of_handlers_still_runs(app: App, start_cluster: StartCluster) -> None:
    """C12: an exit handler, and a task that ignores every cancel."""
    cluster = start_cluster(**DRAIN)
    worker = cluster.worker("worker", "--log-json", app=APP)
    assert await status_of(app, cluster, (await app.submit("leaves_an_exit_handler")).id) == "succeeded"
    job = await app.submit("ignores_every_cancel")
    await cluster.until(lambda: is_running(app, job.id), "the start")
    cluster.terminate("worker")
    assert await cluster.exit_code("worker", within_s=EXIT_WITHIN_S) == 0
    assert [execution.status for execution in await app.executions(job.id)] == ["released"]
    forced = events(worker.log, "exit forced")[-1]
    assert forced["stuck_at"] == "exit handler (atexit) that waits in C code", worker.log
    assert forced["limit_s"] == PROMISED_EXIT_S
    (drained,) = events(worker.log, "drained")
    took_s = (datetime.fromisoformat(forced["timestamp"]) - datetime.fromisoformat(drained["timestamp"])).total_seconds()
    assert PROMISED_EXIT_S - 0.5 < took_s < 15 * PROMISED_EXIT_S, "by the log of the worker"


async def test_an_exit_handler_that_does_not_end_is_named_as_one(app: App, start_cluster: StartCluster) -> None:
    """C12: Python does not record which task registered it. No idle thread of the worker itself is blamed for it."""
    cluster = start_cluster(**DRAIN)
    worker = cluster.worker("worker", "--log-json", app=APP)
    assert await status_of(app, cluster, (await app.submit("leaves_exit_handlers_of_two_kinds")).id) == "succeeded"
    cluster.terminate("worker")
    assert await cluster.exit_code("worker", within_s=EXIT_WITHIN_S) == 0
    first, last = events(worker.log, "exit forced")
    assert "an exit handler of threading at " in first["threads"], worker.log
    assert "uvloop" not in first["threads"] + last["threads"]
    assert last["stuck_at"].startswith("exit handler (atexit) waits_at_exit at "), worker.log
    assert "hostile_apps.py:" in last["stuck_at"]


async def test_a_worker_with_too_many_zombies_exits_whatever_its_handlers_left(app: App, start_cluster: StartCluster) -> None:
    """C12: starting a new worker does not help while the old one remains."""
    cluster = start_cluster(**DRAIN, worker_zombie_limit=1)
    worker = cluster.worker("worker", "--log-json", app=APP)
    assert await status_of(app, cluster, (await app.submit("leaves_a_thread")).id) == "succeeded"
    await app.submit("ignores_every_cancel", timeout="100ms")
    assert await cluster.exit_code("worker", within_s=EXIT_WITHIN_S) == 1
    assert "start a new worker" in worker.log
    assert "leaves_a_thread" in events(worker.log, "exit forced")[0]["threads"].partition("left by")[2], "alone or among others"


async def test_failed_handlers_leave_no_memory_behind(app: App, start_cluster: StartCluster) -> None:
    """C18: the error of a run must not keep the variables of its handler in memory until the garbage collector runs."""
    cluster = start_cluster(**DRAIN)
    worker = cluster.worker("worker", "--log-json", app=APP)
    assert await hello(app) == worker.pid
    before = psutil.Process(worker.pid).memory_info().rss
    for _ in range(5):
        assert await status_of(app, cluster, (await app.submit("hoards_and_fails")).id) == "failed"
    grown = psutil.Process(worker.pid).memory_info().rss - before
    assert grown < 1.5 * hostile_apps.HOARD_BYTES, f"{grown / 2**20:.0f} MiB more after five failures"


async def test_a_second_signal_ends_a_worker_whose_loop_is_blocked(
    app: App, start_cluster: StartCluster, tmp_path: Path
) -> None:
    """C12: a signal handler of the event loop would never run."""
    cluster = start_cluster(**DRAIN)
    cluster.worker("worker", "--log-json", app=APP)
    mark = tmp_path / "blocked"
    await app.submit("blocks_the_loop", {"mark": str(mark)})
    await cluster.until(mark.exists, "the start")

    def is_gone() -> bool:
        if cluster["worker"].process.poll() is None:
            # two signals may arrive as one; one that comes before the handler sleeps is seen when it wakes
            cluster.terminate("worker")
        return cluster["worker"].process.poll() is not None

    await cluster.until(is_gone, "the worker to exit", within_s=EXIT_WITHIN_S)
    assert cluster["worker"].process.wait() == 1


async def test_signals_end_a_worker_whose_main_thread_runs_no_python(
    app: App, start_cluster: StartCluster, tmp_path: Path
) -> None:
    """C12: Python calls a signal handler between two steps of its main thread. The second signal ends it at once, the first one
    when the time of a stop is over."""
    cluster = start_cluster(**DRAIN, loop_stall_s=600)  # so that nothing else ends it
    for name in ("first", "second"):
        cluster.worker(name, "--log-json", app=APP, worker_concurrency=1)
        mark = tmp_path / name
        await app.submit("waits_in_c", {"mark": str(mark)})
        await cluster.until(mark.exists, "the start")
    cluster.terminate("first")

    def is_gone() -> bool:
        if cluster["second"].process.poll() is None:
            cluster.terminate("second")
        return cluster["second"].process.poll() is not None

    await cluster.until(is_gone, "the second one to exit", within_s=EXIT_WITHIN_S)
    assert "exit forced" not in cluster["second"].log
    assert await cluster.exit_code("first", within_s=2 * EXIT_WITHIN_S) == 1
    (forced,) = events(cluster["first"].log, "exit forced")
    assert forced["limit_s"] == DRAIN["worker_drain_s"] + DRAIN["worker_grace_s"] / 4 + STOP_S
    assert "hostile_apps.py" in forced["stuck_at"]


def events(log: str, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


def is_named(log: str, what: str, task: str) -> bool:
    return any(line["what"] == what and task in line["tasks"] for line in events(log, "process changed"))


async def status_of(app: App, cluster: Cluster, job_id: Any) -> str:
    async def has_ended() -> bool:
        return any(execution.status != "running" for execution in await app.executions(job_id))

    await cluster.until(has_ended, "the end")
    return (await app.executions(job_id))[-1].status


async def is_running(app: App, job_id: Any) -> bool:
    return (await app.job(job_id)).status == "running"


def processes_of(session: int) -> list[int]:
    """All processes of a worker's session that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, group = path.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(group) == session and state != "Z":
            found.append(int(path.parent.name))
    return sorted(found)
