"""Admission: which runs may run at the same time, decided under a lock, and examined again in every pass."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import pytest

from sexton.domain import partition, run
from sexton.domain.outcome import ErrorInfo, Failed, Snoozed, Succeeded
from sexton.operations import replay
from sexton.operations.caller import SCHEDULER
from sexton.operations.recurring import recurring_jobs
from sexton.operations.recurring.admit import AGAIN_S, admit
from sexton.store.work import runs, schedules
from tests.callers import TESTER
from tests.rig import LONG_S, NOW, Between, Rig
from tests.store.support import BROKEN
from tests.timetable import Timetable, document

if TYPE_CHECKING:
    Conn = asyncpg.Connection[Any]

DOCS = Path(__file__).parents[2] / "docs" / "schedules.md"
POLICIES: dict[str, dict[str, Any]] = {
    "skip": {},
    "queue": {"policy": "queue", "max_queued": 1},
    "parallel": {"policy": "parallel", "max_parallel": 2},
    "replace": {"policy": "replace"},
}


async def twenty_minutes_every_fifteen(rig: Rig, policy: str) -> tuple[Timetable, UUID]:
    """It is submitted at 12:00 and watched for two hours."""
    table = Timetable(rig, takes_s=20 * 60)
    recurrence = {"overlap": POLICIES[policy]} if POLICIES[policy] else None
    job_id = await table.write(recurrence=recurrence)
    await table.until(120, step_s=300)
    return table, job_id


async def told(table: Timetable, job_id: UUID) -> list[str]:
    """The rows of the table in the documentation."""
    started = {start.fire_at: start.at for start in table.starts}
    rows = await table.rig.execute(
        "SELECT id, fire_at, status, reason, ended_at FROM sexton.executions WHERE job_id = $1 AND token > 0", job_id
    )
    ended = {row["fire_at"]: (row["status"], row["ended_at"]) for row in rows}
    blockers = {
        row["run_id"]: row["fire_at"]
        for row in await table.rig.execute(
            "SELECT run_id, fire_at FROM sexton.executions UNION ALL SELECT id, fire_at FROM sexton.runs"
        )
    }
    skipped = {gap.first_at: gap.reason for gap in await table.ledger(job_id)}
    live = {fire_at: state for state, fire_at in await table.live(job_id)}
    cells = []
    for fire_at in sorted({*started, *skipped, *live}):
        if fire_at > table.now:
            continue
        if fire_at in started:
            status, ended_at = ended.get(fire_at, ("running", None))
            until = "" if ended_at is None else f" to {clock(ended_at)}"
            cells.append(f"{clock(started[fire_at])}{until}" + ("" if status in ("succeeded", "running") else f", {status}"))
        elif fire_at in skipped:
            reason, _, run_id = skipped[fire_at].rpartition(": ")
            cells.append(f"no: {reason} ({clock(blockers[UUID(run_id)])})")
        else:
            cells.append(live[fire_at])
    return cells


def clock(at: datetime) -> str:
    return at.strftime("%H:%M")


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        ("skip", {15: 15, 45: 45, 75: 75, 105: 105}),
        ("queue", {15: 15, 30: 35, 45: 55, 60: 75, 75: 95, 105: 115}),
        ("parallel", {15: 15, 30: 30, 45: 45, 60: 60, 75: 75, 90: 90, 105: 105, 120: 120}),
        ("replace", {15: 15, 30: 30, 45: 45, 60: 60, 75: 75, 90: 90, 105: 105, 120: 120}),
    ],
)
async def test_a_job_of_twenty_minutes_every_fifteen(rig: Rig, policy: str, starts: dict[float, float]) -> None:
    """B5: which fire started when; the ledger has the others, with the run that blocked them."""
    table, job_id = await twenty_minutes_every_fifteen(rig, policy)
    assert dict(zip(table.fire_minutes(), table.start_minutes(), strict=True)) == starts
    not_started = {15.0 * n for n in range(1, 9)} - set(starts)
    gone = {*table.minutes([gap.first_at for gap in await table.ledger(job_id)])}
    still = {*table.minutes([fire_at for state, fire_at in await table.live(job_id) if state == "blocked"])}
    assert gone | still == not_started
    assert all(gap.status == "skipped" for gap in await table.ledger(job_id))


async def test_the_table_in_the_documentation_is_true(rig: Rig) -> None:
    """B5. The table is generated here: if it differs, the message has the expected text."""
    columns: list[list[str]] = []
    for policy in POLICIES:
        table, job_id = await twenty_minutes_every_fifteen(rig, policy)
        columns.append(await told(table, job_id))
        await rig.cancel(job_id)
        await table.work()
        rig.clock.move(NOW - table.now)
    names = [
        f"`{policy}`" + "".join(f", `{key}` {value}" for key, value in how.items() if key != "policy")
        for policy, how in POLICIES.items()
    ]
    lines = ["| fire | " + " | ".join(names) + " |", "|---" * 5 + "|"]
    begins = 12 * 60
    for number, cells in enumerate(zip(*columns, strict=True), start=1):
        lines.append(f"| {(begins + 15 * number) // 60}:{15 * number % 60:02} | " + " | ".join(cells) + " |")
    expected = "\n".join(lines)
    assert expected in DOCS.read_text(), expected


@pytest.mark.parametrize("locked", [True, False])
async def test_a_promoter_that_cannot_see_what_another_starts_does_not_decide(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, locked: bool
) -> None:
    """B5, rule "lock, then decide". Without the lock two runs start at once; where several may run, no index prevents it."""
    between = Between(rig.database)
    table = Timetable(rig)
    job_id = await table.write(recurrence={"overlap": {"policy": "parallel", "max_parallel": 1}})
    rig.move(15 * 60 - 1)
    if not locked:
        monkeypatch.setattr(schedules, "lock_partitions", everything_is_mine)

    async def rival() -> None:
        await table.fire(job_id)
        await admit(rig.database, SCHEDULER, partition.ALL, limit=10, now=table.now)

    between.after("promote_alone", rival)
    await admit(between, SCHEDULER, partition.ALL, limit=10, now=table.now + timedelta(seconds=1))
    ready = [state for state, _ in await table.live(job_id)].count("ready")
    assert ready == (1 if locked else 2)


async def everything_is_mine(_connection: object, partitions: Collection[int]) -> list[int]:
    return list(partitions)


async def test_a_partition_that_another_promoter_has_locked_is_skipped(rig: Rig, connection: Conn) -> None:
    """B5, B8, rule "lock, then decide": no promoter waits, and the next pass comes soon."""
    table = Timetable(rig)
    job_id = await table.write()
    rig.move(15 * 60)
    async with connection.transaction():
        await schedules.lock_partitions(connection, partition.ALL)
        async with asyncio.timeout(LONG_S):
            assert await table.promoter.run_once() <= AGAIN_S
        assert await table.live(job_id) == [("waiting", table.now)]
    await table.promoter.run_once()
    assert await table.live(job_id) == [("ready", table.now)]


async def test_a_promoter_that_is_paused_in_the_middle_holds_its_partitions_for_five_seconds(
    rig: Rig, connection: Conn
) -> None:
    """B2: not for the minute that other transactions may take."""
    async with connection.transaction():
        await schedules.lock_partitions(connection, [1])
        assert await connection.fetchval("SHOW idle_in_transaction_session_timeout") == "5s"


async def test_a_job_whose_run_is_locked_is_not_waited_for(rig: Rig, connection: Conn) -> None:
    """B8, rule "lock, then decide": a person edits it, slowly; the others continue, without a deadlock."""
    table = Timetable(rig, takes_s=3600)
    slow, other = await table.write(), await table.write()
    await table.until(15)
    rig.move(15 * 60)
    await table.planner.run_once()
    async with connection.transaction():
        await connection.fetch("SELECT FROM sexton.runs WHERE job_id = $1 AND state = 'running' FOR UPDATE", slow)
        async with asyncio.timeout(LONG_S):
            assert await table.promoter.run_once() <= AGAIN_S
        assert [gap.status for gap in await table.ledger(other)] == ["skipped"]
        assert await table.ledger(slow) == []
    await table.promoter.run_once()
    assert [gap.status for gap in await table.ledger(slow)] == ["skipped"]


@pytest.mark.parametrize("pause", ["retry", "snooze"])
async def test_waits_between_attempts_are_live(rig: Rig, pause: str) -> None:
    """B5, rule "lock, then decide"."""
    table = Timetable(rig, takes_s=60)
    policy = {"retry": {"kind": "fixed", "base_s": 3600.0}} if pause == "retry" else None
    job_id = await table.write(policy=policy)
    rig.move(15 * 60)
    await table.turn()
    outcome = Failed(ErrorInfo("ValueError", "flaky")) if pause == "retry" else Snoozed(3600)
    ((_, claimed),) = table.held
    report = run.report(claimed.lease, outcome, Random(1))
    async with rig.database.connection() as connection:
        await runs.finish(connection, [report], now=table.now)
    table.held = []
    assert report.next == "again"
    rig.move(15 * 60)
    await table.turn()
    (gap,) = await table.ledger(job_id)
    assert gap.reason == f"the previous run has not ended: {claimed.lease.run_id}"


async def test_replace_ends_at_once_a_run_that_waits_for_its_next_attempt(rig: Rig) -> None:
    """B5."""
    table = Timetable(rig, takes_s=60)
    job_id = await table.write(recurrence={"overlap": {"policy": "replace"}})
    rig.move(15 * 60)
    await table.turn()
    ((_, claimed),) = table.held
    async with rig.database.connection() as connection:
        await runs.finish(connection, [run.report(claimed.lease, Snoozed(3600), Random(1))], now=table.now)
    table.held = []
    rig.move(15 * 60)
    await table.schedule()
    await table.turn()
    assert table.fire_minutes() == [15, 30]
    assert (await rig.statuses(job_id))[:2] == ["snoozed", "cancelled"]


async def test_a_release_without_a_notification_is_found_by_the_next_pass(rig: Rig) -> None:
    """B5, rule "look again every pass": notifications are off, and the node that should release it is gone."""
    table = Timetable(rig, takes_s=20 * 60)
    job_id = await table.write(recurrence={"overlap": {"policy": "queue"}})
    rig.move(15 * 60)
    await table.turn()
    rig.move(15 * 60)
    await table.schedule()
    assert ("blocked", table.now) in await table.live(job_id)
    rig.move(10 * 60)
    await table._end(Succeeded())
    _, stranger = table.node()
    await stranger.run_once()
    assert [state for state, _ in await table.live(job_id)] == ["ready", "waiting"]


async def test_without_looking_again_a_blocked_run_stays_blocked(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above fails without rule "look again every pass"."""

    async def nothing(*_: object, **__: object) -> list[UUID]:
        return []

    monkeypatch.setattr(schedules, "released", nothing)
    with pytest.raises(AssertionError):
        await test_a_release_without_a_notification_is_found_by_the_next_pass(rig)


async def test_the_end_of_a_run_wakes_a_promoter_for_the_run_blocked_behind_it(rig: Rig, connection: Conn) -> None:
    """B5: the fast path, also if a sweeper or a cancel ends it."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    await connection.add_listener("sexton_due", lambda *_: heard.put_nowait("due"))
    table = Timetable(rig, takes_s=20 * 60)
    await table.write(recurrence={"overlap": {"policy": "queue"}})
    rig.move(15 * 60)
    await table.turn()
    rig.move(15 * 60)
    await table.schedule()
    await connection.fetch("SELECT 1")
    while not heard.empty():
        heard.get_nowait()
    rig.move(5 * 60)
    await table._end(Succeeded())
    async with asyncio.timeout(LONG_S):
        assert await heard.get() == "due"


async def test_a_replay_waits_its_turn_and_is_never_skipped(rig: Rig) -> None:
    """D4, B5: a person requested it, and the dead letter is gone."""
    table = Timetable(rig)
    job_id = await table.write()
    rig.move(15 * 60)
    await table.schedule()
    await table.work(BROKEN)
    (letter,) = await rig.letters()
    table.takes_s = 20 * 60
    rig.move(15 * 60)
    await table.turn()
    async with rig.database.transaction() as connection:
        assert len(await replay.replay(connection, TESTER, [letter.id], now=table.now)) == 1
    await table.turn()
    assert sorted(state for state, _ in await table.live(job_id)) == ["blocked", "running", "waiting"]
    rig.move(20 * 60)
    table.takes_s = 0
    await table.turn()
    assert table.fire_minutes().count(15) == 2
    assert table.minutes([gap.first_at for gap in await table.ledger(job_id)]) == [45], "a fire is, as always"


async def test_a_thousand_skips_take_one_pass(rig: Rig) -> None:
    """B8: a minute in which everything still runs takes no longer than one in which everything starts."""
    table = Timetable(rig, takes_s=3600)
    between = Between(rig.database)
    async with rig.database.transaction() as connection:
        await recurring_jobs.submit(connection, TESTER, [document() for _ in range(900)], now=table.now)
    rig.move(15 * 60)
    await table.turn()
    assert len(table.starts) == 900
    rig.move(15 * 60)
    _, promoter = table.node(database=between)
    await promoter.run_once()
    (row,) = await rig.execute("SELECT count(*) FROM sexton.executions WHERE status = 'skipped'")
    assert row["count"] == 900
    assert len(between.statements) < 12


async def test_a_policy_that_cannot_be_read_does_not_delay_other_jobs(rig: Rig) -> None:
    """Written in plain SQL; the planner ends the job, with the reason."""
    table = Timetable(rig, takes_s=3600)
    job_id = await table.write()
    await table.fire(job_id)
    await table.turn()
    await table.fire(job_id)
    await rig.execute("""UPDATE sexton.jobs SET recurrence = '{"overlap": "nonsense"}' WHERE id = $1""", job_id)
    await table.promoter.run_once()
    assert [gap.status for gap in await table.ledger(job_id)] == ["skipped"]
    rig.move(15 * 60)
    await table.planner.run_once()
    assert "cannot be read" in ((await table.show(job_id)).over_reason or "")


async def test_a_blocked_run_follows_an_edited_overlap_policy(rig: Rig) -> None:
    """B5, A7: a run queued behind one that runs alone, and started beside it after an edit. The unique index, the backstop of
    rule "lock, then decide", does not cover the second run then."""
    table = Timetable(rig, takes_s=40 * 60)
    job_id = await table.write(recurrence={"overlap": POLICIES["queue"]})
    await table.until(30, step_s=300)
    assert [state for state, _ in await table.live(job_id)][:2] == ["running", "blocked"]
    await table.edit(job_id, recurrence={"overlap": POLICIES["parallel"]})
    await table.until(31)
    assert [state for state, _ in await table.live(job_id)][:2] == ["running", "running"]
    assert table.fire_minutes() == [15, 30]
