"""The default of an option is written for people in `sexton.domain.job_options`, and known to the code and to SQL."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from sexton.domain.job import MAX_LOST, TIMEOUT_S, Lane, submission
from sexton.domain.job_options import BY_NAME, OPTIONS
from sexton.domain.retry import DEFAULT
from sexton.domain.schedule import check
from sexton.domain.schedule.document import document
from sexton.domain.schedule.recurrence import Recurrence
from sexton.domain.schedule.rule import DstRule, Schedule
from sexton.settings import Settings
from sexton.store.work import jobs, schedules
from sexton.store.work.jobs import JobView
from tests.store.support import NOW, run_row

if TYPE_CHECKING:
    from tests.store.support import Conn

RECURRENCE, DST = Recurrence(), DstRule()
NUMBERS = {5: "five"}
# What the code says where a job says nothing.
OF_THE_CODE = {
    "retry": f"{NUMBERS[DEFAULT.max_attempts]} attempts, {DEFAULT.base_s:g} s to {DEFAULT.max_s / 60:g} min apart",
    "timeout": f"{TIMEOUT_S:g}s",
    "lease": f"the worker's, {Settings.model_fields['lease_s'].default:g}s",
    "grace": f"the worker's, {Settings.model_fields['worker_grace_s'].default:g}s",
    "max_lost": str(MAX_LOST),
    "timezone": Schedule().timezone,
    "dst": f"{DST.gap} the gap, and the {DST.overlap} of two",
    "overlap": RECURRENCE.overlap.policy,
    "catch_up": f"{RECURRENCE.catch_up.policy}, within {RECURRENCE.catch_up.window_s / 60:g} minutes",
    "on_resume": RECURRENCE.on_resume,
}
# What the database stores; the tests below read it.
OF_THE_DATABASE = ("payload", "run_at", "delay", "tenant", "queue", "priority", "delivery", "timeout", "idempotency_ttl")
# The default is another value of the job, its queue or its tenant, or depends on the line.
OF_ANOTHER = ("jitter", "dialect", "anchor_at")


def said(*names: str) -> dict[str, str]:
    return {name: BY_NAME[name].default for name in names}


def stored(view: JobView) -> dict[str, str]:
    return {
        "payload": view.payload_json,
        "tenant": view.tenant,
        "queue": view.queue,
        "priority": Lane(view.lane).name.lower(),
        "delivery": "at_most_once" if view.at_most_once else "at_least_once",
        "timeout": f"{view.timeout_s:g}s",
    }


def test_every_default_is_compared_with_something() -> None:
    assert {*OF_THE_CODE, *OF_THE_DATABASE, *OF_ANOTHER} == {option.name for option in OPTIONS if option.default != "none"}


@pytest.mark.parametrize("name", OF_THE_CODE)
def test_the_text_of_a_default_is_the_default_of_the_code(name: str) -> None:
    assert BY_NAME[name].default == OF_THE_CODE[name]


@pytest.mark.parametrize("way", ["SQL", "Python"])
async def test_a_one_time_job_that_says_nothing_is_stored_with_the_defaults(connection: Conn, way: str) -> None:
    """A1, A12: `submit_jobs` fills them in, for every caller."""
    if way == "SQL":
        job_id = await connection.fetchval("SELECT sexton.submit('a', key => 'k')")
    else:
        ((job_id, _),) = await jobs.submit(connection, [submission("a", {}, key="k")])
    view = await jobs.show(connection, job_id)
    assert stored(view) == said(*stored(view))
    assert view.run_at == view.submitted_at, said("run_at", "delay")
    assert said("run_at", "delay") == {"run_at": "now", "delay": "now"}
    row = await run_row(connection, job_id)
    assert row is not None
    assert row["state"] == "ready"
    kept: timedelta = await connection.fetchval("SELECT expires_at - $1 FROM sexton.idempotency_keys", view.submitted_at)
    assert f"{kept / timedelta(days=1):g}d" == BY_NAME["idempotency_ttl"].default


@pytest.mark.parametrize("way", ["SQL", "Python"])
async def test_a_recurring_job_that_says_nothing_is_stored_with_the_defaults(connection: Conn, way: str) -> None:
    """A2, A12: `read_schedules` fills them in, for every caller."""
    if way == "SQL":
        job_id = await connection.fetchval("SELECT sexton.submit_schedule('a', every => '1 h')")
    else:
        rule: Any = check.schedule(now=NOW, every="1h")
        (written,) = await schedules.submit(connection, [document(submission("a", {}), rule, RECURRENCE)], now=NOW)
        job_id = written.id
    view = await jobs.show(connection, job_id)
    assert stored(view) == said(*stored(view))
    assert view.recurrence_json is None, "the defaults are those of the code"
