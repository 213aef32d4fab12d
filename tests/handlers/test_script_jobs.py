"""C2, F3: jobs that run a command, through a real worker on a real database."""

from __future__ import annotations

import asyncio
import json

import psutil
import pytest
from pydantic import ValidationError

from sexton import Retry
from sexton.cli.commands.config import described
from sexton.domain.targets import ScriptTarget
from sexton.handlers.context import live_output_of
from sexton.settings import Settings
from sexton.store.database import Postgres
from tests.handlers.target_worker import target_worker
from tests.rig import LONG_S, Rig

GREET = {"argv": ["/bin/sh", "-c", 'echo "to $1"; echo "{\\"greeted\\": $(cat)}"', "sh", "{payload.name}"]}
HANG = {"argv": ["/bin/sh", "-c", "trap '' TERM; sleep 1000 & echo hanging; wait"]}


@pytest.fixture
def rig(database: Postgres) -> Rig:
    return Rig(database)


async def test_from_the_submission_to_the_result(rig: Rig) -> None:
    async with target_worker(rig, scripts={"greet": GREET}) as hand:
        job_id = await rig.submit(ScriptTarget("greet"), {"name": "Ada; id"})
        await hand.take()
        await hand.ends()
    (execution,) = await rig.executions(job_id)
    assert execution.status == "succeeded"
    assert json.loads(execution.result_json or "") == {"greeted": {"name": "Ada; id"}}
    assert execution.output is not None
    assert execution.output.splitlines()[0] == "to Ada; id"


async def test_a_worker_without_its_secret_hands_it_back(rig: Rig) -> None:
    """F3: as with URLs, it spends no attempt. A script finds out before it starts."""
    script = {**GREET, "environment": {"TOKEN": {"secret": "paypal"}}}
    async with target_worker(rig, scripts={"greet": script}) as hand:
        job_id = await rig.submit(ScriptTarget("greet"), {"name": "Ada"}, retry=Retry.never())
        await hand.take()
        await hand.report()
        run = await rig.run(job_id)
        assert run is not None
        assert (run["state"], run["attempt"], (await rig.last(job_id)).status) == ("waiting", 0, "snoozed")
        assert hand.worker.missing.names == ["secret paypal"]


async def test_a_command_on_no_allow_list_is_claimed_by_no_worker(rig: Rig) -> None:
    """F3, rule "claim only known tasks"."""
    async with target_worker(rig, scripts={"greet": GREET}) as hand:
        job_id = await rig.submit(ScriptTarget("other"), {"name": "Ada"})
        await hand.take()
        assert hand.held == []
    assert await rig.state(job_id) == "ready"


async def test_its_exit_code_decides_between_a_retry_and_the_dead_letters(rig: Rig) -> None:
    tables = {
        "later": {"argv": ["/bin/sh", "-c", "exit 75"], "retry_after_s": 3600},
        "never": {"argv": ["/bin/sh", "-c", "echo no such table >&2; exit 64"], "permanent_codes": [64]},
    }
    async with target_worker(rig, scripts=tables) as hand:
        later, never = await rig.submit(ScriptTarget("later")), await rig.submit(ScriptTarget("never"))
        await hand.take()
        while hand.held:
            await hand.ends()
    assert await rig.status(never) == "failed"
    (letter,) = await rig.letters()
    assert letter.error is not None
    assert letter.error.message == "never exited with code 64: no such table"
    assert "Traceback" not in (letter.error.traceback or "")
    run = await rig.run(later)
    assert run is not None
    assert run["state"] == "waiting"
    assert (run["due_at"] - rig.clock.database_now()).total_seconds() >= 3600


async def test_beyond_its_timeout_it_is_asked_to_stop_and_then_killed(rig: Rig) -> None:
    """SIGTERM, then SIGKILL after the grace."""
    async with target_worker(rig, scripts={"hang": HANG}) as hand:
        job_id = await rig.submit(ScriptTarget("hang"), timeout="30s", retry=None)
        await hand.take()
        (execution,) = hand.held
        context = execution.context
        assert context is not None
        async with asyncio.timeout(LONG_S):
            while live_output_of(context) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        processes = [child for child in psutil.Process().children(recursive=True) if "sleep 1000" in " ".join(child.cmdline())]
        assert len(processes) == 2  # the shell, and the command that it runs
        rig.move(31)
        assert execution.stopping
        assert all(process.is_running() for process in processes)
        rig.move(2.5)
        await hand.ends()
        assert await rig.statuses(job_id) == ["timed_out"]
        async with asyncio.timeout(LONG_S):
            while any(process.is_running() for process in processes):  # noqa: ASYNC110
                await asyncio.sleep(0.005)


def test_an_invalid_allow_list_keeps_a_worker_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    """F2, F4: from the environment, where it is JSON."""
    monkeypatch.setenv("SEXTON_SCRIPTS", '{"greet": {"argv": ["/bin/echo", "{payload.name}"]}}')
    assert Settings().scripts["greet"].argv == ("/bin/echo", "{payload.name}")
    for text, words in [
        ("{", "is not valid JSON"),
        ('{"greet": {"argv": ["echo"]}}', r"scripts.greet.argv\[0\]: 'echo' must be an absolute"),
    ]:
        monkeypatch.setenv("SEXTON_SCRIPTS", text)
        with pytest.raises(ValidationError, match=words):
            Settings()


def test_the_allow_list_is_shown_by_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """F3."""
    monkeypatch.setenv("SEXTON_SCRIPTS", '{"greet": {"argv": ["/bin/echo", "hunter2"], "environment": {"TOKEN": "hunter2"}}}')
    (shown,) = [setting for setting in described(Settings()) if setting.name == "scripts"]
    assert (shown.value, shown.default) == (["greet"], [])
    assert "hunter2" not in repr(Settings())
