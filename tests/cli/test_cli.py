"""The command line: documented exit codes, and one clear line for each error."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from sexton import App
from sexton.cli import main as cli
from sexton.cli.commands.migrate import telling
from sexton.cli.composition import load_app
from sexton.errors import SextonError
from sexton.store.database import Postgres
from sexton.store.migrations.reports import Progressed, Waiting

Call = Callable[..., tuple[int, str, str]]
Fresh = Callable[[], AbstractAsyncContextManager[str]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, importable during the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs the command with these arguments. Returns its exit code, output and error output."""

    def called(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sexton", *arguments])
        with pytest.raises(SystemExit) as exited:
            cli.main()
        out, err = capsys.readouterr()
        code = exited.value.code
        assert isinstance(code, int | None)
        return code or 0, out, err

    return called


def one_line(err: str) -> str:
    (line,) = err.splitlines()
    assert line.startswith("sexton: ")
    return line


class TestWhatIsWrong:
    def test_an_invalid_setting_is_one_line_that_names_it(self, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
        """E6, F2."""
        monkeypatch.setenv("SEXTON_POOL_SIZE", "many")
        monkeypatch.setenv("SEXTON_LEASE_S", "-3")
        code, out, err = call("scheduler")
        assert (code, out) == (2, "")
        assert "SEXTON_POOL_SIZE: 'many' is not a whole number; " in one_line(err)
        assert "SEXTON_LEASE_S: -3 must be greater than 0" in err
        code, _, err = call("stats", "--json")
        assert (code, json.loads(err)["code"]) == (2, "invalid_setting")

    def test_an_empty_variable_counts_as_unset(self, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
        """E6, F2: a compose file passes unset variables as empty."""
        monkeypatch.setenv("SEXTON_API_PORT", "")
        code, out, _ = call("config", "show", "--json")
        assert code == 0
        (port,) = (setting for setting in json.loads(out) if setting["variable"] == "SEXTON_API_PORT")
        assert (port["value"], port["origin"]) == (8474, "default")

    @pytest.mark.parametrize(
        ("arguments", "message"), [(["why"], "'ID'"), (["stats", "--bogus"], "--bogus"), (["jobs", "bogus"], "bogus")]
    )
    def test_an_error_is_json_with_the_json_option(self, call: Call, arguments: list[str], message: str) -> None:
        """E6, F2: a program that reads the output also reads the errors."""
        code, out, err = call(*arguments, "--json")
        assert (code, out) == (2, "")
        problem = json.loads(err)
        assert problem["code"] == "usage"
        assert message in problem["detail"]

    def test_a_file_that_cannot_be_read_is_one_line_that_names_it(self, call: Call, folder: Path) -> None:
        """E6, F2."""
        (folder / "sexton.toml").write_text("pool_size = = 5\n")
        code, _, err = call("scheduler")
        assert code == 2
        assert "sexton.toml" in one_line(err)
        assert "line 1" in err

    def test_without_a_database_one_line_names_the_setting(self, call: Call) -> None:
        code, _, err = call("migrate")
        assert code == 2
        assert "SEXTON_DATABASE_URL" in one_line(err)

    def test_a_database_that_cannot_be_reached_is_one_line_without_its_password(
        self, call: Call, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """F5."""
        monkeypatch.setenv("SEXTON_DATABASE_URL", "postgresql://sexton:hunter2@127.0.0.1:1/db")
        code, _, err = call("migrate")
        assert code == 3
        assert "ConnectionRefusedError" in one_line(err)
        assert "hunter2" not in err

    @pytest.mark.parametrize(
        "url",
        [
            "hunter2",
            "mysql://sexton:hunter2@host/db",
            "postgresql://sexton:hunter2@host:port/db",
            "postgresql://sexton:hunter2/with/slashes@host/db",
            "postgresql://sexton:hunter2@[half/db",
        ],
    )
    @pytest.mark.parametrize("command", ["migrate", "scheduler"])
    def test_an_invalid_url_is_one_line_without_its_password(
        self, call: Call, monkeypatch: pytest.MonkeyPatch, url: str, command: str
    ) -> None:
        """F2, F5: nor a part of it; with an unescaped character, host and port contain a part of the password."""
        monkeypatch.setenv("SEXTON_DATABASE_URL", url)
        code, _, err = call(command)
        assert code == 2
        assert "SEXTON_DATABASE_URL" in one_line(err)
        assert "hunter2" not in err

    def test_the_whole_traceback_is_shown_on_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "argv", ["sexton", "--debug", "migrate"])
        with pytest.raises(SextonError, match="no database"):
            cli.main()

    @pytest.mark.parametrize("arguments", [["dance"], ["worker", "--fast"], ["scheduler", "--fast"]])
    def test_an_unknown_command_exits_with_2(self, call: Call, arguments: list[str]) -> None:
        """E6."""
        assert call(*arguments)[0] == 2

    @pytest.mark.parametrize("command", [["scheduler"], ["worker", "shop:app"]])
    def test_an_unknown_log_level_is_one_line(self, call: Call, command: list[str]) -> None:
        """E6."""
        code, _, err = call(*command, "--log-level", "loud")
        assert code in (1, 2)
        assert "DEBUG" in err
        assert "Traceback" not in err

    def test_help_exits_with_0(self, call: Call) -> None:
        code, out, _ = call("--help")
        assert code == 0
        for command in ("migrate", "worker", "scheduler"):
            assert command in out


class TestTheApp:
    """Loads the app as `sexton worker module:attribute` does."""

    @pytest.fixture(autouse=True)
    def shop(self, folder: Path) -> None:
        (folder / "shop.py").write_text(
            textwrap.dedent(
                """
                from sexton import App
                app = App()
                other = App()
                number = 7

                @app.task
                def sell(ctx): ...
                """
            )
        )
        (folder / "sub").mkdir()
        (folder / "sub" / "shop.py").write_text("from shop import app as here\n")
        (folder / "needy.py").write_text("import no_such_library\n")
        (folder / "buggy.py").write_text("import os\nos.no_such_function()\n")
        (folder / "wrong.py").write_text("def :\n")

    def test_it_is_found_in_the_current_folder(self) -> None:
        found = load_app("shop:app")
        assert isinstance(found, App)
        assert found.registry.names == ["shop.sell"] or found.registry.names == ["sell"]
        assert load_app("shop") is found
        assert load_app("shop:") is found
        assert load_app("sub.shop:here") is found
        assert load_app("shop:other") is not found

    @pytest.mark.parametrize(
        ("path", "words"),
        [
            ("", "has no module"),
            (":app", "has no module"),
            ("shop:nothing", "module 'shop' has no 'nothing'"),
            ("shop:number", "is a int, not a sexton.App"),
            ("nowhere:app", "module 'nowhere' was not found"),
            ("shop.deeper:app", "module 'shop.deeper' was not found"),
            ("shop.py:app", "module 'shop.py' was not found"),
            (".shop:app", "has no module"),
            ("needy:app", "'no_such_library'"),
        ],
    )
    def test_an_app_that_cannot_be_loaded_is_explained(self, path: str, words: str) -> None:
        """E6."""
        with pytest.raises(SextonError) as raised:
            load_app(path)
        assert words in str(raised.value)

    def test_a_missing_library_is_not_taken_for_a_missing_app(self) -> None:
        with pytest.raises(SextonError) as raised:
            load_app("needy:app")
        assert "run the command in the folder" not in str(raised.value)
        assert "needy" in str(raised.value)

    def test_an_error_in_the_app_is_raised_unchanged(self) -> None:
        """An AttributeError inside the module does not mean that the module has no such app."""
        with pytest.raises(AttributeError, match="no_such_function"):
            load_app("buggy:app")
        with pytest.raises(SyntaxError):
            load_app("wrong:app")

    def test_the_worker_reports_the_same(self, call: Call) -> None:
        code, _, err = call("worker", "nowhere:app")
        assert code == 1
        assert "nowhere" in one_line(err)


class TestMigrate:
    def test_it_migrates_an_empty_database_once(
        self, call: Call, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """D7."""
        monkeypatch.setenv("SEXTON_DATABASE_URL", empty_database_url)
        code, out, _ = call("migrate", "--plan")
        assert code == 0
        assert "0000_baseline/20_runs (sql, expand, transaction 1)\n    locks: none, the tables are new\n    undo:  no" in out
        planned = json.loads(call("migrate", "--plan", "--json")[1])
        assert {one["kind"] for one in planned} == {"sql", "functions", "index"}
        assert call("migrate", "--plan", "--print")[0] == 2
        code, out, _ = call("migrate", "--print")
        assert code == 0
        assert "CREATE TABLE sexton.runs" in out
        code, out, _ = call("migrate")
        assert code == 0
        assert out.startswith("applied 0000_baseline/10_jobs\n")
        assert all(line.startswith("applied ") for line in out.splitlines())
        assert call("migrate")[1] == "the schema is current\n"
        assert json.loads(call("migrate", "--json")[1]) == {"applied": []}
        assert call("migrate", "--plan")[1] == "the schema is current: nothing to do\n"
        assert json.loads(call("migrate", "--plan", "--json")[1]) == []
        assert call("migrate", "--print")[1] == "-- nothing to do\n"

    def test_long_work_prints_lines_to_a_pipe_and_a_bar_to_a_terminal(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """D7: a log needs lines, a terminal can redraw."""
        reports = [Progressed("0103_fill", done, 100, "rows") for done in (10, 100)]
        with telling() as tell:
            for report in reports:
                tell(report)
        assert capsys.readouterr().err == "0103_fill: 10 of 100 rows\n0103_fill: 100 of 100 rows\n"
        monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
        with telling() as tell:
            tell(Waiting())
            for report in reports:
                tell(report)
        err = capsys.readouterr().err
        assert "another process migrates this database" in err
        assert "100/100" in err


async def test_a_service_needs_a_schema_and_its_own_database(empty_database_url: str, fresh_databases: Fresh) -> None:
    """D9, rule "a clone does not fire": an empty database and a copy of production are rejected before anything fires."""
    from sexton.cli.composition import ground
    from sexton.settings import Settings

    with pytest.raises(SextonError, match="sexton migrate"):
        async with ground(Settings(database_url=empty_database_url), adopt=False):  # type: ignore[arg-type]
            pass
    async with fresh_databases() as url:
        settings = Settings(database_url=url)  # type: ignore[arg-type]
        first = await Postgres.open(url)
        async with first.connection() as connection:
            await connection.execute("INSERT INTO sexton.cluster VALUES (true, gen_random_uuid(), 1, 1, now())")
        await first.close()
        with pytest.raises(SextonError, match="--adopt"):
            async with ground(settings, adopt=False):
                pass
        async with ground(settings, adopt=True) as on:
            assert on.direct_url == url
        async with ground(settings, adopt=False):
            pass
