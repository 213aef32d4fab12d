"""`sexton dev` as a person runs it: started, killed, interrupted, started again, and with an app that is being edited."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sexton.store.embedded.server import EmbeddedPostgres
from tests.conftest import memory_folder

from .cluster import PATIENCE_S, POLL_S, ROOT, SHORT

Figure = Callable[[str], None]
NAPS = 100
SHOP = """
from sexton import App
app = App()

@app.task
async def sell(ctx, thing: str) -> str:
    return f"{thing} VERSION"
"""


class Dev:
    """One `sexton dev` on a folder, and its output."""

    def __init__(self, data_dir: Path, log_path: Path, *arguments: str, cwd: Path = ROOT, **settings: object) -> None:
        self.data_dir, self._log_path = data_dir, log_path
        environment = {key: value for key, value in os.environ.items() if not key.startswith("SEXTON_")}
        environment |= {f"SEXTON_{key.upper()}": str(value) for key, value in settings.items()}
        environment["SEXTON_DATA_DIR"] = str(data_dir)
        with log_path.open("ab") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "sexton", "dev", *arguments, "--port", "0"],
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self._log_path.read_text()

    @property
    def address(self) -> str:
        found = re.findall(r"(?:API +|again at )(http://[^\s,]+)", self.log)
        return str(found[-1])

    async def until(self, holds: Callable[[], Any], what: str, *, within_s: float = PATIENCE_S) -> float:
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > within_s:
                raise AssertionError(f"waited {within_s:g} s in vain for {what}\n{self.log}")
            await asyncio.sleep(POLL_S)
        return time.monotonic() - began

    async def until_ready(self) -> float:
        return await self.until(lambda: "is ready in" in self.log and "curl" in self.log, "it to be ready")

    async def interrupt(self) -> float:
        """Ctrl-C: SIGINT to all foreground processes of the terminal. Returns how long the end took."""
        os.killpg(self.process.pid, signal.SIGINT)
        took_s = await self.until(lambda: self.process.poll() is not None, "the end")
        assert self.process.returncode == 0, self.log
        return took_s

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def ask(self, path: str, body: object = None, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self.address}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def submit(self, handler: str, **payload: object) -> str:
        return str(self.ask("/v1/jobs", {"handler": handler, "payload": payload})["id"])

    def job(self, job_id: str) -> Any:
        return self.ask(f"/v1/jobs/{job_id}")

    async def until_completed(self, job_id: str) -> Any:
        await self.until(lambda: self.job(job_id)["status"] == "completed", f"{job_id} to be completed")
        return self.job(job_id)["last_execution"]["result"]


def processes_on(data_dir: Path) -> list[psutil.Process]:
    """The server, its guard, and every other process with that folder in its command line."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and str(data_dir) in process.cmdline():
                found.append(process)
        except psutil.NoSuchProcess:
            pass
    return found


StartDev = Callable[..., Dev]


@pytest.fixture
def start_dev(tmp_path: Path) -> Iterator[StartDev]:
    """Starts any number of them on one folder. Neither they nor the server outlive the test."""
    data_dir = Path(tempfile.mkdtemp(prefix="sexton-test-dev-", dir=memory_folder()))
    started: list[Dev] = []

    def start(*arguments: str, **options: Any) -> Dev:
        dev = Dev(data_dir, tmp_path / f"dev{len(started)}.log", *arguments, **options)
        started.append(dev)
        return dev

    yield start
    for dev in started:
        if dev.process.poll() is None:
            dev.kill()
    for process in processes_on(data_dir):
        process.kill()
    subprocess.run(["rm", "-rf", str(data_dir)], check=True)


async def test_kill_minus_nine_in_the_middle_of_a_hundred_jobs_loses_none_and_leaves_no_orphan(
    start_dev: StartDev, figure: Figure
) -> None:
    """D1, F6."""
    settings = {**SHORT, "worker_concurrency": 10}
    first = start_dev(**settings)
    ready_s = await first.until_ready()
    batch = [{"handler": "demo.sleep", "payload": {"seconds": 0.2}} for _ in range(NAPS)]
    ids = [item["id"] for item in first.ask("/v1/jobs/batch", batch)["items"]]
    await first.until(lambda: first.log.count("completed") >= 20, "some to be done")
    first.kill()
    assert first.log.count("completed") < NAPS

    second = start_dev(**settings)
    await second.until_ready()
    await second.until(lambda: all(second.job(job_id)["status"] == "completed" for job_id in ids[::-1]), "all to be done")

    second.kill()
    gone_s = await second.until(lambda: not processes_on(second.data_dir), "the server to stop by itself", within_s=15)
    figure(f"sexton dev: first start {ready_s:.1f} s; server gone {gone_s:.1f} s after kill -9")

    third = start_dev()
    again_s = await third.until_ready()
    assert third.job(ids[0])["status"] == "completed", "history survives"
    for job in map(third.job, ids):
        last = job["last_execution"]
        assert job["submitted_at"] <= last["started_at"] <= last["ended_at"] <= job["ended_at"], "one clock, in order"
    log = (third.data_dir / "server.log").read_text()
    assert "PANIC" not in log
    assert "not properly shut down" not in log, "the keeper stopped it in good order"
    stop_s = await third.interrupt()
    figure(f"sexton dev: next start {again_s:.1f} s; Ctrl-C {stop_s:.1f} s")
    assert stop_s < 20
    await third.until(lambda: not processes_on(third.data_dir), "the server and its keeper to be gone")


async def test_a_server_killed_as_well_is_repaired_by_the_next_start(start_dev: StartDev) -> None:
    """D1: as after a power failure: no process shuts down cleanly, and later another process has the same pid."""
    first = start_dev()
    await first.until_ready()
    job_id = first.submit("demo.echo", a=1)
    assert await first.until_completed(job_id) == {"a": 1}
    family = processes_on(first.data_dir)
    first.kill()
    for process in family:
        process.kill()
    pid_file = first.data_dir / "postmaster.pid"
    assert pid_file.exists()
    pid_file.write_text(pid_file.read_text().replace(pid_file.read_text().split()[0], str(os.getpid()), 1))
    second = start_dev()
    await second.until_ready()
    assert second.job(job_id)["status"] == "completed"
    await second.interrupt()


async def test_a_server_killed_under_a_running_dev_is_started_again(start_dev: StartDev, figure: Figure) -> None:
    """D1: as when the kernel runs out of memory. Acknowledged jobs exist, and jobs continue."""
    dev = start_dev()
    await dev.until_ready()
    job_id = dev.submit("demo.echo", a=1)
    pid = int((dev.data_dir / "postmaster.pid").read_text().split()[0])
    psutil.Process(pid).kill()
    took_s = await dev.until(lambda: "embedded restarted" in dev.log, "the server to be started again")
    assert int((dev.data_dir / "postmaster.pid").read_text().split()[0]) != pid
    await dev.until(lambda: _answers(dev), "the API to reach it")
    assert await dev.until_completed(job_id) == {"a": 1}
    assert await dev.until_completed(dev.submit("demo.echo", a=2)) == {"a": 2}
    figure(f"sexton dev: its PostgreSQL is back {took_s:.1f} s after kill -9")
    await dev.interrupt()


def _answers(dev: Dev) -> bool:
    try:
        return bool(dev.ask("/v1/jobs"))
    except urllib.error.HTTPError:
        return False


async def test_a_second_start_finds_the_running_server_and_the_last_one_stops_it(start_dev: StartDev) -> None:
    """D1."""
    first = start_dev()
    await first.until_ready()
    second = start_dev()
    await second.until_ready()
    job_id = first.submit("demo.echo", hello="you")
    assert await second.until_completed(job_id) == {"hello": "you"}
    server = EmbeddedPostgres.start(first.data_dir)
    before = server.pid
    await first.interrupt()
    assert second.job(job_id)["status"] == "completed"
    assert server.pid == before
    second.submit("demo.sleep", seconds=600)
    await second.until(lambda: second.ask("/v1/stats")["running_count"] == 1, "it to run")
    assert await second.interrupt() < 20, "a job that takes its time does not hold up Ctrl-C"
    assert server.pid is None


async def test_a_running_job_is_cancelled_at_once(start_dev: StartDev) -> None:
    """A5: and a second Ctrl-C ends it at once."""
    dev = start_dev(worker_drain_s=600)
    await dev.until_ready()
    job_id = dev.submit("demo.sleep", seconds=600)
    await dev.until(lambda: dev.job(job_id)["status"] == "running", "it to run")
    dev.ask(f"/v1/jobs/{job_id}", method="DELETE")
    await dev.until(lambda: dev.job(job_id)["status"] == "cancelled", "it to be cancelled, long before its 600 s")
    dev.submit("demo.sleep", seconds=600)
    await dev.until(lambda: dev.ask("/v1/stats")["running_count"] == 1, "another to run")
    os.killpg(dev.process.pid, signal.SIGINT)
    await asyncio.sleep(0.3)
    os.killpg(dev.process.pid, signal.SIGINT)
    await dev.until(lambda: dev.process.poll() is not None, "the end, long before the 600 s of the drain")


async def test_an_app_is_loaded_again_when_its_file_changes(start_dev: StartDev, tmp_path: Path) -> None:
    """E6: an error in the file is reported in two lines until it is corrected, and no process outlives the parent."""
    shop = tmp_path / "shop" / "shop.py"
    shop.parent.mkdir()
    shop.write_text(SHOP.replace("VERSION", "one"))
    dev = start_dev("shop:app", cwd=shop.parent)
    await dev.until_ready()
    assert '{"handler": "sell", "payload": {"thing": "text"}}' in dev.log
    assert await dev.until_completed(dev.submit("sell", thing="hat")) == "hat one"

    shop.write_text("def :\n")
    await dev.until(lambda: "waiting for a change" in dev.log, "the mistake to be told")
    told = dev.log.partition("restarting\n")[2].splitlines()
    assert told[0].startswith("sexton: shop:app cannot be loaded: SyntaxError")
    assert len(told) == 2

    shop.write_text(SHOP.replace("VERSION", "two"))
    await dev.until(lambda: "ready again" in dev.log, "the new one")
    assert await dev.until_completed(dev.submit("sell", thing="hat")) == "hat two"

    children = psutil.Process(dev.process.pid).children(recursive=True)
    assert children
    dev.kill()
    await dev.until(lambda: not any(map(_is_alive, children)), "the child to die with its parent")
    await dev.until(lambda: not processes_on(dev.data_dir), "the server to stop by itself", within_s=15)


async def test_a_first_start_that_fails_prints_one_line(start_dev: StartDev, tmp_path: Path) -> None:
    """E6: also from behind the parent that would reload it."""
    dev = start_dev("no_such_shop:app", cwd=tmp_path)
    await dev.until(lambda: dev.process.poll() is not None, "the end")
    (line,) = dev.log.splitlines()
    assert "module 'no_such_shop' was not found" in line
    assert dev.process.returncode == 1


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
