"""`sexton dev` in the test's process: the demo app through the real pipeline, the output at the start, and errors at the start,
each one line with an exit code."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from pydantic import SecretStr

from sexton import App, Context, JobFailed, Settings, SextonError
from sexton.cli import main as cli
from sexton.cli.composition import BrokenApp, load_registry, together
from sexton.cli.dev import command as dev
from sexton.cli.dev.greeting import curl, tell_ended, without_password
from sexton.cli.dev.reload import look, watched_folder
from sexton.errors import UnsupportedServer
from sexton.registry import Registry
from sexton.service import AskedToStop, unless_stopped
from sexton.store.database import Postgres
from sexton.store.embedded.server import EmbeddedPostgres
from sexton.store.postgres import server_version
from sexton.telemetry.events import Ended
from sexton.testing import pipeline
from tests.rig import LONG_S

Call = Callable[..., tuple[int, str, str]]
TASKS = ["demo.cpu", "demo.echo", "demo.fail", "demo.noop", "demo.progress", "demo.sleep"]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Runs the command with these arguments. Returns its exit code, output and error output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def called(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sexton", *arguments])
        with pytest.raises(SystemExit) as exited:
            cli.main()
        out, err = capsys.readouterr()
        return int(exited.value.code or 0), out, err

    return called


def one_line(err: str) -> str:
    (line,) = err.splitlines()
    assert line.startswith("sexton: ")
    return line


@pytest.fixture
def demo(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The demo app on the test's database: an app reads its settings once."""
    monkeypatch.setenv("SEXTON_DATABASE_URL", database_url)
    monkeypatch.delitem(sys.modules, "sexton.demo", raising=False)
    import sexton.demo

    return sexton.demo


class TestTheDemo:
    """A1, C2, C5, C13."""

    async def test_every_task_does_what_its_docstring_says(self, demo: Any) -> None:
        async with demo.app, pipeline(demo.app) as time:
            assert demo.app.registry.names == TASKS
            assert all(definition.fn.__doc__ for definition in demo.app.registry)
            payload = {"a": 1, "ctx": {"b": [None, "ü"]}, "payload": True}
            jobs = [
                await demo.app.submit("demo.noop"),
                await demo.app.submit("demo.echo", payload),
                await demo.app.submit("demo.sleep", {"seconds": 0.01}),
                await demo.app.submit("demo.cpu", {"seconds": 0.05}),
                await demo.app.submit("demo.progress", {"steps": 3, "seconds": 0.03}),
            ]
            assert {ended.status for ended in await time.drain()} == {"succeeded"}
            nothing, echoed, slept, worked, stepped = [await job.result() for job in jobs]
            assert (nothing, echoed, slept, stepped) == (None, payload, {"slept_s": 0.01}, {"steps": 3})
            assert worked["rounds"] > 0
            (execution,) = await demo.app.executions(jobs[-1].id)
            assert execution.output is not None
            assert execution.output.splitlines() == [f"step {step} of 3 is done" for step in (1, 2, 3)]

    async def test_failures_happen_as_requested(self, demo: Any) -> None:
        async with demo.app, pipeline(demo.app) as time:
            twice = await demo.fail.submit(times=2)
            always = await demo.fail.submit()
            permanent = await demo.fail.submit(permanent=True)
            nonsense = await demo.sleep.submit(seconds="long")
            attempts: dict[UUID, int] = {}
            waits = []
            while True:
                for ended in await time.drain():
                    attempts[ended.job_id] = ended.attempt
                before = time.now
                if not await time.move_to_next():
                    break
                waits.append((time.now - before).total_seconds())
            assert attempts == {twice.id: 3, always.id: 5, permanent.id: 1, nonsense.id: 1}
            assert max(waits) < 7, "a demo that lets people wait is none"
            assert await twice.result() == {"attempts": 3}
            for job, says in ((always, "attempt 5"), (permanent, "PermanentError"), (nonsense, "seconds: 'long'")):
                with pytest.raises(JobFailed, match=says):
                    await job.result()


class TestWhatItSays:
    def test_the_curl_command_works_when_copied_into_a_shell(self) -> None:
        app = App()

        @app.task(name="it's")
        def work(ctx: Context, user_id: int, title: str, things: list[str], other: object, n: float = 2.5) -> None: ...

        (definition,) = app.registry
        words = shlex.split(curl("http://127.0.0.1:8474", definition))
        assert words[:3] == ["curl", "-s", "http://127.0.0.1:8474/v1/jobs"]
        assert json.loads(words[-1]) == {
            "handler": "it's",
            "payload": {"user_id": 1, "title": "text", "things": [], "other": None},
        }

    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            ("postgresql://ada:hunter2@host:1/db?sslmode=require", "postgresql://ada@host:1/db?sslmode=require"),
            ("postgresql://ada:hun@ter2@host/db", "postgresql://ada@host/db"),
            ("postgresql:///db?user=ada&password=hunter2&host=/run/pg", "postgresql:///db?user=ada&host=/run/pg"),
        ],
    )
    def test_the_database_is_shown_without_its_password(self, url: str, shown: str) -> None:
        """F5."""
        assert without_password(url) == shown

    def test_one_line_per_finished_job_and_none_for_an_attempt_that_will_be_retried(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        again = Ended(None, UUID(int=1), UUID(int=1), 1, "demo.fail", "failed", None, 1, 0.0, 0.1, "again")
        tell_ended(again)
        tell_ended(msgspec.structs.replace(again, ending="failed", took_s=0.25, reason="no\nuse " * 100))
        (line,) = capsys.readouterr().out.splitlines()
        assert line[8:] == f"  failed     demo.fail          0.25 s  {UUID(int=1)}  no"


class TestWhatIsWrong:
    """E6: each is one clear line and an exit code, at once."""

    def test_a_port_in_use(self, call: Call, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SEXTON_DATABASE_URL", database_url)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for command in ("dev", "api"):
                code, out, err = call(command, "--port", str(port))
                assert (code, out) == (1, "")
                assert f"port {port}" in one_line(err)
                assert "--port" in err

    @pytest.mark.parametrize(
        ("url", "code", "says"),
        [
            ("postgresql://sexton:hunter2@127.0.0.1:1/db", 3, "cannot connect with SEXTON_DATABASE_URL"),
            ("postgresql://sexton:hunter2@no-such-host.invalid/db", 3, "cannot connect with SEXTON_DATABASE_URL"),
            ("mysql://sexton:hunter2@host/db", 2, "is not a PostgreSQL URL"),
        ],
    )
    @pytest.mark.parametrize("command", ["dev", "migrate"])
    def test_an_unreachable_database(
        self, call: Call, monkeypatch: pytest.MonkeyPatch, url: str, code: int, says: str, command: str
    ) -> None:
        """F5: it is not waited for."""
        monkeypatch.setenv("SEXTON_DATABASE_URL", url)
        assert (answer := call(command))[0] == code
        assert says in one_line(answer[2])
        assert "hunter2" not in answer[2]

    def test_a_database_that_does_not_exist(
        self, call: Call, server_url: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SEXTON_DATABASE_URL", server_url("no_such_database"))
        code, _, err = call("dev")
        assert code == 3
        assert 'database "no_such_database" does not exist' in one_line(err)

    def test_a_folder_with_other_files_is_not_changed(self, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "thesis.tex").touch()
            before = os.stat(folder)
            monkeypatch.setenv("SEXTON_DATA_DIR", folder)
            code, _, err = call("dev")
            after = os.stat(folder)
            assert os.listdir(folder) == ["thesis.tex"]
        assert code == 3
        assert "thesis.tex" in one_line(err)
        assert (before.st_uid, before.st_mode) == (after.st_uid, after.st_mode)

    @pytest.mark.parametrize("place", ["/proc/nowhere", "/dev/null"])
    def test_a_folder_that_cannot_be_created(self, call: Call, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
        monkeypatch.setenv("SEXTON_DATA_DIR", place)
        code, _, err = call("dev")
        assert code == 3
        assert place in one_line(err)
        assert "SEXTON_DATA_DIR" in err

    def test_an_app_without_queues(self, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SEXTON_WORKER_QUEUES", " , ")
        code, _, err = call("worker", "sexton.demo:app")
        assert code == 2
        assert "SEXTON_WORKER_QUEUES" in one_line(err)
        assert "has no queue" in err

    def test_an_app_that_does_not_load_is_reported_with_file_and_line(self, call: Call, tmp_path: Path) -> None:
        (tmp_path / "clumsy.py").write_text("1 / 0\n")
        (tmp_path / "typo.py").write_text("def :\n")
        code, _, err = call("worker", "clumsy:app")
        assert code == 1
        assert "ZeroDivisionError" in one_line(err)
        assert "clumsy.py, line 1" in err
        with pytest.raises(BrokenApp, match=r"SyntaxError.*typo\.py, line 1"):
            load_registry("typo:app")

    async def test_a_server_that_is_too_old(self, database: Postgres) -> None:
        with pytest.raises(UnsupportedServer, match="PostgreSQL 14, but Sexton needs 15"):
            server_version.check(140_013)
        server_version.check(150_000)
        await server_version.require_supported(database)


class TestStopping:
    async def test_a_wait_ends_on_request(self) -> None:
        stop, began = asyncio.Event(), asyncio.Event()
        ended = []

        async def work() -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)

        waiting = asyncio.create_task(unless_stopped(stop, work()))
        await began.wait()
        stop.set()
        with pytest.raises(AskedToStop):
            await waiting
        assert ended

    async def test_when_one_service_ends_the_others_are_stopped(self) -> None:
        stop, ended = asyncio.Event(), []

        async def patient() -> None:
            await stop.wait()
            ended.append("patient")

        async def failing() -> None:
            raise SextonError("cannot go on")

        with pytest.raises(SextonError, match="cannot go on"):
            await together(stop, patient(), failing(), patient())
        assert ended == ["patient", "patient"]

    async def test_ctrl_c_during_the_start_ends_it(self, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """It must not wait for a worker that was stopped before it joined."""
        stop = asyncio.Event()

        async def asked_before_it_joined(*_parts: object) -> None:
            stop.set()

        monkeypatch.setattr(dev, "run_worker", asked_before_it_joined)
        settings = Settings(database_url=SecretStr(database_url), api_port=0)
        async with asyncio.timeout(LONG_S):
            with pytest.raises(AskedToStop):
                await dev.run(stop, settings, Registry(), adopt=False)


class TestWatching:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", list(sys.path))
        for name in ("shop.py", "parts/deep/part.py", ".hidden/x.py", "__pycache__/x.py", "mine/x.py", "notes.txt"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        (tmp_path / "mine" / "pyvenv.cfg").touch()
        return tmp_path

    def test_the_apps_own_files_are_watched(self, folder: Path) -> None:
        assert watched_folder("shop:app") == watched_folder("no_such_module:app") == folder
        assert watched_folder("json:app") == Path(json.__file__).parent
        seen = look(folder)
        assert [os.path.relpath(path, folder) for path in sorted(seen)] == ["parts/deep/part.py", "shop.py"]
        (folder / "shop.py").write_text("x")
        assert look(folder) != seen


SCRIPT = """
from sexton import App
app = App()
print(app.submit_sync("work", key="once").created)
"""


def test_a_script_starts_the_embedded_server_and_the_next_finds_its_job(tmp_path: Path) -> None:
    """D1: no other process runs, and the server is not stopped."""
    folder = tempfile.mkdtemp(prefix="sexton-test-")
    try:
        environment = {**os.environ, "SEXTON_DATA_DIR": folder}
        command = [sys.executable, "-W", "error", "-c", textwrap.dedent(SCRIPT)]
        answers = [subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30) for _ in range(2)]
        assert [(answer.stdout, answer.stderr) for answer in answers] == [("True\n", ""), ("False\n", "")]
    finally:
        EmbeddedPostgres.start(Path(folder)).stop("immediate")
        subprocess.run(["rm", "-rf", folder], check=True)
