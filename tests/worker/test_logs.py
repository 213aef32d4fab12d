"""Events as log lines: every one at the level an operator expects, on one line, without a secret in it."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator
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
    (events.WorkerJoined(ID, "host:1"), "info", "worker joined"),
    (events.WorkerLost(ID, 6.0), "warning", "worker lost"),
    (events.DeclaredLost(ID, 3), "warning", "declared lost"),
    (events.Swept(1, 2, 3), "info", "swept"),
    (events.Reconciled(ID, 1), "warning", "reconciled"),
    (events.LeadershipChanged(ID, (0, 1, 2), 2), "info", "leadership changed"),
    (events.DatabaseLost("reporter", "connection refused"), "warning", "database lost"),
    (events.DatabaseAwaited("database", "connection refused", 30.0), "warning", "database awaited"),
    (events.DatabaseBack("reporter", 1.5), "info", "database back"),
    (events.EmbeddedRestarted("/home/ada/.local/share/sexton"), "warning", "embedded restarted"),
    (events.ServiceFailed("intake", ValueError("a bug")), "error", "service failed"),
    (events.LoopStalled(ID, 5.0), "warning", "loop stalled"),
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


def test_a_line_carries_all_that_the_event_knows(capsys: pytest.CaptureFixture[str]) -> None:
    """E3: structured; what is not known is left out."""
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


def test_a_level_hides_what_is_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    lines = written(capsys, *(event for event, _, _ in EXAMPLES), level="WARNING")
    assert {line["level"] for line in lines} == {"warning", "error"}


@pytest.mark.parametrize("level", ["LOUD", "", "10"])
def test_a_level_that_does_not_exist_is_refused_with_those_that_do(level: str) -> None:
    """E6."""
    with pytest.raises(ValueError, match="DEBUG, INFO, WARNING or ERROR"):
        logs.configure(level=level)


@pytest.mark.parametrize("as_json", [True, False])
def test_words_from_outside_cannot_forge_a_line(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    """F5: an error's message may hold anything."""
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
async def test_a_lost_database_is_told_without_its_password(capsys: pytest.CaptureFixture[str], url: str) -> None:
    """F5."""
    with pytest.raises(DatabaseUnavailable) as raised:
        await Postgres.open(url)
    (line,) = written(capsys, events.DatabaseLost("database", str(raised.value)))
    assert line["error"]
    assert "hunter2" not in str(line)


def test_no_event_has_a_place_for_a_payload_or_a_result() -> None:
    """F5: what is not in an event cannot be logged."""
    fields = {name for kind in KINDS for name in kind.__struct_fields__}
    assert not fields & {"payload", "arguments", "result", "output", "progress", "url", "key"}


def test_events_are_facts_that_nobody_changes() -> None:
    for event, _, _ in EXAMPLES:
        with pytest.raises(AttributeError):
            setattr(event, event.__struct_fields__[0], None)
