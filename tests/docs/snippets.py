"""Runs the fenced blocks of a page from top to bottom, as a reader would, and compares their output with the page.

- `python` blocks share one namespace and may `await`. One that begins with `# name.py` is written to that file instead.
- `sql` blocks are sent to the database.
- `console` blocks: lines after `$ ` are commands, the other lines their output. `$ sexton dev` keeps running, as in a terminal
of its own; a console block without a command is further output of that terminal.
- A block after `<!-- not run: why -->` is left out. A comment `<!-- setup … -->` is Python that the page does not show.

Ids, times, durations, ports and process ids may differ from the page. In later commands the page's values are replaced by the
real ones. `…` stands for anything.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import asyncpg
import psutil

from sexton import App
from sexton.cli import main as cli

ROOT = Path(__file__).parents[2]
PATIENCE_S = 30.0
LOOK_S = 0.1
AGAIN = "ready again"
SHELL = set("|&;<>$`*(")
LANGUAGES = ("python", "console", "sql")
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]+?) -->\n+)?```(?P<language>\w+)\n(?P<body>.*?)^```$|^<!-- setup\n(?P<setup>.*?)^-->$",
    re.DOTALL | re.MULTILINE,
)
VARIES = re.compile(
    r"(?P<id>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
    r"|(?P<instant>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00(?::00)?)?)"
    r"|(?P<clock>\b\d\d:\d\d:\d\d\b)"
    r"|(?P<process>(?<= )[\w.-]+:\d+(?= ))"
    r"|(?P<address>http://127\.0\.0\.1:\d+)"
    r"|(?P<path>(?<=host=)/[\w./-]+)"
    r"|(?P<file>(?<=\")/[\w./-]+\.py(?=\"))"
    r"|(?P<number>\d+\.\d+)"
)
ALIKE = {
    "id": r"[0-9a-f-]{36}",
    "instant": r"\d{4}-\d\d-\d\d[T ][\d:.]+(?:Z|\+00(?::00)?)?",
    "clock": r"\d\d:\d\d:\d\d",
    "process": r"[\w.-]+:\d+",
    "address": r"http://127\.0\.0\.1:\d+",
    "path": r"/[\w./-]+",
    "file": r"/[\w./-]+",
    "number": r"[\d.]+",
}


@dataclass(frozen=True)
class Block:
    language: str
    body: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        if found["setup"] is not None:
            yield Block("python", found["setup"], line)
        elif found["language"] in LANGUAGES and found["why"] is None:
            yield Block(found["language"], found["body"], line)


@dataclass
class Steps:
    """A console block: commands, each with the output that the page shows."""

    commands: list[tuple[str, list[str]]] = field(default_factory=list)
    before: list[str] = field(default_factory=list)  # output without a command

    @classmethod
    def of(cls, body: str) -> Steps:
        steps = cls()
        lines = iter(body.splitlines())
        for line in lines:
            if line.startswith("$ "):
                command = line[2:]
                while command.endswith("\\"):
                    command = command[:-1] + next(lines)
                steps.commands.append((command, []))
            elif steps.commands:
                steps.commands[-1][1].append(line)
            else:
                steps.before.append(line)
        return steps


def matched(shown: list[str], printed: list[str], met: dict[str, str], *, whole: bool = True) -> str | None:
    """None if the output matches, else the line that was expected. Values that vary are stored in `met`, by the page's
    value."""
    at, skipping = 0, not whole
    found: dict[str, str] = {}
    wanted = [line for line in shown if line.strip()]
    printed = [line for line in printed if line.strip()]
    for line in wanted:
        if line.strip() == "…":
            skipping = True
            continue
        pattern, names = _pattern(line)
        while True:
            if at >= len(printed):
                return line
            match = pattern.fullmatch(printed[at].strip())
            at += 1
            if match:
                found |= dict(zip(names, match.groups(), strict=True))
                break
            if not skipping:
                return line
        skipping = not whole
    if at < len(printed) and not skipping:
        return f"nothing after it, but: {printed[at]}"
    for name, value in found.items():
        met.setdefault(name, value)
        if (pid := re.fullmatch(r"[\w.-]+:(\d+)", name)) and not name.startswith("http"):
            met[pid[1]] = value.rpartition(":")[2]
    return None


def _pattern(line: str) -> tuple[re.Pattern[str], list[str]]:
    parts, names, at = [], [], 0
    line = line.strip()
    for found in VARIES.finditer(line):
        parts += [_words(line[at : found.start()]), f"({ALIKE[str(found.lastgroup)]})"]
        names.append(found[0])
        at = found.end()
    parts.append(_words(line[at:]))
    return re.compile("".join(parts)), names


def _words(text: str) -> str:
    """Removes the padding of columns, which are as wide as their contents."""
    return ".*?".join(re.sub(r"(?:\\ |\s)+", r"\\s+", re.escape(part)) for part in text.split("…"))


class Page:
    """Runs one page, in a working folder and with a data folder of its own."""

    def __init__(self, path: Path, folder: Path, environment: dict[str, str], database_url: str | None = None) -> None:
        self._path, self._folder = path, folder
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("SEXTON_")} | environment
        self._environment["PATH"] = f"{Path(sys.executable).parent}:{self._environment['PATH']}"
        self._database_url = database_url
        self._names: dict[str, Any] = {"__name__": "__snippet__"}
        self._loop = asyncio.Runner()
        self._port = _free_port()
        self._met = {"http://127.0.0.1:8474": f"http://127.0.0.1:{self._port}"}
        self._dev: subprocess.Popen[bytes] | None = None
        self._reloads = False
        self._unwritten: dict[str, str] = {}
        self._log = folder / ".dev.log"

    def follow(self) -> int:
        """Returns the number of blocks."""
        count = 0
        for block in blocks(self._path):
            count += 1
            try:
                getattr(self, f"_{block.language}")(block)
            except Exception as error:
                log = self._log.read_text() if self._log.exists() else ""
                raise AssertionError(f"{self._path.name}, line {block.line}: {error}\n{log}") from error
        return count

    def close(self) -> None:
        for app in [value for value in self._names.values() if isinstance(value, App)]:
            self._loop.run(app.close())
            app.close_sync()
        self._loop.close()
        self._stop_dev()
        # modules of this page: another page or test has modules with the same names
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(str(self._folder)):
                del sys.modules[name]

    def _python(self, block: Block) -> None:
        if named := re.match(r"# (\w+\.py)\n", block.body):
            self._unwritten[named[1]] = block.body
            return
        code = compile(
            block.body, f"{self._path.name}:{block.line}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )
        with self._inside():
            answer = eval(code, self._names)
            if inspect.iscoroutine(answer):
                self._loop.run(answer)

    def _write(self) -> None:
        """After a write to the watched folder, waits until `sexton dev` is ready again. Several files need one wait."""
        watched = bool(self._unwritten) and self._reloads and self._dev is not None and self._dev.poll() is None
        before = self._log.read_text().count(AGAIN) if watched else 0
        for name, text in self._unwritten.items():
            (self._folder / name).write_text(self._met_instead(text))
        self._unwritten.clear()
        if watched:
            self._wait(lambda: self._log.read_text().count(AGAIN) > before, AGAIN)

    def _sql(self, block: Block) -> None:
        async def send(statement: str) -> None:
            connection = await asyncpg.connect(self._database_url or self._database_of_dev())
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        self._loop.run(send(self._met_instead(block.body)))

    def _console(self, block: Block) -> None:
        self._write()
        steps = Steps.of(block.body)
        if not steps.commands:
            self._until(lambda: self._log.read_text(), steps.before, whole=False)
        for command, shown in steps.commands:
            self._run(self._met_instead(command), shown)

    def _run(self, command: str, shown: list[str]) -> None:
        if re.match(r"(?:\w+=\S+ )*sexton dev\b", command):
            self._start_dev(command)
            self._until(lambda: self._log.read_text(), shown or ["Submit a job:"], whole=False)
            return
        if killed := re.fullmatch(r"kill -9 (\d+)", command):
            self._kill(int(killed[1]))
            return
        printed = self._output_of(command)
        if shown and (missing := matched(shown, printed.splitlines(), self._met)):
            if not _only_looks(command):
                raise AssertionError(f"$ {command}\nexpected: {missing}\nprinted:\n{printed}")
            self._until(lambda: self._output_of(command), shown, what=command)

    def _until(self, ask: Callable[[], str], shown: list[str], *, whole: bool = True, what: str = "the log") -> None:
        end = time.monotonic() + PATIENCE_S
        while True:
            printed = ask()
            missing = matched(shown, printed.splitlines(), self._met, whole=whole)
            if missing is None:
                return
            if time.monotonic() > end:
                raise AssertionError(f"{what} did not say within {PATIENCE_S:g} s: {missing}\nbut:\n{printed}")
            time.sleep(LOOK_S)

    def _output_of(self, command: str) -> str:
        words = shlex.split(command)
        if words[0] == "sexton" and SHELL.isdisjoint(command):
            return self._sexton(words[1:])
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_S,
        )
        return done.stdout.decode()

    def _sexton(self, arguments: list[str]) -> str:
        """In this process, because a new one takes a second to start."""
        printed = io.StringIO()
        quiet = (contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), contextlib.suppress(SystemExit))
        with self._inside(), mock.patch.object(sys, "argv", ["sexton", *arguments]), contextlib.ExitStack() as stack:
            for context in quiet:
                stack.enter_context(context)
            cli.main()
        return printed.getvalue()

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        with mock.patch.dict(os.environ, self._environment, clear=True), contextlib.chdir(self._folder):
            yield

    def _start_dev(self, line: str) -> None:
        self._stop_dev()
        words = shlex.split(line)
        settings = dict(word.split("=", 1) for word in words if re.match(r"SEXTON_\w+=", word))
        arguments = words[words.index("dev") + 1 :]
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "sexton", "dev", *arguments, "--port", str(self._port)]
            self._dev = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                cwd=self._folder,
                env=self._environment | settings,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._reloads = bool(re.search(r"dev \w+:\w+", line)) and "--no-reload" not in line
        self._wait(lambda: "Submit a job:" in self._log.read_text(), "sexton dev")
        self._environment["SEXTON_API_URL"] = f"http://127.0.0.1:{self._port}"

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > end or self._dev is None or self._dev.poll() is not None:
                raise AssertionError(f"timed out waiting for {what}")
            time.sleep(LOOK_S)

    def _stop_dev(self) -> None:
        """Sends SIGINT, as Ctrl-C does."""
        if self._dev is not None and self._dev.poll() is None:
            os.killpg(self._dev.pid, signal.SIGINT)
            self._dev.wait(PATIENCE_S)
        self._dev = None

    def _kill(self, pid: int) -> None:
        """Only processes that this page has started."""
        assert self._dev is not None
        assert self._dev.pid in (pid, psutil.Process(pid).ppid()), f"{pid} was not started by this page"
        os.kill(pid, signal.SIGKILL)
        self._dev.wait(PATIENCE_S)

    def _database_of_dev(self) -> str:
        found = re.search(r"psql '?(postgresql://[^\s']+)", self._log.read_text())
        assert found is not None, "sexton dev is not running"
        return found[1]

    def _met_instead(self, text: str) -> str:
        for shown, met in self._met.items():
            text = text.replace(shown, met)
        return text


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _only_looks(command: str) -> bool:
    return bool(re.match(r"sexton (jobs (list|show|executions)|dead (list|show)|stats|workers|nodes|queues)\b", command)) or (
        command.startswith("curl ") and not re.search(r" (-d|-X|--data\S*) ", command)
    )
