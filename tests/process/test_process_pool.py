"""Functions in real processes: what they return, how they are killed, and that they leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import psutil
import pytest
import uvloop

from sexton.errors import PermanentError, RetryLater, Snooze
from sexton.handlers.context import Call, Context, Stopped
from sexton.handlers.handle import Handle
from sexton.handlers.live_output import LiveOutput
from sexton.handlers.python.function import ProcessFunction
from sexton.handlers.python.process_pool import ProcessDied, ProcessPool, RemoteError, info_of
from tests.handlers.open_files import many_open_files

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LONG_S = 20.0


class Task:
    """As a decorator would leave it in a module."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn


class CardDeclined(PermanentError):
    pass


def double(ctx: Context, number: int) -> int:
    return 2 * number


@Task
def decorated(ctx: Context) -> str:
    return "the function within"


async def double_async(ctx: Context, number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def echo(ctx: Context, value: Any) -> Any:
    return value


def process_id(ctx: Context) -> int:
    return os.getpid()


def facts(ctx: Context) -> list[Any]:
    return [ctx.job_id, ctx.attempt, ctx.fire_at, ctx.idempotency_key]


def unspeakable(ctx: Context) -> object:
    return object()


def talk(ctx: Context, gate: str) -> str:
    ctx.log("one\ntwo\x00")
    ctx.progress(0.5, "half", rows=7)
    return Path(gate).read_text()  # a named pipe: blocks until the test has read it


def hold(ctx: Context, gate: str) -> str:
    ctx.log(str(os.getpid()))
    return Path(gate).read_text()


def hold_with_offspring(ctx: Context, gate: str) -> str:
    offspring = subprocess.Popen(["sleep", "1000"])
    ctx.log(f"{os.getpid()} {offspring.pid}")
    return Path(gate).read_text()


def patient(ctx: Context) -> None:
    ctx.log("began")
    while True:
        ctx.check_cancelled()
        time.sleep(0.001)


async def patient_async(ctx: Context) -> None:
    ctx.log("began")
    try:
        await asyncio.Event().wait()
    finally:
        ctx.log(f"cancelled: {ctx.cancelled}")


def fail(ctx: Context, how: str) -> None:
    match how:
        case "snooze":
            ctx.snooze("90s")
        case "give_up":
            ctx.give_up("no use")
        case "subclass":
            raise CardDeclined("declined")
        case "retry_later":
            raise RetryLater("slow down", delay_s=7)
        case "error":
            raise ValueError("bad value")
        case "exit":
            sys.exit(3)
        case "crash":
            os._exit(3)
        case "signal":
            os.kill(os.getpid(), signal.SIGSEGV)
        case _:
            os.killpg(0, signal.SIGTERM)


class Heard(LiveOutput):
    """Lets a test wait for a message."""

    def __init__(self) -> None:
        super().__init__()
        self.word = asyncio.Event()

    def _mark_changed(self) -> None:
        super()._mark_changed()
        self.word.set()

    async def next(self) -> str:
        async with asyncio.timeout(LONG_S):
            await self.word.wait()
        self.word.clear()
        return self.output or ""


def begin(pool: ProcessPool, fn: Any, heard: Heard | None = None, **arguments: Any) -> Handle:
    call = Call(UUID(int=1), UUID(int=2), 3, "task", None, "acme", "default", NOON, NOON, None, None, arguments)
    plain = fn.fn if isinstance(fn, Task) else fn
    handler = ProcessFunction(plain, __name__, plain.__qualname__, pool)
    return handler.start(call, Context(call, new_output=LiveOutput if heard is None else lambda: heard))


async def run(pool: ProcessPool, fn: Any, **arguments: Any) -> Any:
    async with asyncio.timeout(LONG_S):
        return await begin(pool, fn, **arguments).done


async def settled(future: asyncio.Future[Any]) -> None:
    done, _ = await asyncio.wait([future], timeout=LONG_S)
    assert done, "still not done"


async def until(fact: Callable[[], bool]) -> None:
    """Polls: only the parent of a process is notified of its end, and here that is the pool."""
    async with asyncio.timeout(LONG_S):
        while not fact():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def is_running(process_id: int) -> bool:
    try:
        return psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def open_gate(gate: Path, word: str) -> None:
    await asyncio.to_thread(gate.write_text, word)


before: set[psutil.Process] = set()


@pytest.fixture(autouse=True)
def _others() -> None:
    """Processes that other tests keep for the whole session, such as the guard of their PostgreSQL, do not count."""
    before.clear()
    before.update(psutil.Process().children())


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if child not in before]


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
async def pool() -> AsyncIterator[ProcessPool]:
    pool = ProcessPool(2)
    yield pool
    async with asyncio.timeout(LONG_S):
        await pool.close()
    assert children() == []


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


async def test_a_call_returns_its_result(pool: ProcessPool) -> None:
    assert await run(pool, double, number=21) == 42
    assert await run(pool, double_async, number=21) == 42
    assert await run(pool, decorated) == "the function within"


async def test_a_child_of_a_worker_with_many_open_files_stays_alive(pool: ProcessPool) -> None:
    """B5: it once used select() on its lifeline, which supports only the first 1,024 descriptors."""
    with many_open_files():
        assert await run(pool, process_id) != os.getpid()


async def test_the_context_is_the_same_in_the_child(pool: ProcessPool) -> None:
    key = f"{UUID(int=1)}:2026-03-01T12:00:00+00:00"
    assert await run(pool, facts) == [str(UUID(int=1)), 3, "2026-03-01T12:00:00Z", key]


async def test_arguments_and_results_are_exact_json(pool: ProcessPool) -> None:
    value = {"big": 2**80, "text": "ü\U0001f514", "nothing": None, "nested": [{"a": [1.5, True]}]}
    assert await run(pool, echo, value=value) == value


async def test_a_result_that_is_not_json_fails_permanently(pool: ProcessPool) -> None:
    with pytest.raises(PermanentError, match="cannot be encoded as JSON"):
        await run(pool, unspeakable)


async def test_big_arguments_and_results_do_not_block_each_other(pool: ProcessPool) -> None:
    big = "x" * (1024 * 1024)
    assert await asyncio.gather(*(run(pool, echo, value=big + str(n)) for n in range(6))) == [big + str(n) for n in range(6)]


async def test_members_start_when_needed_and_are_reused(pool: ProcessPool) -> None:
    assert children() == []
    first = await run(pool, process_id)
    assert {await run(pool, process_id) for _ in range(10)} == {first}
    assert first != os.getpid()


async def test_200_quick_calls(pool: ProcessPool) -> None:
    results = await asyncio.gather(*(run(pool, double, number=n) for n in range(200)))
    assert results == [2 * n for n in range(200)]
    assert len(children()) == 2


async def test_progress_and_log_arrive_while_it_runs(pool: ProcessPool, gate: Path) -> None:
    heard = Heard()
    handle = begin(pool, talk, heard, gate=str(gate))
    while heard.progress_json is None:
        assert await heard.next() == "one\ntwo␀"
    assert msgspec.json.decode(heard.progress_json) == {"fraction": 0.5, "message": "half", "rows": 7}
    assert not handle.done.done()
    await open_gate(gate, "heard")
    assert await handle.done == "heard"


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("give_up", PermanentError, "no use"),
        ("subclass", PermanentError, "declined"),
        ("retry_later", RetryLater, "slow down"),
        ("snooze", Snooze, "90 s"),
        ("error", RemoteError, "ValueError: bad value"),
        ("exit", RemoteError, "SystemExit: 3"),
    ],
)
async def test_an_exception_in_the_child_is_raised_in_the_worker(
    pool: ProcessPool, how: str, kind: type[Exception], words: str
) -> None:
    process = await run(pool, process_id)
    with pytest.raises(kind, match=words) as failure:
        await run(pool, fail, how=how)
    assert getattr(failure.value, "delay_s", None) == {"snooze": 90, "retry_later": 7}.get(how)
    assert await run(pool, process_id) == process


async def test_history_shows_the_error_as_the_child_raised_it(pool: ProcessPool) -> None:
    with pytest.raises(PermanentError) as failure:
        await run(pool, fail, how="subclass")
    info = info_of(failure.value)
    assert info.type == f"{__name__}.CardDeclined"
    assert "sexton.errors.PermanentError" in info.kinds
    assert 'raise CardDeclined("declined")' in (info.traceback or "")


@pytest.mark.parametrize(("how", "words"), [("crash", "exited with code 3"), ("signal", "killed by SIGSEGV")])
async def test_a_crash_fails_the_call_and_the_pool_continues(pool: ProcessPool, how: str, words: str) -> None:
    with pytest.raises(ProcessDied, match=words):
        await run(pool, fail, how=how)
    assert await run(pool, double, number=21) == 42


async def test_a_member_that_dies_idle_is_replaced(pool: ProcessPool) -> None:
    first = await run(pool, process_id)
    os.kill(first, signal.SIGKILL)
    await until(lambda: not psutil.pid_exists(first))  # the pool reaps it without a further call
    second = await run(pool, process_id)
    assert second != first
    assert [child.pid for child in children()] == [second]


async def test_signals_meant_for_the_worker_do_not_end_it(pool: ProcessPool) -> None:
    assert await run(pool, fail, how="signal_group") is None


@pytest.mark.parametrize("fn", [patient, patient_async])
async def test_a_member_that_is_asked_to_stop_is_notified(pool: ProcessPool, fn: Any) -> None:
    heard = Heard()
    handle = begin(pool, fn, heard)
    await heard.next()
    handle.ask_to_stop()
    await settled(handle.freed)
    assert isinstance(handle.done.exception(), Stopped)
    assert heard.output == ("began" if fn is patient else "began\ncancelled: True")
    assert await run(pool, double, number=21) == 42  # the request does not stop the next call


async def test_a_call_that_is_stopped_before_it_has_a_process_never_begins(pool: ProcessPool) -> None:
    handle = begin(pool, hold, gate="/nowhere")
    handle.ask_to_stop()
    assert isinstance(handle.done.exception(), Stopped)
    await settled(handle.freed)


async def test_a_forced_call_is_killed_with_its_child_processes_and_other_members_continue(
    pool: ProcessPool, gate: Path
) -> None:
    kept, doomed = Heard(), Heard()
    survivor = begin(pool, hold, kept, gate=str(gate))
    await kept.next()
    victim = begin(pool, hold_with_offspring, doomed, gate=str(gate))
    process_ids = [int(number) for number in (await doomed.next()).split()]
    assert victim.force_stop() is True
    assert isinstance(victim.done.exception(), Stopped)
    await settled(victim.freed)
    await until(lambda: not any(map(is_running, process_ids)))
    assert await run(pool, double, number=21) == 42
    assert not survivor.done.done()
    await open_gate(gate, "unharmed")
    assert await survivor.done == "unharmed"


async def test_killing_leaves_neither_processes_nor_descriptors() -> None:
    pool = ProcessPool(1)
    await run(pool, process_id)
    await pool.close()
    before = open_files()
    pool = ProcessPool(1)
    for _ in range(3):
        heard = Heard()
        handle = begin(pool, patient, heard)
        await heard.next()
        handle.force_stop()
        assert isinstance(handle.done.exception(), Stopped)
        await settled(handle.freed)
    await pool.close()
    assert open_files() == before
    assert children() == []


async def test_closing_ends_idle_members_and_waits_for_busy_ones(gate: Path) -> None:
    pool = ProcessPool(2)
    heard = Heard()
    busy = begin(pool, hold, heard, gate=str(gate))
    busy_id = int(await heard.next())
    idle_id = await run(pool, process_id)
    closing = asyncio.create_task(pool.close())
    await until(lambda: not is_running(idle_id))
    assert is_running(busy_id)
    assert not closing.done()
    await open_gate(gate, "done")
    assert await busy.done == "done"
    async with asyncio.timeout(LONG_S):
        await closing
    late = begin(pool, process_id)
    await settled(late.done)
    assert isinstance(late.done.exception(), Stopped)


def test_it_works_on_uvloop_and_survives_a_loop_that_just_ends() -> None:
    async def main() -> int:
        pool = ProcessPool(2)
        assert await run(pool, double, number=21) == 42
        with pytest.raises(ProcessDied):
            await run(pool, fail, how="crash")
        heard = Heard()
        begin(pool, patient, heard)
        await heard.next()
        return 1

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == 1
    assert children() == []


SCRIPT = """
    import asyncio, subprocess, sys
    from datetime import UTC, datetime
    from uuid import UUID
    from sexton.handlers.context import Call, Context
    from sexton.handlers.python.process_pool import ProcessPool
    from sexton.handlers.python.function import ProcessFunction
    from sexton.handlers.live_output import LiveOutput
    import os, time

    LIMIT = int(sys.argv[1])

    def answer(ctx, question):
        return [question, __name__, LIMIT]

    def hang(ctx):
        offspring = subprocess.Popen(["sleep", "1000"])
        ctx.log(f"{os.getpid()} {offspring.pid}")
        sum(range(10**12))

    class Printed(LiveOutput):
        def logged(self, text):
            print(text, flush=True)

    async def main(fn, **arguments):
        now = datetime(2026, 3, 1, tzinfo=UTC)
        call = Call(UUID(int=1), UUID(int=2), 1, "t", None, "a", "q", now, now, None, None, arguments)
        pool = ProcessPool(1)
        handle = ProcessFunction(fn, __name__, fn.__qualname__, pool).start(call, Context(call, new_output=Printed))
        print(await handle.done, flush=True)
        await pool.close()

    if __name__ == "__main__":
        asyncio.run(main(answer, question="why") if sys.argv[2] == "answer" else main(hang))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "my_script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    return path


@pytest.mark.parametrize(
    ("way", "name"), [(["my_script.py"], "__mp_main__"), (["-m", "my_script"], "my_script")], ids=["file", "module"]
)
def test_tasks_may_be_defined_in_the_main_module(script: Path, way: list[str], name: str) -> None:
    command = [sys.executable, *way, "5", "answer"]
    finished = subprocess.run(command, cwd=script.parent, capture_output=True, text=True, timeout=LONG_S, check=False)
    assert (finished.stdout.strip(), finished.stderr) == (f"['why', {name!r}, 5]", "")


def test_when_the_worker_is_killed_its_children_and_their_children_die_too(script: Path) -> None:
    with subprocess.Popen([sys.executable, str(script), "5", "hang"], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        process_ids = [int(number) for number in worker.stdout.readline().split()]
        assert len(process_ids) == 2
        assert all(map(is_running, process_ids))
        worker.kill()
        asyncio.run(until(lambda: not any(map(is_running, process_ids))))
