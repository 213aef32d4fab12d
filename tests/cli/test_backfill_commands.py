"""`sexton jobs backfill` and `sexton jobs run` with a payload: a preview, a question, and the result."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from sexton.cli import main as cli
from sexton.store.database import Postgres

Call = Callable[..., tuple[int, str, str]]


class Input(io.TextIOWrapper):
    def __init__(self, text: str, tty: bool) -> None:
        super().__init__(io.BytesIO(text.encode()), encoding="utf-8")
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], database_url: str) -> Call:
    """Runs the command with these arguments on a database. Returns its exit code, output and error output."""
    monkeypatch.setenv("SEXTON_DATABASE_URL", database_url)

    def called(*arguments: str, answer: str | None = None) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sexton", *arguments])
        monkeypatch.setattr(sys, "stdin", Input(answer or "", answer is not None))
        with pytest.raises(SystemExit) as exited:
            cli.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return int(exited.value.code or 0), out, err

    return called


@pytest.fixture
def job_id(call: Call) -> str:
    _, out, _ = call("submit", "echo", "--every", "1h", "--name", "hourly", "--json", "a=1")
    job_id: str = json.loads(out)["id"]
    return job_id


SINCE = (datetime.now(UTC) - timedelta(hours=12, minutes=1)).isoformat()


def test_a_backfill_is_shown_and_confirmed_before_it_runs(call: Call, job_id: str) -> None:
    """A7, E6: without a terminal the answer is no, as with "no"."""
    code, out, _ = call("jobs", "backfill", job_id, "--from", SINCE, "--dry-run")
    assert (code, "13 past fires would run" in out, "and 3 more, to" in out) == (0, True, True)
    code, _, err = call("jobs", "backfill", job_id, "--from", SINCE)
    assert (code, "There is no terminal to confirm it; add --yes" in err) == (2, True)
    code, _, err = call("jobs", "backfill", job_id, "--from", SINCE, answer="n\n")
    assert (code, "13 past fires would run" in err, "nothing was changed" in err) == (1, True, True)
    code, out, err = call("jobs", "backfill", job_id, "--from", SINCE, answer="y\n")
    assert (code, "13 past fires will run" in out) == (0, True)
    code, out, _ = call("jobs", "backfill", job_id, "--from", SINCE, "--yes")
    assert (code, "left out: 13 that wait or run" in out) == (0, True)
    assert call("jobs", "backfill", job_id, "--stop")[1] == "13 past fires will not run; 0 running ones continue\n"
    _, out, _ = call("jobs", "executions", job_id)
    assert "backfill · its backfill was stopped" in out


def test_programs_get_the_answer_of_the_api(call: Call, job_id: str) -> None:
    code, out, _ = call("jobs", "backfill", job_id, "--from", SINCE, "--all", "--spacing", "2s", "--yes", "--json")
    answer = json.loads(out)
    assert (code, len(answer["fires"]), answer["dry_run"]) == (0, 13, False)
    code, out, _ = call("jobs", "backfill", job_id, "--stop", "--json")
    assert (code, json.loads(out)["ended_count"]) == (0, 13)


def test_invalid_input_is_reported(call: Call, job_id: str) -> None:
    assert call("jobs", "backfill", job_id)[0] == 2
    assert call("jobs", "backfill", job_id, "--from", "yesterday")[0] == 2
    code, _, err = call("jobs", "backfill", job_id, "--from", SINCE, "--parallel", "--yes")
    assert (code, "one runs at a time" in err) == (2, True)
    assert call("jobs", "backfill", "8199a1b2-0000-7000-8000-000000000000", "--from", SINCE)[0] == 4


async def _payloads(url: str) -> list[str]:
    database = await Postgres.open(url)
    async with database.connection() as connection:
        rows = await connection.fetch("SELECT payload FROM sexton.run_payloads ORDER BY run_id")
    await database.close()
    return [row["payload"] for row in rows]


def test_a_job_runs_by_hand_with_another_payload(call: Call, job_id: str, database_url: str) -> None:
    """A7."""
    assert call("jobs", "run", job_id, "region=eu", "n=2")[:2] == (0, f"{job_id} is due now\n")
    assert call("jobs", "run", job_id, "--payload", '{"n": 3}')[0] == 0
    assert call("jobs", "run", job_id)[0] == 0
    assert call("jobs", "run", "n=2")[0] == 2
    assert call("jobs", "run", job_id, "n=2", "--payload", "{}")[0] == 2
    assert asyncio.run(_payloads(database_url)) == ['{"n": 2, "region": "eu"}', '{"n": 3}']
