"""C2, F3: real commands: their input, the meaning of their exit, and that they leave nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest
import uvloop

from sexton.domain.outcome import ErrorInfo
from sexton.domain.targets import ScriptTarget
from sexton.domain.targets.command import commands
from sexton.errors import NotHere, PermanentError, RetryLater
from sexton.handlers.context import Call, Context, Stopped, live_output_of
from sexton.handlers.handle import Handle
from sexton.handlers.python.process_pool import ProcessDied
from sexton.handlers.script import NotStarted, ScriptFailed, scripts
from sexton.handlers.secrets import Secrets
from tests.handlers.open_files import many_open_files

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LONG_S = 20.0
SECRETS = Secrets({"SEXTON_SECRET_STRIPE": "sk_live_1"})
WARM: list[bool] = []
OTHERS: set[psutil.Process] = set()  # children before the test: servers of other tests
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


class Running:
    def __init__(self, handle: Handle, context: Context) -> None:
        self.handle, self.context = handle, context

    @property
    def output(self) -> str:
        live = live_output_of(self.context)
        return "" if live is None else live.output or ""

    async def says(self, count: int) -> list[str]:
        """The first lines it prints."""
        await until(lambda: len(self.output.splitlines()) >= count)
        return self.output.splitlines()

    async def ends(self) -> Any:
        async with asyncio.timeout(LONG_S):
            await asyncio.wait([self.handle.freed])
            return await self.handle.done

    async def stopped(self) -> None:
        with pytest.raises(Stopped):
            await self.ends()


def begin(argv: list[str], payload: Any = None, **table: Any) -> Running:
    call = Call(
        UUID(int=1),
        UUID(int=2),
        3,
        "sexton.script:x",
        None,
        "acme",
        "default",
        NOON,
        NOON,
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "key-1",
        {},
        target=ScriptTarget("x"),
        payload_json=json.dumps(payload),
    )
    context = Context(call)
    handlers = scripts(commands({"x": {"argv": argv, **table}}), SECRETS.reveal)
    return Running(handlers["sexton.script:x"].start(call, context), context)


def shell(code: str, *arguments: str, payload: Any = None, **table: Any) -> Running:
    return begin(["/bin/sh", "-c", code, "sh", *arguments], payload, **table)


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG_S):
        while not is_true():  # noqa: ASYNC110  (it watches processes and their output, which set no events here)
            await asyncio.sleep(0.005)


def is_running(process_id: int) -> bool:
    try:
        return psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def brood() -> list[psutil.Process]:
    """The processes that the test has started, and their children."""
    mine = [child for child in psutil.Process().children() if child not in OTHERS]
    return [*mine, *(grandchild for child in mine for grandchild in child.children(recursive=True))]


async def gone(process_ids: list[int]) -> None:
    await until(lambda: not any(map(is_running, process_ids)))


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    """No test leaves a process or a descriptor."""
    if not WARM:  # descriptors that a process opens once
        uvloop.new_event_loop().close()
        await shell("exit 0").ends()
        WARM.append(True)
    OTHERS.clear()
    OTHERS.update(psutil.Process().children())
    files_count = psutil.Process().num_fds()
    yield
    await until(lambda: brood() == [] and psutil.Process().num_fds() <= files_count)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A named pipe, at which a script waits for the test."""
    os.mkfifo(path := tmp_path / "gate")
    return path


class TestWhatItIsTold:
    async def test_the_payload_is_on_standard_input_and_the_environment_is_clean(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """C6 (b): the key of the run comes with every attempt."""
        monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
        code = "import json, os, sys; print(json.dumps([json.load(sys.stdin), dict(os.environ)]))"
        running = begin([sys.executable, "-I", "-c", code], {"n": [1, "zwei ü"]}, environment={"A": "b c"})
        payload, environment = await running.ends()
        assert payload == {"n": [1, "zwei ü"]}
        assert environment == {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "A": "b c",
            "SEXTON_JOB_ID": str(UUID(int=1)),
            "SEXTON_RUN_ID": str(UUID(int=2)),
            "SEXTON_ATTEMPT": "3",
            "SEXTON_SCHEDULED_FOR": "2026-03-01T12:00:00Z",
            "SEXTON_IDEMPOTENCY_KEY": "key-1",
            "TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        }

    async def test_arguments_are_passed_unchanged(self) -> None:
        """F3: no shell interprets them."""
        hostile = "$(touch /tmp/pwned); `id` 'x' \"y\" * ü\n&& id"
        code = "import json, sys; print(json.dumps(sys.argv[1:]))"
        script = begin([sys.executable, "-I", "-c", code, "{payload.a}", "--b={payload.a}"], {"a": hostile})
        assert await script.ends() == [hostile, f"--b={hostile}"]

    async def test_a_secret_reaches_only_the_script(self, gate: Path) -> None:
        """F3: neither the arguments of the process nor the description of the run show it."""
        token = {"secret": "stripe", "prefix": "B "}
        running = shell('echo "${#TOKEN}"; read line < "$1"; exit 3', str(gate), environment={"TOKEN": token})
        assert await running.says(1) == [str(len("B sk_live_1"))]
        seen = [line for child in brood() for line in child.cmdline()]
        assert any("keeper.py" in line for line in seen)
        assert not any("sk_live_1" in line for line in seen)
        await asyncio.to_thread(gate.write_text, "go on\n")
        with pytest.raises(ScriptFailed) as failure:
            await running.ends()
        assert "sk_live_1" not in str(ErrorInfo.of(failure.value))

    async def test_a_secret_that_it_prints_is_hidden(self) -> None:
        """F3."""
        token = {"secret": "stripe", "prefix": "B "}
        running = shell('echo "{\\"used\\": \\"$TOKEN\\"}"; echo "$TOKEN" >&2', environment={"TOKEN": token})
        assert await running.ends() == {"used": "B [secret]"}
        assert "sk_live_1" not in running.output
        with pytest.raises(ScriptFailed, match=r"code 1: B \[secret\] is wrong$"):
            await shell('echo "$TOKEN is wrong" >&2; exit 1', environment={"TOKEN": token}).ends()

    async def test_it_runs_in_a_worker_with_many_open_files(self) -> None:
        """B5: a guard process once used select(), which supports only the first 1,024 descriptors."""
        with many_open_files():
            assert await shell("sleep 0.05; echo '{}'").ends() == {}

    async def test_an_unknown_secret_fails_permanently_and_starts_nothing(self) -> None:
        with pytest.raises(NotHere, match="secret 'paypal' is unknown to worker"):
            shell("touch /tmp/started", environment={"TOKEN": {"secret": "paypal"}})

    async def test_an_invalid_payload_fails_permanently_and_starts_nothing(self) -> None:
        with pytest.raises(PermanentError, match=r"payload.a: is missing"):
            shell("exit 0", "{payload.a}", payload={"b": 1})

    async def test_its_folder_and_its_limits_come_from_the_table(self) -> None:
        running = shell(
            "pwd; ulimit -c; ulimit -v; ulimit -n; ulimit -t",
            directory="/usr",
            memory_mib=64,
            files=17,
            cpu_s=9,
        )
        await running.ends()
        assert running.output.splitlines() == ["/usr", "0", str(64 * 1024), "17", "9"]
        code = "import resource; print(resource.getrlimit(resource.RLIMIT_NPROC))"
        running = begin([sys.executable, "-I", "-c", code], processes=999)
        await running.ends()
        assert running.output == "(999, 999)"

    async def test_memory_beyond_its_limit_is_denied(self) -> None:
        running = begin([sys.executable, "-I", "-c", "x = bytearray(500_000_000)"], memory_mib=200)
        with pytest.raises(ScriptFailed, match="exited with code 1: MemoryError"):
            await running.ends()

    async def test_a_process_beyond_its_cpu_time_is_killed(self) -> None:
        with pytest.raises(ScriptFailed, match="was killed by SIGXCPU"):
            await begin([sys.executable, "-I", "-c", "while True: pass"], cpu_s=1).ends()

    @linux
    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
    @pytest.mark.parametrize("table", [{"user": "nobody"}, {"user": 65534}, {"user": "nobody", "group": "nogroup"}])
    async def test_it_runs_as_another_user_with_only_its_groups(
        self, table: dict[str, Any], request: pytest.FixtureRequest
    ) -> None:
        """F3: it keeps none of the worker's own groups."""
        before = os.getgroups()
        os.setgroups([*before, 4])
        request.addfinalizer(lambda: os.setgroups(before))
        running = shell('id -u; id -g; id -G; test "$(cat)" = \'"x"\'', payload="x", **table)
        await running.ends()
        assert running.output.splitlines() == ["65534", "65534", "65534"]


class TestWhatItsEndMeans:
    @pytest.mark.parametrize(
        ("code", "result"),
        [
            ("exit 0", None),
            ("echo done", None),
            ("echo 42", None),
            ("""echo working; echo '{"rows": 7}'""", {"rows": 7}),
            ("""echo '[1]'; echo; printf '[1, 2]'""", [1, 2]),
            ("""echo '{"rows": 7}' >&2""", None),
            ("""echo '{"rows": 7}'; echo bye""", None),
            ("echo '{broken'", None),
            ("printf '[\"'; head -c 70000 /dev/zero | tr '\\0' x; echo '\"]'", None),
        ],
    )
    async def test_the_last_line_may_be_the_result(self, code: str, result: Any) -> None:
        assert await shell(code).ends() == result

    @pytest.mark.parametrize(
        ("code", "table", "kind", "words"),
        [
            ("exit 1", {}, ScriptFailed, "x exited with code 1"),
            ("echo no space left >&2; exit 3", {}, ScriptFailed, "x exited with code 3: no space left"),
            ("exit 75", {}, RetryLater, "x exited with code 75"),
            ("exit 9", {"retry_codes": [9], "retry_after_s": 60}, RetryLater, "x exited with code 9"),
            ("exit 64", {"permanent_codes": [64]}, PermanentError, "x exited with code 64"),
            ("exit 1", {"permanent_codes": "others"}, PermanentError, "x exited with code 1"),
            ("exit 75", {"permanent_codes": "others"}, RetryLater, "x exited with code 75"),
            ("kill -SEGV $$", {"permanent_codes": "others"}, ScriptFailed, "x was killed by SIGSEGV"),
        ],
    )
    async def test_its_exit_code_decides_the_outcome(
        self, code: str, table: dict[str, Any], kind: type[Exception], words: str
    ) -> None:
        with pytest.raises(kind, match=f"^{words}$") as failure:
            await shell(code, **table).ends()
        assert type(failure.value) is kind
        assert getattr(failure.value, "delay_s", 0) == table.get("retry_after_s", 0)

    @pytest.mark.parametrize(
        ("table", "words"),
        [
            ({"argv": ["/nowhere/backup"]}, "No such file or directory: /nowhere/backup"),
            ({"argv": ["/etc/passwd"]}, "Permission denied: /etc/passwd"),
            ({"argv": ["/bin/true"], "directory": "/nowhere"}, "No such file or directory: /nowhere"),
            ({"argv": ["/bin/true"], "user": "no-such-user"}, "no-such-user"),
        ],
    )
    async def test_a_command_that_cannot_be_started_is_transient(self, table: dict[str, Any], words: str) -> None:
        with pytest.raises(NotStarted, match=words):
            await begin(**table).ends()

    async def test_a_script_may_ignore_or_close_its_input(self) -> None:
        payload = {"text": "x" * 250_000}
        assert await shell("exec 0<&-; echo '[1]'", payload=payload).ends() == [1]
        assert await shell("head -c 1 >/dev/null; echo '[2]'", payload=payload).ends() == [2]
        assert await shell('test "$(wc -c)" -gt 250000; echo "[$?]"', payload=payload).ends() == [0]


class TestWhatItPrints:
    async def test_its_output_is_visible_while_it_runs(self, gate: Path) -> None:
        running = shell('echo one; echo two >&2; read line < "$1"; echo "$line"', str(gate))
        assert sorted(await running.says(2)) == ["one", "two"]
        assert not running.handle.done.done()
        await asyncio.to_thread(gate.write_text, "three\n")
        await running.ends()
        assert running.output.splitlines()[2] == "three"

    @pytest.mark.parametrize("line", ["x" * 79, ""], ids=["lines", "one line"])
    async def test_a_hundred_megabytes_of_output_cost_little_memory_and_delay_no_other(self, line: str) -> None:
        size = 100_000_000
        source = f"yes {line}" if line else "tr '\\0' x < /dev/zero"
        before_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        running = shell(f"echo first; {source} | head -c {size}; echo; echo '[\"last\"]'")
        loop = asyncio.get_running_loop()
        longest_s, seen_at = 0.0, loop.time()
        while not running.handle.done.done():
            await asyncio.sleep(0.005)
            longest_s, seen_at = max(longest_s, loop.time() - seen_at), loop.time()
        assert await running.ends() == ["last"]
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before_mib < 24
        assert longest_s < 0.5
        assert running.output.startswith("first\n")
        assert running.output.endswith('["last"]')
        assert len(running.output.encode()) <= 64 * 1024

    async def test_a_script_that_prints_more_than_is_read_can_be_stopped(self) -> None:
        running = shell("yes")
        await running.says(1)
        running.handle.ask_to_stop()
        await running.stopped()


class TestStopping:
    async def test_a_request_to_stop_signals_the_whole_group(self) -> None:
        running = shell("sh -c 'trap \"echo child; exit 0\" TERM; echo ready; while :; do sleep 0.01; done' & wait")
        await running.says(1)
        running.handle.ask_to_stop()
        await running.stopped()
        assert running.context.cancelled

    async def test_a_script_that_completes_its_work_after_the_signal_succeeds(self) -> None:
        running = shell("trap 'echo \"[1]\"; exit 0' TERM; echo ready; while :; do sleep 0.01; done")
        await running.says(1)
        running.handle.ask_to_stop()
        assert await running.ends() == [1]

    async def test_its_exit_code_after_a_request_to_stop_does_not_count(self) -> None:
        """Otherwise a drain would send its job to the dead letters."""
        running = shell("trap 'exit 64' TERM; echo ready; while :; do sleep 0.01; done", permanent_codes=[64])
        await running.says(1)
        running.handle.ask_to_stop()
        await running.stopped()

    async def test_a_script_that_ignores_the_signal_is_killed_with_its_child_processes(self) -> None:
        code = (
            "trap 'echo heard' TERM; (trap '' TERM; exec sleep 1000) & setsid sleep 1000 & echo ready; while :; do wait; done"
        )
        running = shell(code)
        await running.says(1)
        await until(lambda: len(brood()) == 4)  # its guard, itself, two that sleep
        everything = [child.pid for child in brood()]
        running.handle.ask_to_stop()
        assert (await running.says(2))[1] == "heard"
        assert all(map(is_running, everything))
        assert running.handle.force_stop() is True
        assert isinstance(running.handle.done.exception(), Stopped)
        await running.stopped()
        assert not any(map(is_running, everything))

    async def test_a_script_that_is_stopped_before_it_began_never_begins(self, tmp_path: Path) -> None:
        for stop in ("ask_to_stop", "force_stop"):
            running = shell('touch "$1"', str(tmp_path / "began"))
            getattr(running.handle, stop)()
            await running.stopped()
        assert not (tmp_path / "began").exists()

    async def test_a_script_is_stopped_while_it_starts(self) -> None:
        for stop in ("ask_to_stop", "force_stop"):
            running = shell("sleep 1000")
            await until(lambda: brood() != [])
            getattr(running.handle, stop)()
            await running.stopped()


class TestNothingIsLeft:
    @pytest.mark.parametrize("how", ["sleep 1000 &", "setsid sleep 1000 &", "(setsid sh -c 'sleep 1000 & sleep 1000' &);"])
    async def test_processes_that_it_leaves_behind_are_killed_and_not_waited_for(self, how: str, gate: Path) -> None:
        """Even if they keep the output open, or have a session of their own."""
        running = shell(f"""{how} echo here; read line < "$1"; echo '[1]'""", str(gate))
        await running.says(1)
        await until(lambda: "sleep" in [child.name() for child in brood()])
        everything = [child.pid for child in brood()]
        await asyncio.to_thread(gate.write_text, "go on\n")
        assert await running.ends() == [1]
        assert not any(map(is_running, everything))

    @linux
    @pytest.mark.parametrize("when", ["at once", "later"])
    async def test_a_script_that_kills_its_guard_dies_with_its_group(self, when: str) -> None:
        code = "sleep 1000 & echo $$ $!; kill -9 $PPID; sleep 1000" if when == "later" else "kill -9 $PPID; sleep 1000"
        running = shell(code)
        with pytest.raises(ProcessDied, match="killed by SIGKILL"):
            await running.ends()
        await gone([int(number) for number in running.output.split()])
        leftovers = [p.pid for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "1000"]]
        await gone(leftovers)

    async def test_a_loop_that_ends_stops_its_scripts(self) -> None:
        async def main() -> list[int]:
            running = shell("trap '' TERM; setsid sleep 1000 & echo $$ $!; sleep 1000")
            return [int(number) for number in (await running.says(1))[0].split()]

        for new_loop in (asyncio.new_event_loop, uvloop.new_event_loop):

            def run(new_loop: Any = new_loop) -> list[int]:
                with asyncio.Runner(loop_factory=new_loop) as runner:
                    return runner.run(main())

            await gone(await asyncio.to_thread(run))

    @linux
    def test_when_the_worker_is_killed_its_scripts_die(self, worker: subprocess.Popen[str]) -> None:
        """Rule "the sweeper ends overdue runs": otherwise a lost run would continue here while its next attempt runs elsewhere.
        Also if a fork of the worker lives on with the worker's descriptors."""
        fork, *process_ids = numbers_from(worker)
        assert len(process_ids) == 3
        worker.kill()
        asyncio.run(gone(process_ids))
        assert is_running(fork)
        os.kill(fork, signal.SIGKILL)

    @linux
    def test_when_its_guard_is_killed_beside_a_hanging_worker_a_script_dies(self, worker: subprocess.Popen[str]) -> None:
        fork, script, *others = numbers_from(worker)
        worker.send_signal(signal.SIGSTOP)
        psutil.Process(script).parent().kill()  # type: ignore[union-attr]
        asyncio.run(gone([script]))
        worker.send_signal(signal.SIGCONT)
        for one in (fork, *others):
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process with a script that has a child and one that left its group. None of them outlives the test."""
    program = tmp_path / "worker.py"
    program.write_text(textwrap.dedent(WORKER))
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True, cwd=root) as process:
        yield process
        left = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        for one in left:
            with suppress(psutil.NoSuchProcess):
                one.kill()


def numbers_from(worker: subprocess.Popen[str]) -> list[int]:
    assert worker.stdout is not None
    found = [int(number) for number in worker.stdout.readline().split()]
    assert all(map(is_running, found))
    return found


WORKER = """
    import asyncio, os, sys, time
    sys.path.insert(0, os.getcwd())
    from tests.handlers.test_script import shell

    async def main():
        running = shell("trap '' TERM; sleep 1000 & echo $$ $!; setsid sleep 1000 & echo $!; wait")
        lines = await running.says(2)
        fork = os.fork()
        if fork == 0:
            time.sleep(1000)
        print(fork, *lines, flush=True)
        await asyncio.sleep(1000)

    asyncio.run(main())
"""
