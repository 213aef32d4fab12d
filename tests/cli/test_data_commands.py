"""The data commands: output for people, output for programs, and exit codes that distinguish failures."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sexton import App, Context, PermanentError, Settings, testing
from sexton.api.process import ApiProcess
from sexton.cli import main as cli
from sexton.cli.printing import fitting, safe, shown
from sexton.client.remote import calls
from sexton.clock import SystemClock
from sexton.ids import entropy
from sexton.store.database import Postgres

Call = Callable[..., tuple[int, str, str]]
Drain = Callable[[], None]
UNKNOWN_ID = "0199a1b2-0000-7000-8000-000000000000"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs the command with these arguments. Returns its exit code, output and error output."""

    def called(*arguments: str, stdin: str | None = None, tty: bool = False) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sexton", *arguments])
        monkeypatch.setattr(sys, "stdin", Input(stdin or "", tty))
        with pytest.raises(SystemExit) as exited:
            cli.main()
        out, err = capsys.readouterr()
        code = exited.value.code
        assert isinstance(code, int | None)
        assert "Traceback" not in err
        return int(code or 0), out, err

    return called


class Input(io.TextIOWrapper):
    def __init__(self, text: str, tty: bool) -> None:
        super().__init__(io.BytesIO(text.encode()), encoding="utf-8")
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


@pytest.fixture
def call(run: Call, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Call:
    """On a database, without an API process."""
    monkeypatch.setenv("SEXTON_DATABASE_URL", database_url)
    return run


@pytest.fixture
def drain(database_url: str) -> Drain:
    """Runs all due jobs, through the real pipeline."""

    async def drained() -> None:
        async with App(database_url) as app:

            @app.task(name="echo")
            async def echo(ctx: Context, /, **payload: Any) -> dict[str, Any]:
                return payload

            @app.task(name="fail")
            async def fail(ctx: Context) -> None:
                raise PermanentError("no \x1b[31muse")

            async with testing.pipeline(app, start=datetime.now(UTC) + timedelta(seconds=1)) as pipeline:
                await pipeline.drain()

    return lambda: asyncio.run(drained())


@pytest.fixture
def served(database_url: str) -> Iterator[str]:
    """The address of a real API on the same database."""
    ready, stopping = threading.Event(), threading.Event()
    found: list[str] = []

    async def serve() -> None:
        database = await Postgres.open(database_url)
        stop = asyncio.Event()

        def listening(address: str) -> None:
            found.append(address)
            ready.set()

        process = ApiProcess(database, Settings(api_port=0), clock=SystemClock(), emit=lambda _: None, rng=entropy())
        serving = asyncio.create_task(process.run(stop, ready=listening))
        await asyncio.to_thread(stopping.wait)
        stop.set()
        await serving
        await database.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(20)
    yield found[0]
    stopping.set()
    thread.join()


class TestSubmit:
    def test_a_job_is_submitted_awaited_and_shown(self, call: Call, drain: Drain) -> None:
        """A1, A9, A10, C14, E6."""
        arguments = (
            "submit",
            "echo",
            "n=1",
            'deep={"a": [null]}',
            "text=hello world",
            "--key",
            "k",
            "--tag",
            "x",
            "--tag",
            "y",
        )
        code, out, err = call(*arguments)
        job_id = out.strip()
        assert (code, len(job_id)) == (0, 36)
        assert "no live worker knows" in err
        code, out, err = call(*arguments, "--wait", "--within", "50ms")
        assert (code, out) == (8, "")
        assert "has not ended" in err
        drain()
        code, out, _ = call(*arguments, "--wait")
        assert (code, json.loads(out)) == (0, {"n": 1, "deep": {"a": [None]}, "text": "hello world"})
        code, out, _ = call("jobs", "show", job_id, "--json")
        job = json.loads(out)
        assert (code, job["id"], job["status"], job["tags"]) == (0, job_id, "completed", ["x", "y"])
        code, out, _ = call("jobs", "show", job_id)
        assert code == 0
        assert '{"a":[null]}' in out.replace(" ", "")
        assert ("run at" in out, "\nnext " in out) == (True, False)  # it has ended; the submitted instant is still shown
        code, out, _ = call("jobs", "executions", job_id)
        assert "succeeded" in out
        code, out, _ = call(*arguments, "--json")
        assert (json.loads(out)["created"], json.loads(out)["id"]) == (False, job_id)

    def test_every_policy_has_a_flag_and_is_shown(self, call: Call) -> None:
        """A1, E6: from one table; and all faults of a command line are reported at once."""
        policies = ("--lease", "30s", "--progress-within", "20s", "--grace", "5s", "--max-lost", "2", "--max-attempts", "7")
        code, out, _ = call("submit", "echo", "--delay", "1h", "--deadline", "2h", *policies)
        job_id = out.strip()
        code, out, _ = call("jobs", "show", job_id)
        shown = dict(line.split("  ", 1) for line in out.splitlines())
        facts = {name.strip(): value.strip() for name, value in shown.items()}
        assert (facts["lease"], facts["progress within"], facts["grace"], facts["max lost"]) == ("30 s", "20 s", "5 s", "2")
        assert facts["run at"] == facts["next"]
        assert (facts["deadline"], facts["timeout"], facts["retry"]) == ("7200 s", "30 s", '{"max_attempts":7}')
        code, out, _ = call("jobs", "edit", job_id, "--lease", "10s", "--delivery", "at_most_once", "--max-lost", "1", "--json")
        job = json.loads(out)
        assert (code, job["lease_s"], job["delivery"], job["max_lost"]) == (0, 10.0, "at_most_once", 1)
        code, out, err = call("jobs", "edit", job_id, "--lease", "x", "--grace", "y")
        assert (code, out) == (2, "")
        assert "sexton: --lease: " in err
        assert "; --grace: " in err

    def test_an_awaited_job_that_failed_exits_with_7(self, call: Call, drain: Drain) -> None:
        """E6: and control characters in its error cannot move the cursor."""
        job_id = call("submit", "fail", "--key", "k")[1].strip()
        drain()
        code, out, err = call("submit", "fail", "--key", "k", "--wait")
        assert (code, out) == (7, "")
        assert "PermanentError: no" in err
        code, out, err = call("submit", "fail", "--key", "k", "--wait", "--json")
        assert (code, json.loads(out)["status"], json.loads(err)["code"]) == (7, "failed", "job_failed")
        code, out, err = call("jobs", "watch", job_id)
        assert code == 7
        assert out == f"{job_id} failed fail try 1\n"
        assert "\x1b" not in call("jobs", "show", job_id)[1] + err

    def test_a_payload_comes_from_text_a_file_or_standard_input(self, call: Call, folder: Path) -> None:
        """A1, E6."""
        (folder / "p.json").write_text('{"n": 12345678901234567890123}\n')
        for given, stdin in [
            ('{"n": 12345678901234567890123}', None),
            ("@p.json", None),
            ("-", '{"n": 12345678901234567890123}'),
        ]:
            code, out, _ = call("submit", "echo", "--payload", given, "--json", stdin=stdin)
            assert (code, json.loads(out)["payload"]) == (0, {"n": 12345678901234567890123})

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ([], "--file"),
            (["echo", "--payload", "{bad"], "--payload: is not valid JSON: object keys must be strings (byte 1)"),
            (["echo", "--within", "5s"], "--within limits the time of --wait; add --wait"),
            (["echo", "--partial"], "--partial is for a file of jobs; give --file"),
            (["echo", "--update"], "--update is for recurring jobs; give --cron"),
            (["--file", "fault.ndjson", "--wait"], "--wait is for one job"),
            (["echo", "--payload", "@nowhere.json"], "nowhere.json: cannot be read"),
            (["echo", "novalue"], "key=value"),
            (["echo", "a=1", "a=2"], "given twice"),
            (["echo", "a=1", "--payload", "{}"], "not both"),
            (["echo", "--delay", "soon"], "sexton: --delay: "),
            (["echo", "--delay", "soon", "--key-ttl", "x"], "; --key-ttl: "),
            (["echo", "--tag", "a", "--tag", ""], "sexton: --tag: "),
            (["echo", "--run-at", "tomorrow"], "--run-at"),
            (["echo", "--run-at", "2026-03-01T09:00:00"], "offset"),
            (["echo", "--max-attempts", "0"], "--max-attempts"),
            (["echo", "--priority", "urgent"], "sexton: --priority: "),
            (["echo", "--file", "x"], "leave the task out"),
            (["--file", "nowhere.ndjson"], "cannot be read"),
            (["--file", "bad.ndjson"], "bad.ndjson line 2"),
            (["--file", "empty.ndjson"], "contains no jobs"),
            (["--file", "fault.ndjson"], "/1/delay"),
        ],
    )
    def test_invalid_input_exits_with_2_and_one_line_and_changes_nothing(
        self, call: Call, folder: Path, arguments: list[str], words: str
    ) -> None:
        """E6, F2."""
        (folder / "bad.ndjson").write_text('{"handler": "a"}\n{"handlr": "a"}\n')
        (folder / "empty.ndjson").write_text("\n\n")
        (folder / "fault.ndjson").write_text('{"handler": "a"}\n{"handler": "a", "delay": "soon"}\n')
        code, out, err = call("submit", *arguments)
        assert (code, out) == (2, "")
        assert words in err
        assert len(err.splitlines()) == 1
        assert json.loads(call("jobs", "list", "--json")[1]) == []

    def test_a_file_of_jobs_is_submitted_completely_or_in_part(self, call: Call, folder: Path) -> None:
        """A11."""
        lines = [{"handler": "echo", "payload": {"n": n}} for n in range(5)]
        (folder / "jobs.ndjson").write_text("\n".join(map(json.dumps, lines)) + "\n\n")
        (folder / "jobs.json").write_text(json.dumps(lines))
        assert call("submit", "--file", "jobs.ndjson")[:2] == (0, "submitted 5, already existed 0, refused 0\n")
        assert json.loads(call("submit", "--file", "jobs.json", "--json")[1])["created_count"] == 5
        text = (folder / "jobs.ndjson").read_text() + '{"handler": "echo", "delay": "soon"}\n'
        code, out, err = call("submit", "--file", "-", "--partial", stdin=text)
        assert (code, out) == (1, "submitted 5, already existed 0, refused 1\n")
        assert "job 6" in err
        assert len(json.loads(call("jobs", "list", "--json")[1])) == 15

    def test_jobs_that_were_submitted_before_an_error_are_listed(
        self, call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A11, E6: after any error, because a repetition would submit them twice."""
        monkeypatch.setattr(calls, "BATCH_LIMIT", 2)
        assert call("tenants", "set", "acme", "--waiting-max", "3")[0] == 0
        (folder / "jobs.json").write_text(json.dumps([{"handler": "echo", "tenant": "acme"}] * 5, indent=2))
        code, _, err = call("submit", "--file", "jobs.json")
        assert code != 0
        assert "the first 2 jobs were submitted; the rest was not" in err
        assert len(json.loads(call("jobs", "list", "--json")[1])) == 2


class TestJobs:
    def test_a_watch_interval_of_zero_is_rejected(self, call: Call) -> None:
        """E6."""
        code, _, err = call("jobs", "watch", "--within", "banana")
        assert (code, "within" in err, "unexpected" in err) == (2, True, False)

    def test_they_are_listed_changed_and_cancelled(self, call: Call) -> None:
        """A5, A6, A7, A13, E6."""
        assert call("jobs", "list")[::2] == (0, "no jobs\n")
        first, second = (call("submit", "echo", "--delay", "1h", "--tag", tag)[1].strip() for tag in ("a", "b"))
        code, out, _ = call("jobs", "list")
        assert code == 0
        header, *rows = out.splitlines()
        assert header.split()[:3] == ["ID", "STATUS", "HANDLER"]
        assert [row.split()[0] for row in rows] == [second, first]  # whole ids, to copy
        assert call("jobs", "list", "--tag", "a", "--status", "pending", "--from", "2020-01-01T00:00:00Z")[1].count("\n") == 2
        assert call("jobs", "list", "--tag", "zzz")[::2] == (0, "no matching jobs\n")
        code, out, _ = call("jobs", "edit", first, "--payload", '{"b": 2}', "--version", "1", "--json")
        assert (code, json.loads(out)["version"], json.loads(out)["payload"]) == (0, 2, {"b": 2})
        assert call("jobs", "edit", first, "--queue", "q", "--version", "1")[0] == 5
        assert call("jobs", "edit", first)[0] == 2
        assert call("jobs", "pause", first, "--note", "later")[:2] == (0, f"{first} paused\n")
        assert "later" in call("jobs", "show", first)[1]
        assert call("jobs", "resume", first)[:2] == (0, f"{first} resumed\n")
        code, out, err = call("jobs", "cancel", UNKNOWN_ID, first, second)
        # an id that does not exist does not stop the others
        assert (code, out) == (4, f"{first} cancelled\n{second} cancelled\n")
        assert UNKNOWN_ID in err
        assert call("jobs", "cancel", first)[0] == 5
        assert call("jobs", "retry", first)[0] == 5
        code, out, err = call("jobs", "show", UNKNOWN_ID, "--json")
        assert (code, out, json.loads(err)["code"], json.loads(err)["status"]) == (4, "", "not_found", 404)

    def test_a_watch_prints_what_changes(self, call: Call, drain: Drain) -> None:
        """A8, E6."""
        job_id = call("submit", "echo")[1].strip()
        code, out, _ = call("jobs", "watch", "--within", "10ms")
        assert (code, out) == (0, f"{job_id} pending echo try 0\n")
        assert call("jobs", "watch", job_id, "--within", "10ms")[0] == 8
        drain()
        assert call("jobs", "watch", job_id)[:2] == (0, f"{job_id} completed echo try 1\n")
        assert json.loads(call("jobs", "watch", job_id, "--json")[1])["status"] == "completed"


class TestDead:
    def test_they_are_listed_shown_replayed_and_discarded(self, call: Call, drain: Drain) -> None:
        """C7, E6."""
        jobs = [call("submit", "fail", "--queue", queue)[1].strip() for queue in ("a", "b", "b")]
        drain()
        letters = json.loads(call("dead", "list", "--json")[1])
        assert [letter["job_id"] for letter in letters] == jobs[::-1]
        code, out, _ = call("dead", "list", "--queue", "a")
        assert jobs[0] in out
        assert "\x1b" not in out + call("dead", "show", letters[0]["id"])[1]
        assert call("dead", "show", UNKNOWN_ID)[0] == 4
        assert call("dead", "replay", "--all", "--dry-run")[:2] == (0, "3 would run again\n")
        assert call("dead", "replay", letters[2]["id"])[:2] == (0, "1 run again\n")
        assert call("dead", "replay", letters[2]["id"])[0] == 4
        drain()
        code, out, _ = call("dead", "replay", "--queue", "b", "--yes", "--json")
        assert (code, sorted(json.loads(out)["replayed"])) == (0, sorted(jobs[1:]))
        drain()
        assert call("dead", "discard", "--permanent", "--queue", "a", "--yes")[:2] == (0, "1 discarded\n")
        assert len(json.loads(call("dead", "list", "--json")[1])) == 2

    def test_an_operation_on_many_asks_with_their_count(self, call: Call, drain: Drain) -> None:
        """F2: without a terminal the answer is no, and a missing filter does not mean everything."""
        for _ in range(2):
            call("submit", "fail")
        drain()
        code, _, err = call("dead", "discard", "--all")
        assert code == 2
        assert "Discard 2 dead letters" in err
        assert "--yes" in err
        assert call("dead", "discard", "--all", stdin="n\n", tty=True)[0] == 1
        assert call("dead", "replay")[0] == 2
        assert call("dead", "discard", UNKNOWN_ID, "--all")[0] == 2
        assert call("dead", "discard", "not-an-id")[0] == 2
        assert len(json.loads(call("dead", "list", "--json")[1])) == 2
        assert call("dead", "discard", "--all", stdin="y\n", tty=True)[:2] == (0, "2 discarded\n")


def test_the_fleet_and_the_statistics(call: Call) -> None:
    """E6."""
    call("submit", "echo", "--tenant", "acme", "--queue", "q")
    assert json.loads(call("stats", "--json")[1])["ready_count"] == 1
    assert "ready" in call("stats")[1]
    assert "acme" in call("tenants")[1]
    assert json.loads(call("queues", "--json")[1])[0]["name"] == "q"
    assert "sexton worker" in call("workers")[2]
    assert "sexton scheduler" in call("nodes")[2]
    assert json.loads(call("workers", "--json")[1]) == json.loads(call("nodes", "--json")[1]) == []


def test_over_http_the_output_is_the_same(call: Call, served: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """E6: the address by option, by variable, by file."""
    job_id = call("submit", "echo", "--delay", "1h", "--url", served)[1].strip()
    expected = json.loads(call("jobs", "show", job_id, "--json")[1])
    monkeypatch.delenv("SEXTON_DATABASE_URL")
    (folder / "sexton.toml").write_text(f'api_url = "{served}"\n')
    assert json.loads(call("jobs", "show", job_id, "--json")[1]) == expected
    (folder / "sexton.toml").unlink()
    monkeypatch.setenv("SEXTON_API_URL", served)
    assert json.loads(call("jobs", "show", job_id, "--json")[1]) == expected
    assert call("jobs", "cancel", job_id)[0] == 0
    assert call("jobs", "show", UNKNOWN_ID)[0] == 4


def test_an_unreachable_server_exits_with_3(run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """E6, F5."""
    code, out, err = run("stats", "--url", "http://ada:hunter2@127.0.0.1:1")
    assert (code, out) == (3, "")
    assert "sexton api" in err
    assert "hunter2" not in err
    monkeypatch.setenv("SEXTON_DATABASE_URL", "postgresql://sexton:hunter2@127.0.0.1:1/db")
    code, out, err = run("jobs", "list", "--json")
    assert (code, out, json.loads(err)["code"]) == (3, "", "database_unavailable")
    assert "hunter2" not in err


def test_a_database_without_a_schema_exits_with_5_and_names_the_command(
    run: Call, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E6."""
    monkeypatch.setenv("SEXTON_DATABASE_URL", empty_database_url)
    code, _, err = run("stats")
    assert code == 5
    assert "sexton migrate" in err


def test_config_shows_where_each_value_comes_from(run: Call, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """E6, F5."""
    monkeypatch.setenv("SEXTON_POOL_SIZE", "7")
    monkeypatch.setenv("SEXTON_LEASE_S", "9")
    (folder / "sexton.toml").write_text('database_url = "postgresql://u:hunter2@host:5432/db"\nlease_s = 20.0\n')
    code, out, _ = run("config", "show", "--json")
    found = {setting["name"]: setting for setting in json.loads(out)}
    assert code == 0
    assert set(found) == set(Settings.model_fields)
    assert (found["pool_size"]["value"], found["pool_size"]["default"], found["pool_size"]["origin"]) == (7, 4, "environment")
    assert (found["lease_s"]["value"], found["lease_s"]["origin"]) == (9.0, "environment")
    assert (found["database_url"]["value"], found["database_url"]["origin"]) == (
        "postgresql://u:***@host:5432/db",
        "sexton.toml",
    )
    assert found["beat_s"]["origin"] == "default"
    assert "hunter2" not in run("config", "show")[1]


@pytest.mark.parametrize(
    "url", ["hunter2", "postgresql://u:hunter2/x@host/db", "postgresql://host/db?password=hunter2", "x://u:hunter2@[h"]
)
def test_an_invalid_address_is_masked_completely(run: Call, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """F5."""
    monkeypatch.setenv("SEXTON_DATABASE_URL", url)
    assert "hunter2" not in run("config", "show")[1]


def test_text_of_jobs_cannot_control_the_terminal() -> None:
    """F2."""
    assert safe("a\x1b[2Jb\r\x07\u202ec\n\té") == "a\\x1b[2Jb\\r\\x07\\u202ec\n\té"
    assert shown(b"\x1b[0m\xff") == "\\x1b[0m\ufffd"


def test_a_narrow_terminal_shows_fewer_columns_and_complete_ids() -> None:
    """E6."""
    columns = ("id", "status", "why", "empty", "tenant")
    cells = [[UNKNOWN_ID, "failed", "x" * 200, "-", "acme"]]
    assert [list(fitting(columns, cells, width)) for width in (300, 80, 70, 10)] == [
        [0, 1, 2, 4],
        [0, 1, 2, 4],
        [0, 1, 2],
        [0, 1],
    ]
    assert fitting(columns, cells, 80) == {0: 36, 1: 6, 2: 26, 4: 6}


def test_bench_needs_a_checkout(run: Call) -> None:
    """E6."""
    code, _, err = run("bench", "drain")
    assert code == 1
    assert "checkout" in err


def every_command() -> list[list[str]]:
    pages = []
    for name in cli.COMMANDS:
        pages.append([name])
        pages += [[name, inner] for inner in getattr(cli.load(name), "commands", {})]
    return pages


def test_every_page_of_help_has_an_example(run: Call) -> None:
    """E6."""
    for page in [[], *every_command()]:
        code, out, _ = run(*page, "--help")
        assert code == 0
        if not hasattr(cli.load(page[0]) if len(page) == 1 else None, "commands"):
            assert "Example: sexton " in out, page
    assert "Exit codes: 0 done" in run("--help")[1]
    assert run("--version")[1].startswith("sexton ")


def test_help_imports_no_more_than_it_needs() -> None:
    """E6: `sexton --help` is fast because it imports nothing large; a time limit would depend on the machine."""
    program = "import sys, sexton.cli.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    heavy = {"litestar", "asyncpg", "uvloop", "pydantic", "httpx", "rich", "msgspec", "structlog", "asyncio"}
    assert heavy.isdisjoint(loaded)


def test_completion_knows_the_commands() -> None:
    """E6."""
    environment = {**os.environ, "_SEXTON_COMPLETE": "complete_bash", "COMP_WORDS": "sexton jobs ", "COMP_CWORD": "2"}
    program = "from sexton.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, env=environment)
    assert {"list", "show", "watch"} <= set(done.stdout.split())


def test_ctrl_c_exits_with_130_without_an_error_message(call: Call, database_url: str) -> None:
    """E6."""
    call("submit", "echo")
    environment = {**os.environ, "SEXTON_DATABASE_URL": database_url}
    command = [sys.executable, "-m", "sexton", "jobs", "watch"]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests run in the background, a child would ignore it
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as watching:
        assert watching.stdout is not None
        assert "pending echo" in watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        assert watching.communicate()[1] == ""
    assert watching.returncode == 130


def test_a_closed_pipe_is_not_an_error() -> None:
    """E6: `sexton --help | head -1`."""
    command = f"{sys.executable} -m sexton --help | head -1"
    done = subprocess.run(["sh", "-c", command], check=False, capture_output=True, text=True)
    assert "Traceback" not in done.stderr


def test_a_read_command_creates_no_database(run: Call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without SEXTON_DATABASE_URL an empty list would be a wrong answer."""
    monkeypatch.setenv("SEXTON_DATA_DIR", str(folder / "nothing"))
    code, out, err = run("jobs", "list")
    assert (code, out) == (3, "")
    assert "there is no database yet; set SEXTON_DATABASE_URL, or start `sexton dev`" in err
    assert not (folder / "nothing").exists()


def test_config_alone_shows_the_settings(run: Call) -> None:
    code, out, _ = run("config")
    assert (code, "SEXTON_WORKER_CONCURRENCY" in out) == (0, True)


class TestRecurring:
    def test_a_schedule_is_submitted_shown_previewed_explained_and_fired(self, call: Call) -> None:
        """A2, A3, A6, A7, F4: text and local times for people, documents for programs."""
        schedule = ("--cron", "30 2 * * *", "--tz", "America/New_York", "--name", "nightly", "--overlap", "queue")
        code, out, err = call("submit", "echo", "n=1", *schedule)
        job_id = out.strip()
        assert (code, "At 02:30, New York time; next " in err) == (0, True)
        assert call("submit", "echo", *schedule)[0] == 5  # the name already exists
        code, out, _ = call("submit", "echo", "n=2", *schedule, "--update", "--json")
        assert (code, json.loads(out)["id"], json.loads(out)["version"]) == (0, job_id, 2)

        _, out, _ = call("jobs", "show", job_id)
        assert "At 02:30, New York time" in out
        assert "\nwarning " not in out
        assert "queue" in out
        doubtful = call("submit", "echo", "--cron", "0 0 12 * * 2")[1].strip()
        _, out, _ = call("jobs", "show", doubtful)
        assert "At 12:00 on Tuesday" in out.partition("\nwarning ")[2]
        assert "At 00:00:02 on the 12th of the month" in out.partition("\nwarning ")[2]

        _, out, _ = call("jobs", "preview", job_id, "-n", "2")
        assert ("At 02:30, New York time" in out, out.count("02:30:00")) == (True, 2)
        _, out, _ = call("jobs", "preview", job_id, "--days", "400", "--dst")
        assert ("clocks go forward 60 min" in out, "clocks go back 60 min" in out, "03:00:00 EDT" in out) == (True, True, True)
        _, out, _ = call("jobs", "preview", job_id, "-n", "3", "--json")
        assert len(json.loads(out)["fires"]) == 3

        _, out, _ = call("jobs", "edit", job_id, "--cron", "30 3 * * *", "--dry-run")
        assert ("added" in out, "removed" in out) == (True, True)
        assert call("jobs", "edit", job_id, "--cron", "30 3 * * *", "--version", "7")[0] == 5
        _, out, _ = call("jobs", "edit", job_id, "--cron", "30 3 * * *", "--version", "2", "--json")
        assert json.loads(out)["schedule"]["cron"] == "30 3 * * *"

        _, out, _ = call("jobs", "why", job_id)
        assert out.startswith("Its next fire is due ")
        assert call("jobs", "run", job_id)[1] == f"{job_id} is due now\n"
        assert call("jobs", "pause", job_id, "--until", "2100-01-01T00:00:00Z", "--note", "quiet")[0] == 0
        _, out, _ = call("jobs", "why", job_id, "--json")
        assert "by api: quiet; it resumes by itself" in json.loads(out)["answer"]
        _, out, _ = call("jobs", "list", "--kind", "recurring", "--status", "paused", "--json")
        assert [job["id"] for job in json.loads(out)] == [job_id]
        assert call("jobs", "resume", job_id, "--dry-run")[1].startswith(f"{job_id} would fire 20")
        assert call("jobs", "resume", job_id)[0] == 0
        assert call("jobs", "cancel", job_id)[0] == 0
        assert "Its schedule ended" in call("jobs", "why", job_id)[1]

    def test_contradicting_options_are_reported_before_anything_is_sent(self, call: Call) -> None:
        for arguments, words in [
            (("--cron", "@daily", "--every", "1h"), "give one of --cron, --rrule and --every"),
            (("--tz", "UTC"), "--timezone is for recurring jobs"),
            (("--timezone", "UTC"), "--timezone is for recurring jobs"),
            (("--cron", "@daily", "--delay", "1h"), "--delay is for one-time jobs"),
            (("--cron", "@daily", "--wait"), "--wait is for one-time jobs"),
            (("--cron", "@never"), "sexton: --cron: "),
        ]:
            code, _, err = call("submit", "echo", *arguments)
            assert (code, words in err) == (2, True), err
        assert json.loads(call("jobs", "list", "--json")[1]) == []

    def test_a_file_may_hold_schedules(self, call: Call, folder: Path) -> None:
        """A11."""
        lines = [{"handler": "echo", "every": "1h", "name": "a"}, {"handler": "echo"}]
        (folder / "jobs.ndjson").write_text("\n".join(map(json.dumps, lines)))
        assert call("submit", "--file", "jobs.ndjson")[1] == "submitted 2, already existed 0, refused 0\n"
        assert call("submit", "--file", "jobs.ndjson")[0] == 5
        assert call("submit", "--file", "jobs.ndjson", "--update")[1] == "submitted 1, already existed 1, refused 0\n"

    def test_a_rule_is_explained_without_a_database(self, run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
        """A2, F4: in words, in its zone and in UTC."""
        monkeypatch.setenv("SEXTON_DATABASE_URL", "postgresql://nowhere.invalid/x")
        rule = ("30 2 * * *", "--tz", "America/New_York", "-n", "3", "--after", "2026-03-07T00:00:00Z")
        code, out, _ = run("cron", "explain", *rule)
        lines = out.splitlines()
        assert (code, lines[0]) == (0, "At 02:30, New York time")
        assert lines[3].split("  ") == [
            "Sun 2026-03-08 03:00:00 EDT",
            "2026-03-08 07:00:00Z",
            "clocks go forward 60 min at Sun 2026-03-08 03:00:00 EDT",
        ]
        code, out, _ = run("cron", "explain", *rule, "--json")
        assert json.loads(out)["fires"] == ["2026-03-07T07:30:00Z", "2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]
        for rrule in (
            "FREQ=WEEKLY;BYDAY=MO",
            "EXDATE:20261120T090000Z FREQ=DAILY;BYHOUR=9",
            "TZID=America/New_York:FREQ=DAILY",
        ):
            assert run("cron", "explain", rrule, "-n", "1")[0] == 0
        code, _, err = run("cron", "explain", "0 9 * * *", "--tz", "Berlin")
        assert (code, "did you mean Europe/Berlin?" in err) == (2, True)
        assert run("cron", "explain", "61 * * * *")[0] == 2
        assert run("cron", *rule) == run("cron", "explain", *rule)
        assert run("cron", "--timezone", "UTC", "0 9 * * *", "-n", "1")[1].startswith("At 09:00")
        code, out, err = run("cron", "--help")
        assert (code, "explain" in out + err) == (0, True)

    def test_an_ambiguous_line_shows_both_readings(self, call: Call, run: Call, folder: Path) -> None:
        """A2, A14: on standard error; the dialect turns it off."""
        line, other = "0 0 12 * * 2", "croniter reads the seconds last: At 00:00:02 on the 12th of the month"
        for explained in (run("cron", "explain", line), call("submit", "echo", "--cron", line)):
            assert (explained[0], other in explained[2]) == (0, True)
        job_id = call("submit", "echo", "--cron", line)[1].strip()
        assert other in call("jobs", "preview", job_id)[2]
        assert other in call("jobs", "edit", job_id, "--cron", line)[2]
        assert other in call("jobs", "edit", job_id, "--cron", line, "--dry-run")[2]
        (folder / "jobs.ndjson").write_text(json.dumps({"handler": "echo", "cron": line}))
        assert f"job 1: cron '{line}'" in call("submit", "--file", "jobs.ndjson")[2]
        assert "croniter" not in run("cron", "explain", line, "--dialect", "cron")[2]
        code, _, err = run("cron", "explain", line, "--dialect", "strict")
        assert (code, "croniter reads the seconds last" in err) == (2, True)
        assert json.loads(run("cron", "explain", line, "--json")[1])["warnings"]
