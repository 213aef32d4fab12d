from __future__ import annotations

import pickle
import threading
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
import pytest

from sexton.clock import ManualClock
from sexton.domain.fault import Invalid
from sexton.domain.run import Previous
from sexton.errors import PermanentError, Snooze
from sexton.handlers.context import Call, Context, Stopped, ask_to_stop, live_output_of
from sexton.handlers.live_output import OUTPUT_LIMIT, LiveOutput

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
CALL = Call(
    job_id=UUID(int=1),
    run_id=UUID(int=2),
    attempt=1,
    task="report",
    name=None,
    tenant="acme",
    queue="default",
    fire_at=NOON,
    due_at=NOON,
    trace=None,
    key=None,
    arguments={"user_id": 42},
    origin="schedule",
    previous=Previous("succeeded", NOON - timedelta(days=1)),
)


def live(context: Context) -> LiveOutput:
    words = live_output_of(context)
    assert words is not None
    return words


def progress(context: Context) -> Any:
    encoded = live(context).progress_json
    assert encoded is not None
    return msgspec.json.decode(encoded)


def output(context: Context) -> str:
    text = live(context).output
    assert text is not None
    return text


def test_a_context_knows_its_attempt() -> None:
    context = Context(CALL)
    assert (context.job_id, context.run_id, context.attempt) == (UUID(int=1), UUID(int=2), 1)
    assert (context.task, context.tenant, context.queue, context.fire_at) == ("report", "acme", "default", NOON)
    assert (context.origin, context.previous) == ("schedule", Previous("succeeded", NOON - timedelta(days=1)))


def test_a_call_can_be_sent_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(CALL)) == CALL
    assert msgspec.json.decode(msgspec.json.encode(CALL), type=Call) == CALL


def test_the_users_key_is_the_idempotency_key() -> None:
    assert Context(msgspec.structs.replace(CALL, key="invoice-42")).idempotency_key == "invoice-42"


def test_without_a_key_it_is_the_same_for_every_attempt_of_a_fire_in_whatever_zone_it_is_written() -> None:
    elsewhere = msgspec.structs.replace(CALL, attempt=3, fire_at=NOON.astimezone(timezone(timedelta(hours=2))))
    expected = f"{UUID(int=1)}:2026-03-01T12:00:00+00:00"
    assert Context(CALL).idempotency_key == Context(elsewhere).idempotency_key == expected


def test_a_handler_without_output_costs_nothing() -> None:
    assert live_output_of(Context(CALL)) is None


def test_the_last_progress_wins() -> None:
    context = Context(CALL)
    context.progress(0.5, "half", rows=10)
    context.progress(1)
    assert progress(context) == {"fraction": 1}


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
def test_progress_is_a_fraction(fraction: float) -> None:
    with pytest.raises(Invalid, match="between 0 and 1"):
        Context(CALL).progress(fraction)


def test_progress_that_cannot_be_stored_is_rejected() -> None:
    with pytest.raises(Invalid, match="JSON"):
        Context(CALL).progress(thing=object())
    with pytest.raises(Invalid, match="the limit is"):
        Context(CALL).progress(blob="x" * 20_000)


def test_progress_contains_nothing_that_postgresql_cannot_store() -> None:
    context = Context(CALL)
    context.progress(message="a\x00b\ud800", path=r"C:\u0000", raw="\x00")
    assert progress(context) == {"message": "a␀b\\ud800", "path": r"C:\u0000", "raw": "␀"}


def test_progress_with_nothing_is_a_sign_of_life_only() -> None:
    clock = ManualClock(NOON)
    context = Context(CALL, new_output=partial(LiveOutput, clock.monotonic))
    context.progress(0.5)
    live(context).take()
    clock.move(timedelta(seconds=7))
    context.progress()
    assert progress(context) == {"fraction": 0.5}
    assert (live(context).last_written_at, live(context).changed) == (7.0, False)


def test_new_output_is_a_change_until_it_is_taken() -> None:
    context = Context(CALL)
    context.log("one")
    assert live(context).changed
    assert live(context).take() == (None, "one")
    assert not live(context).changed


def test_the_log_keeps_the_beginning_and_the_newest_within_its_limit() -> None:
    context = Context(CALL)
    for number in range(20_000):
        context.log(f"line {number}")
    lines = output(context).split("\n")
    marks = [index for index, line in enumerate(lines) if line.startswith("… ")]
    assert len(output(context).encode()) <= OUTPUT_LIMIT
    assert (lines[0], lines[-1], len(marks)) == ("line 0", "line 19999", 1)
    assert lines[marks[0]] == f"… {20_000 - (len(lines) - 1)} lines omitted …"
    assert int(lines[marks[0] + 1].split()[1]) == marks[0] + 20_000 - (len(lines) - 1)


def test_a_log_within_the_limit_is_kept_completely() -> None:
    context = Context(CALL)
    context.log("\n".join(f"{number:099}" for number in range(600)))
    assert output(context) == "\n".join(f"{number:099}" for number in range(600))


@pytest.mark.parametrize("letter", ["x", "ü", "…"])
def test_even_endless_lines_stay_within_the_limit(letter: str) -> None:
    context = Context(CALL)
    for _ in range(30):
        context.log(letter * 100_000)
    assert OUTPUT_LIMIT * 0.8 < len(output(context).encode()) <= OUTPUT_LIMIT


def test_the_log_contains_nothing_that_postgresql_cannot_store() -> None:
    context = Context(CALL)
    context.log("a\x00b\ud800")
    assert output(context) == "a␀b\\ud800"


def test_all_threads_write_to_one_log() -> None:
    context = Context(CALL)
    together = threading.Barrier(8)

    def speak() -> None:
        together.wait(10)
        for _ in range(100):
            context.log("word")

    threads = [threading.Thread(target=speak) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert output(context).count("word") == 800


def test_snooze_and_give_up_end_the_handler() -> None:
    with pytest.raises(Snooze) as snoozed:
        Context(CALL).snooze("15m")
    assert snoozed.value.delay_s == 900
    with pytest.raises(PermanentError, match="no such customer"):
        Context(CALL).give_up("no such customer")
    with pytest.raises(Invalid):
        Context(CALL).snooze("soon")


def test_except_exception_does_not_swallow_a_stop() -> None:
    context = Context(CALL)
    context.check_cancelled()
    ask_to_stop(context)
    assert context.cancelled

    def careless_handler() -> str:
        try:
            context.check_cancelled()
        except Exception:
            return "swallowed"
        return "went on"

    with pytest.raises(Stopped):
        careless_handler()


def test_a_transaction_is_provided_by_the_worker() -> None:
    assert Context(CALL, lambda connection: ("transaction on", connection)).transaction("mine") == (
        "transaction on",
        "mine",
    )
    with pytest.raises(RuntimeError, match="process=True"):
        Context(CALL).transaction()
