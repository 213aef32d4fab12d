"""Events as log lines: each at the level that an operator expects, on one line, without a secret."""

from __future__ import annotations

import json
import os
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import structlog

from sexton.errors import DatabaseUnavailable
from sexton.store.database import Postgres
from sexton.telemetry import events, logs

ID = UUID(int=7)
KINDS: tuple[type[Any], ...] = typing.get_args(events.Event)

EXAMPLES: list[tuple[events.Event, str, str]] = [
    (events.Promoted(3, ("default", "mail"), overdue=False), "debug", "promoted"),
    (events.Claimed(ID, 2), "debug", "claimed"),
    (events.Ended(ID, ID, ID, 1, "a", "succeeded", "completed", 1, 0.01, 0.2, None), "debug", "ended"),
    (events.Ended(ID, ID, ID, 1, "a", "failed", None, 1, 0.01, 0.2, "no luck"), "info", "ended"),
    (events.Ended(ID, ID, ID, 1, "a", "timed_out", "failed", 5, 0.01, 0.2, "too long"), "info", "ended"),
    (events.HandedOver(ID, ID, ID, 1, "a"), "debug", "handed over"),
    (events.LeaseLost(ID, ID, ID, 1), "warning", "lease lost"),
    (events.ReportHeldUp(ID, ID, ID, "a", 1.5, "session 7 of ada (psql) has locked it"), "warning", "report held up"),
    (events.WorkerJoined(ID, "host:1"), "info", "worker joined"),
    (events.WorkerLost(ID, 6.0), "warning", "worker lost"),
    (events.DeclaredLost(ID, 3), "warning", "declared lost"),
    (events.Swept(1, 2, 3), "info", "swept"),
    (events.RunsLost(1, (f"mail {ID}",)), "warning", "runs lost"),
    (events.Reconciled(ID, 1), "warning", "reconciled"),
    (events.LeadershipChanged(ID, (0, 1, 2), 2), "info", "leadership changed"),
    (events.DatabaseLost("reporter", "connection refused"), "warning", "database lost"),
    (events.DatabaseAwaited("database", "connection refused", 30.0), "warning", "database awaited"),
    (events.DatabaseBack("reporter", 1.5), "info", "database back"),
    (events.Contended("promoter", "canceling statement due to lock timeout", 4.0), "warning", "contended"),
    (events.RowLocked("schedule 'x'", ID, None, 12.0, "session 7 (psql)", 300.0, "end it"), "warning", "row locked"),
    (
        events.TableLocked("sexton.runs in EXCLUSIVE mode", 12.0, "session 7 (psql)", 300.0, "end it"),
        "warning",
        "table locked",
    ),
    (
        events.AdvisoryLockTaken("the advisory lock (7307, 2)", 12.0, "session 7 (psql)", "end it"),
        "warning",
        "advisory lock taken",
    ),
    (events.EmbeddedRestarted("/home/ada/.local/share/sexton"), "warning", "embedded restarted"),
    (events.ServiceFailed("intake", ValueError("a bug")), "error", "service failed"),
    (events.LoopStalled(ID, 5.0), "warning", "loop stalled"),
    (events.StallHandedBack(ID, ID, 3), "warning", "stall handed back"),
    (events.CallDivided(ID, "send", 500, 250, "ValueError('no such user')"), "warning", "call divided"),
    (events.QuarantineStarted(7), "warning", "quarantine started"),
    (events.QuarantineLost(ID, 7, "exited with code 1", (ID,)), "warning", "quarantine lost"),
    (events.StallFound(7, "/srv/tasks.py:7 in crunch"), "warning", "stall found"),
    (events.LoopInterrupted("SystemExit(3)", "tasks.py:7", "poll"), "warning", "loop interrupted"),
    (events.LoopCallRefused("stop()", "poll", ID), "warning", "loop call refused"),
    (events.WorkerDisabled("its task ended"), "warning", "worker disabled"),
    (events.ProcessChanged("umask", "0000", ("a", "b")), "warning", "process changed"),
    (events.ExitForced(("poller at tasks.py:7, left by a",), ()), "warning", "exit forced"),
    (events.SettingMissing("secret stripe", "secret 'stripe' is unknown"), "warning", "setting missing"),
    (events.EditsKept(("a",)), "info", "edits kept"),
    (events.EditsOverwritten(("a",)), "warning", "edits overwritten"),
    (events.Drained(ID, 0), "info", "drained"),
    (events.Planned(3, overdue=False), "debug", "planned"),
    (events.FiresMissed(7), "warning", "fires missed"),
    (events.Repaired((ID,), 2), "warning", "repaired"),
    (events.SlotsRepaired(2), "warning", "slots repaired"),
    (events.ZonesFollowed("2026b", 3), "info", "zones followed"),
    (events.ZonesOlder("2026a", "2026b"), "warning", "zones older"),
    (events.PausedAfterFailures(ID, 5, "ValueError: broken"), "warning", "paused after failures"),
    (events.ApiListening("http://127.0.0.1:8474"), "info", "api listening"),
    (events.ApiExposed("http://0.0.0.0:8474"), "warning", "api exposed"),
]


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def written(capsys: pytest.CaptureFixture[str], *happened: events.Event, level: str = "DEBUG") -> list[dict[str, Any]]:
    logs.configure(level=level, json=True)
    for event in happened:
        logs.write(event)
    out, err = capsys.readouterr()
    assert out == "", "standard output is for answers"
    return [json.loads(line) for line in err.splitlines()]


def test_every_kind_of_event_has_an_example_here() -> None:
    assert {type(event) for event, _, _ in EXAMPLES} == set(KINDS)


@pytest.mark.parametrize(("event", "level", "words"), EXAMPLES, ids=lambda value: value if isinstance(value, str) else "")
def test_every_event_is_one_line_at_its_level(
    capsys: pytest.CaptureFixture[str], event: events.Event, level: str, words: str
) -> None:
    """E3."""
    (line,) = written(capsys, event)
    assert (line["level"], line["event"]) == (level, words)
    assert line["timestamp"].endswith("Z")


def test_a_line_contains_every_field_of_the_event(capsys: pytest.CaptureFixture[str]) -> None:
    """E3: structured; unknown values are left out."""
    (line,) = written(capsys, EXAMPLES[3][0])
    assert {name: line[name] for name in line if name not in ("timestamp", "level", "event")} == {
        **dict.fromkeys(("worker_id", "job_id", "run_id"), str(ID)),
        "token": 1,
        "task": "a",
        "status": "failed",
        "attempt": 1,
        "lag_s": 0.01,
        "took_s": 0.2,
        "reason": "no luck",
    }


def test_a_closed_standard_error_loses_no_line(tmp_path: Path) -> None:
    """C4: a handler that closes it leaves the descriptor open."""
    stream = (tmp_path / "log").open("w")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        logs.configure()
    stream.close()
    descriptor = os.dup(2)
    with (tmp_path / "log").open("a") as log:
        os.dup2(log.fileno(), 2)
        try:
            logs.write(events.Drained(ID, 0))
        finally:
            os.dup2(descriptor, 2)
            os.close(descriptor)
    assert "drained" in (tmp_path / "log").read_text()


def test_a_level_hides_what_is_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    lines = written(capsys, *(event for event, _, _ in EXAMPLES), level="WARNING")
    assert {line["level"] for line in lines} == {"warning", "error"}


@pytest.mark.parametrize("level", ["LOUD", "", "10"])
def test_an_unknown_level_is_rejected_with_the_known_ones(level: str) -> None:
    """E6."""
    with pytest.raises(ValueError, match="DEBUG, INFO, WARNING or ERROR"):
        logs.configure(level=level)


@pytest.mark.parametrize("as_json", [True, False])
def test_text_from_outside_cannot_forge_a_line(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    """F5: an error's message may contain anything."""
    logs.configure(json=as_json)
    logs.write(events.DatabaseLost("intake", "gone\n2026-01-01T00:00:00Z [info] all is well \x1b[31m"))
    _, err = capsys.readouterr()
    assert len(err.splitlines()) == 1
    assert "\x1b[31m" not in err


@pytest.mark.parametrize("as_json", [True, False])
def test_a_traceback_shows_code_and_never_the_values_in_it(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    """F5: local variables of a failed pass hold payloads and passwords."""

    def broken() -> None:
        secret = "".join(["hun", "ter", "2"])
        raise ValueError(f"a bug of length {len(secret)}")

    logs.configure(json=as_json)
    try:
        broken()
    except ValueError as error:
        logs.write(events.ServiceFailed("intake", error))
    _, err = capsys.readouterr()
    assert "a bug of length 7" in err
    assert "Traceback" in err
    assert "hunter2" not in err


@pytest.mark.parametrize(
    "url",
    ["postgresql://sexton:hunter2@127.0.0.1:1/db", "postgresql://sexton:hunter2@no.such.host.invalid/db"],
    ids=["refused", "unknown host"],
)
async def test_a_lost_database_is_logged_without_its_password(capsys: pytest.CaptureFixture[str], url: str) -> None:
    """F5."""
    with pytest.raises(DatabaseUnavailable) as raised:
        await Postgres.open(url)
    (line,) = written(capsys, events.DatabaseLost("database", str(raised.value)))
    assert line["error"]
    assert "hunter2" not in str(line)


def test_no_event_has_a_field_for_a_payload_or_a_result() -> None:
    """F5: what is not in an event cannot be logged."""
    fields = {name for kind in KINDS for name in kind.__struct_fields__}
    assert not fields & {"payload", "arguments", "result", "output", "progress", "url", "key"}


def test_events_are_immutable() -> None:
    for event, _, _ in EXAMPLES:
        with pytest.raises(AttributeError):
            setattr(event, event.__struct_fields__[0], None)
