"""Recurring jobs from Python: declared beside their task, written one by one or in bulk, and synced from many processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import asyncpg
import msgspec
import psycopg
import pytest
from typer.testing import CliRunner

from sexton import AmbiguousCron, App, Context, InvalidSubmission, Retry, testing
from sexton.cli.commands import services
from sexton.cli.commands.services import run_worker
from sexton.cli.composition import Ground
from sexton.cli.main import app as cli
from sexton.client.sync import Synced, sync
from sexton.clock import SystemClock
from sexton.domain.schedule.document import ScheduleDocument
from sexton.domain.schedule.recurrence import Recurrence
from sexton.domain.schedule.rule import Schedule
from sexton.errors import DataRefused
from sexton.operations.cancel import end_schedule
from sexton.operations.recurring import recurring_jobs
from sexton.operations.versions import AtVersion
from sexton.settings import Settings
from sexton.store.work import declared, jobs
from sexton.telemetry.events import EditsKept, EditsOverwritten, Event, ServiceFailed
from tests.callers import TESTER

OWNER = "shop.tasks:app"


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[App]:
    async with App(database_url) as app:
        yield app


def document_of(app: App, name: str) -> ScheduleDocument:
    return app.registry.schedules[name]


def names(synced: Synced) -> dict[str, list[str]]:
    return {kind: found for kind, found in synced._asdict().items() if found}


async def shown(app: App, name: str) -> jobs.JobView:
    async with (await app.database()).connection() as connection:
        rows = await connection.fetch("SELECT id FROM sexton.jobs_recurring WHERE name = $1 ORDER BY id DESC LIMIT 1", name)
        return await jobs.show(connection, rows[0]["id"])


# Declaring


def test_a_decorator_makes_a_task_and_declares_its_schedule() -> None:
    """A4, A14."""
    app = App()

    @app.cron("0 9 * * MON-FRI", timezone="America/New_York", overlap="queue", retry=Retry.never(), queue="reports")
    async def report(ctx: Context, region: str = "eu") -> str:
        return region

    assert report.name == "report"
    assert report.request().submission.queue == "reports"  # the decorator created the task, so these are its options too
    declared = document_of(app, "report")
    assert declared.schedule == Schedule(cron="0 9 * * MON-FRI", timezone="America/New_York")
    assert (declared.task, declared.name, declared.queue) == ("report", "report", "reports")
    assert isinstance(declared.recurrence, Recurrence)
    assert declared.recurrence.overlap.policy == "queue"


def test_an_ambiguous_line_is_a_warning_at_that_line() -> None:
    """A2: it names this file; the dialect turns it off, and `strict` rejects the line."""

    def tick(ctx: Context) -> None: ...

    with pytest.warns(AmbiguousCron, match="croniter reads the seconds last") as caught:
        App().cron("0 0 12 * * 2")(tick)
    assert [warning.filename for warning in caught] == [__file__]
    task = App("postgresql://localhost/unused").task(tick)
    for name in ("a", "b", "a"):
        with pytest.warns(AmbiguousCron, match="croniter"):  # each line, although the rule was read before
            task.schedule_request(cron="0 0 12 * * 2", name=name)
    App().cron("0 0 12 * * 2", dialect="cron")(tick)
    with pytest.raises(InvalidSubmission, match="croniter reads the seconds last"):
        App().cron("0 0 12 * * 2", dialect="strict")(tick)


def test_a_task_may_have_several_schedules_by_name() -> None:
    """A4."""
    app = App()

    @app.every("15m", name="often", payload={"region": "us"}, queue="fast")
    @app.rrule("FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13", name="unlucky")
    @app.task(name="reports.build", queue="slow")
    def build(ctx: Context, region: str = "eu") -> None: ...

    assert sorted(app.registry.schedules) == ["often", "unlucky"]
    often, unlucky = document_of(app, "often"), document_of(app, "unlucky")
    assert (often.task, often.queue, often.payload) == ("reports.build", "fast", msgspec.Raw(b'{"region":"us"}'))
    assert (unlucky.queue, build.request().submission.queue) == ("slow", "slow")
    assert often.schedule == Schedule(every_s=900.0)  # the database sets the anchor


@pytest.mark.parametrize(
    ("declare", "field", "words"),
    [
        (lambda app: app.cron("61 * * * *"), "/cron", "61"),
        (lambda app: app.cron("0 9 31 2 *"), "/cron", "never fires"),
        (lambda app: app.cron("0 9 * * *", timezone="Amerika/New_York"), "/timezone", "America/New_York"),
        (lambda app: app.every("0s"), "/every", "not an interval"),
        (lambda app: app.every("100ms"), "/every", "the minimum is 1 s between two fires"),
        (lambda app: app.rrule("FREQ=SOMETIMES"), "/rrule", "YEARLY"),
        (lambda app: app.every("1m", overlap="pile up"), "/overlap", "skip, queue, parallel or replace"),
        (lambda app: app.every("1m", overlap={"policy": "queue", "max": 3}), "/overlap", "max_queued"),
        (lambda app: app.every("1m", catch_up={"policy": "some"}), "/catch_up/policy", "skip, latest or all"),
        (lambda app: app.every("1m", on_resume="maybe"), "/on_resume", "skip, latest or all"),
        (lambda app: app.every("1m", pause_after=0), "/pause_after", "between 1 and"),
        (lambda app: app.every("1m", payload={"who": 1}), "/payload/who", "has no such argument"),
        (lambda app: app.every("1m", timeout="long"), "/timeout", "duration"),
    ],
)
def test_an_invalid_declaration_is_rejected_at_its_line(declare: Callable[[App], Any], field: str, words: str) -> None:
    """F2, A4."""

    def tick(ctx: Context) -> None: ...

    with pytest.raises(InvalidSubmission, match=words) as caught:
        declare(App())(tick)
    assert caught.value.field == field


def test_one_name_belongs_to_one_schedule() -> None:
    app = App()

    def tick(ctx: Context) -> None: ...

    task = app.every("1m")(tick)
    app.every("1m")(task)  # the same again, as when a module is loaded twice
    with pytest.raises(ValueError, match="schedule 'tick' is declared twice"):
        app.every("2m")(task)
    with pytest.raises(TypeError, match="give process=True to the decorator"):
        app.every("2m", process=True, name="other")(task)


def test_a_declaration_may_outlive_its_own_end() -> None:
    """Code with a campaign of last year must still load."""
    app = App()

    @app.cron("0 9 * * *", end_at="2020-12-31T00:00:00Z")
    def campaign(ctx: Context) -> None: ...

    assert document_of(app, "campaign").name == "campaign"


# Writing


async def test_a_task_is_scheduled_and_updated_by_name(app: App) -> None:
    """A4, A14: create or update, and the next fire is planned at once."""

    @app.task
    def greet(ctx: Context, who: str) -> None: ...

    first = await greet.schedule("ann", every="1h", name="greeting", tenant="acme")
    assert (first.created, first.changed) == (True, True)
    again = await greet.schedule(who="ann", every="60m", name="greeting", tenant="acme")
    assert again == (first.id, False, False)
    other = await greet.schedule(who="bob", every="1h", name="greeting", tenant="acme")
    assert other == (first.id, False, True)
    view = await app.job(first.id)
    assert (view.version, view.tenant, view.payload_json) == (2, "acme", '{"who": "bob"}')
    assert view.next_fire_at == view.submitted_at + timedelta(hours=1)  # a new payload does not move an interval
    assert (await greet.schedule(who="bob", every="1h", name="greeting")).created  # of another tenant


async def test_another_interval_counts_from_the_same_anchor(app: App) -> None:
    """A4: the planner accepts an edit without an anchor."""
    first = await app.schedule("elsewhere", every="1h", name="n")
    await app.schedule("elsewhere", every="15m", name="n")
    view = await app.job(first.id)
    assert (view.status, view.next_fire_at) == ("pending", view.submitted_at + timedelta(minutes=15))
    await app.schedule("elsewhere", rrule="FREQ=DAILY", name="n")
    view = await app.job(first.id)
    assert (view.status, view.over_reason) == ("pending", None)
    assert view.next_fire_at is not None


def test_from_code_without_an_event_loop(database_url: str) -> None:
    app = App(database_url)

    @app.task
    def greet(ctx: Context, who: str) -> None: ...

    try:
        assert greet.schedule_sync(who="ann", cron="@daily", name="a").created
        assert app.schedule_sync("greet", {"who": "bob"}, cron="@daily", name="b").created
        requests = [greet.schedule_request(who="ann", cron="@daily", name=str(n)) for n in range(3)]
        assert [one.created for one in app.schedule_many_sync(requests)] == [True] * 3
    finally:
        app.close_sync()


async def test_options_and_arguments_that_share_a_name_are_separate(app: App) -> None:
    """F2."""

    @app.task
    def build(ctx: Context, start_at: str) -> None: ...

    with pytest.raises(TypeError, match=r"start_at may be an argument or an option here; write app\.schedule\('build'"):
        await build.schedule(start_at="x", cron="@daily")
    scheduled = await app.schedule("build", {"start_at": "x"}, cron="@daily", start_at="2030-01-01T00:00:00Z")
    view = await app.job(scheduled.id)
    assert (view.payload_json, view.next_fire_at) == ('{"start_at": "x"}', datetime(2030, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidSubmission, match="exactly one of cron, rrule and every"):
        await app.schedule("build", {"start_at": "x"})
    with pytest.raises(TypeError, match="pass the connection to schedule_many"):
        app.task(name="other")(lambda ctx: None).schedule_request(connection=object())


@pytest.mark.parametrize("commit", [True, False])
async def test_inside_the_callers_own_transaction(app: App, database_url: str, commit: bool) -> None:
    """A12: it exists if and only if the caller commits, and a planner plans it."""

    @app.task
    def greet(ctx: Context) -> None: ...

    own = await asyncpg.connect(database_url)
    transaction = own.transaction()
    await transaction.start()
    first = await greet.schedule(every="1h", name="async", connection=own)
    await (transaction.commit() if commit else transaction.rollback())
    with psycopg.connect(database_url) as sync_connection:
        second = greet.schedule_sync(every="1h", name="sync", connection=sync_connection)
        if not commit:
            sync_connection.rollback()
    found = await own.fetch("SELECT id, plan_at <= clock_timestamp() AS to_plan FROM sexton.jobs_recurring ORDER BY id")
    assert [tuple(row) for row in found] == ([(first.id, True), (second.id, True)] if commit else [])
    await own.close()


async def test_a_planner_is_notified_with_the_commit(app: App, connection: asyncpg.Connection[Any]) -> None:
    heard = asyncio.Event()
    await connection.add_listener("sexton_plan", lambda *_: heard.set())
    await app.schedule("elsewhere", every="1h", name="n")
    await asyncio.wait_for(heard.wait(), 5)


async def test_many_are_all_or_none_and_each_name_is_unique(app: App) -> None:
    """A14."""
    requests = [app.schedule_request("elsewhere", cron="@daily", name=f"s{n % 2}") for n in range(3)]
    with pytest.raises(InvalidSubmission, match="'s0' is given twice for tenant 'default'"):
        await app.schedule_many(requests)
    assert [one.created for one in await app.schedule_many(requests[:2])] == [True, True]
    assert await app.schedule_many([]) == []


async def test_more_than_one_statement_holds_are_written(app: App, connection: asyncpg.Connection[Any]) -> None:
    """A14: in one transaction, planned afterwards."""
    zones = ["Europe/Berlin", "Asia/Tokyo", "America/New_York"]
    requests = [
        app.schedule_request("midnight", cron="0 0 * * *", timezone=zones[n % 3], name="midnight", tenant=f"t{n}")
        for n in range(10_050)
    ]
    assert sum(one.created for one in await app.schedule_many(requests)) == 10_050
    assert not any(one.changed for one in await app.schedule_many(requests[:100]))
    assert await connection.fetchval("SELECT count(*) FROM sexton.jobs_recurring WHERE plan_at IS NOT NULL") == 10_050


# Syncing


def declaring(app: App, **rules: Any) -> None:
    """As after a change of the code."""
    app.registry.schedules.clear()

    async def tick(ctx: Context, n: int = 0) -> None: ...

    task = app.task(name="tick")(tick)
    for name, every in rules.items():
        app.every(every, name=name)(task)


async def test_declared_schedules_are_created_updated_or_left_unchanged(app: App) -> None:
    """A14."""
    database = await app.database()
    declaring(app, a="1h", b="2h")
    assert names(await sync(database, app.registry, OWNER)) == {"created": ["a", "b"]}
    before = await shown(app, "a")
    assert before.submitted_by == f"sync:{OWNER}"
    assert names(await sync(database, app.registry, OWNER)) == {"unchanged": ["a", "b"]}
    declaring(app, a="1h", b="3h")
    assert names(await sync(database, app.registry, OWNER)) == {"updated": ["b"], "unchanged": ["a"]}
    assert await shown(app, "a") == before
    assert (await shown(app, "b")).version == 2


async def test_many_processes_at_once_create_one_of_each(app: App, connection: asyncpg.Connection[Any]) -> None:
    """A14."""
    database = await app.database()
    declaring(app, **{f"s{n}": "1h" for n in range(20)})
    answers = await asyncio.gather(*(sync(database, app.registry, OWNER) for _ in range(8)))
    assert sorted(len(answer.created) for answer in answers) == [0] * 7 + [20]
    assert await connection.fetchval("SELECT count(*) FROM sexton.jobs_recurring") == 20
    assert await connection.fetchval("SELECT count(*) FROM sexton.runs") == 20


async def test_one_sync_waits_for_the_other(app: App, connection: asyncpg.Connection[Any]) -> None:
    """Otherwise a sync that prunes and one that updates could each lock a schedule that the other needs."""
    declaring(app, a="1h")
    transaction = connection.transaction()
    await transaction.start()
    await declared.begin(connection)
    other = asyncio.create_task(sync(await app.database(), app.registry, OWNER))
    while not await connection.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted"):
        assert not other.done()
    await transaction.rollback()
    assert names(await other) == {"created": ["a"]}


async def test_schedules_that_the_code_dropped_end_only_on_request_and_only_if_they_were_declared(app: App) -> None:
    """A14."""
    database = await app.database()
    declaring(app, a="1h", b="2h")
    await sync(database, app.registry, OWNER)
    await app.schedule("tick", every="1h", name="by_hand")
    declaring(app, other="1h")
    await sync(database, app.registry, "other:app")
    declaring(app, a="1h")
    assert names(await sync(database, app.registry, OWNER)) == {"unchanged": ["a"]}
    planned = await sync(database, app.registry, OWNER, prune=True, dry_run=True)
    assert names(planned) == {"unchanged": ["a"], "pruned": ["b"]}
    assert (await shown(app, "b")).status == "pending"
    assert names(await sync(database, app.registry, OWNER, prune=True)) == {"unchanged": ["a"], "pruned": ["b"]}
    b = await shown(app, "b")
    assert (b.status, b.over_reason) == ("cancelled", declared.PRUNED)
    assert [(await shown(app, name)).status for name in ("a", "other", "by_hand")] == ["pending"] * 3
    declaring(app, a="1h", b="2h")  # the release is rolled back
    assert names(await sync(database, app.registry, OWNER)) == {"created": ["b"], "unchanged": ["a"]}


async def test_a_schedule_that_moved_to_another_app_is_not_pruned_by_the_first(app: App) -> None:
    database = await app.database()
    declaring(app, a="1h")
    await sync(database, app.registry, OWNER)
    await sync(database, app.registry, "new.home:app")
    declaring(app)
    assert names(await sync(database, app.registry, OWNER, prune=True)) == {}
    assert (await shown(app, "a")).status == "pending"


async def test_a_schedule_that_a_person_paused_stays_paused(app: App) -> None:
    """A6, A14."""
    database = await app.database()
    declaring(app, a="1h")
    await sync(database, app.registry, OWNER)
    a = await shown(app, "a")
    async with database.transaction() as connection:
        await recurring_jobs.pause(connection, TESTER, a.id, recurring_jobs.Pause("no mail today"))
    declaring(app, a="2h")
    assert names(await sync(database, app.registry, OWNER)) == {"updated": ["a"]}
    view = await shown(app, "a")
    assert (view.status, view.note, view.next_fire_at, view.version) == ("paused", "no mail today", None, 2)


async def edit(app: App, name: str, /, **changes: Any) -> None:
    """As a person does, by hand."""
    async with (await app.database()).transaction() as connection:
        job = await shown(app, name)
        document = {"task": "tick", "name": name, "schedule": {"every": 3600.0}, "submitted_by": "ada", **changes}
        await recurring_jobs.edit(connection, TESTER, AtVersion(job.id), document)


async def test_an_edit_by_hand_stays_until_the_declaration_changes(app: App) -> None:
    """A7."""
    database = await app.database()
    declaring(app, a="1h", b="1h")
    await sync(database, app.registry, OWNER)
    await edit(app, "a", payload={"n": 7})
    edited = await shown(app, "a")
    for _ in range(2):  # starts of workers
        assert names(await sync(database, app.registry, OWNER)) == {"kept": ["a"], "unchanged": ["b"]}
    assert await shown(app, "a") == edited
    declaring(app, a="2h", b="1h")
    assert names(await sync(database, app.registry, OWNER)) == {"updated": ["a"], "overwritten": ["a"], "unchanged": ["b"]}
    assert ((await shown(app, "a")).version, (await shown(app, "a")).payload_json) == (3, "{}")
    assert names(await sync(database, app.registry, OWNER)) == {"unchanged": ["a", "b"]}


async def test_a_schedule_that_was_renamed_by_hand_is_not_created_again(app: App, connection: asyncpg.Connection[Any]) -> None:
    """A7: the start of a worker once doubled it. A changed declaration gives it its name back."""
    database = await app.database()
    declaring(app, a="1h", b="1h")
    await sync(database, app.registry, OWNER)
    await edit(app, "a", name="renamed")
    live = "SELECT name, schedule->>'every' FROM sexton.jobs_recurring WHERE over_at IS NULL ORDER BY name"
    for prune in (False, True):
        assert names(await sync(database, app.registry, OWNER, prune=prune)) == {"kept": ["a"], "unchanged": ["b"]}
        assert [row["name"] for row in await connection.fetch(live)] == ["b", "renamed"]
    declaring(app, a="2h", b="1h")
    assert names(await sync(database, app.registry, OWNER)) == {"updated": ["a"], "overwritten": ["a"], "unchanged": ["b"]}
    assert [tuple(row) for row in await connection.fetch(live)] == [("a", "7200.0"), ("b", "3600.0")]
    assert names(await sync(database, app.registry, OWNER)) == {"unchanged": ["a", "b"]}


async def test_a_renamed_schedule_that_was_cancelled_stays_cancelled(app: App) -> None:
    database = await app.database()
    declaring(app, a="1h")
    await sync(database, app.registry, OWNER)
    await edit(app, "a", name="renamed")
    async with database.transaction() as connection:
        await end_schedule(connection, TESTER, (await shown(app, "renamed")).id, reason="not needed")
    assert names(await sync(database, app.registry, OWNER)) == {"ended": ["a"]}
    assert names(await sync(database, app.registry, OWNER, revive=True)) == {"created": ["a"]}


async def test_a_schedule_that_was_renamed_to_a_declared_name_is_that_one(app: App) -> None:
    database = await app.database()
    declaring(app, a="1h")
    await sync(database, app.registry, OWNER)
    await edit(app, "a", name="b")
    declaring(app, a="1h", b="2h")
    assert names(await sync(database, app.registry, OWNER)) == {"created": ["a"], "updated": ["b"], "overwritten": ["b"]}
    assert names(await sync(database, app.registry, OWNER)) == {"unchanged": ["a", "b"]}


async def test_changed_options_of_the_task_are_a_changed_declaration(app: App) -> None:
    database = await app.database()
    declaring(app, a="1h")
    await sync(database, app.registry, OWNER)
    await edit(app, "a", payload={"n": 7})
    app.registry.schedules.clear()
    again = App()
    again.every("1h", name="a")(again.task(name="tick", timeout="5m")(_tick))
    assert names(await sync(database, again.registry, OWNER)) == {"updated": ["a"], "overwritten": ["a"]}


async def test_the_sync_of_the_last_release_does_not_count_as_a_manual_edit(app: App) -> None:
    """Workers of both releases run side by side for a while: the older declaration does not stay permanently."""
    database = await app.database()
    declaring(app, a="2h")
    await sync(database, app.registry, OWNER)
    await edit(app, "a", schedule={"every": 1800.0}, submitted_by=f"sync:{OWNER}")
    assert names(await sync(database, app.registry, OWNER)) == {"updated": ["a"]}


async def test_a_schedule_that_was_edited_by_hand_and_cancelled_stays_cancelled(app: App) -> None:
    database = await app.database()
    declaring(app, a="1h")
    await sync(database, app.registry, OWNER)
    await edit(app, "a", payload={"n": 7})
    await app.cancel((await shown(app, "a")).id)
    assert names(await sync(database, app.registry, OWNER)) == {"ended": ["a"]}


async def test_an_ended_schedule_starts_again_only_if_its_declaration_changes_or_on_request(app: App) -> None:
    """Otherwise a schedule of three fires would fire three more with every start of a worker."""
    database = await app.database()
    declaring(app, a="1h")
    await sync(database, app.registry, OWNER)
    first = await shown(app, "a")
    await app.cancel(first.id)
    assert names(await sync(database, app.registry, OWNER)) == {"ended": ["a"]}
    assert (await shown(app, "a")).id == first.id
    assert names(await sync(database, app.registry, OWNER, revive=True, dry_run=True)) == {"created": ["a"]}
    declaring(app, a="2h")
    assert names(await sync(database, app.registry, OWNER)) == {"created": ["a"]}


async def test_a_schedule_whose_rule_has_ended_is_not_written(app: App) -> None:
    declaring(app)

    @app.cron("0 9 * * *", end_at="2020-12-31T00:00:00Z")
    def campaign(ctx: Context) -> None: ...

    assert names(await sync(await app.database(), app.registry, OWNER)) == {"ended": ["campaign"]}


async def test_the_options_of_the_newest_code_apply_at_once(app: App) -> None:
    """Options that the last worker had registered for the task must not be used for this code."""
    database = await app.database()
    app.every("1h", timeout="5m", retry=Retry.never())(_tick)
    await sync(database, app.registry, OWNER)
    again = App()
    again.every("1h")(_tick)
    assert names(await sync(database, again.registry, OWNER)) == {"updated": ["_tick"]}
    view = await shown(app, "_tick")
    assert (view.timeout_s, view.policy_json) == (30.0, None)


def _tick(ctx: Context) -> None: ...


def test_sync_from_the_command_line(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A14."""
    (tmp_path / "synced_shop.py").write_text(
        "from sexton import App\napp = App()\n@app.every('1h')\ndef tick(ctx): ...\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SEXTON_DATABASE_URL", database_url)

    def printed(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["sync", "synced_shop", *arguments])
        assert done.exit_code == 0, done.output
        return done.output.strip()

    assert printed("--dry-run") == "tick: created\nnothing was changed: this was a dry run"
    assert printed() == "tick: created"
    assert printed() == "1 unchanged"
    assert msgspec.json.decode(printed("--json", "--prune"))["unchanged"] == ["tick"]


@asynccontextmanager
async def running_worker(app: App, emit: Callable[[Event], None]) -> AsyncIterator[None]:
    database, stop = await app.database(), asyncio.Event()
    on = Ground(Settings(), database, database.url, SystemClock(), emit, Random(1))
    worker = asyncio.create_task(run_worker(on, app.registry, stop))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait_for(worker, 10)


async def test_a_worker_writes_the_declarations_of_its_app(app: App, connection: asyncpg.Connection[Any]) -> None:
    """A14."""
    written = asyncio.Event()
    await connection.add_listener("sexton_plan", lambda *_: written.set())
    declaring(app, a="1h")
    async with running_worker(app, lambda _: None):
        await asyncio.wait_for(written.wait(), 10)
    assert (await shown(app, "a")).submitted_by == "sync:app"


async def test_a_worker_logs_that_a_changed_declaration_replaced_an_edit(app: App) -> None:
    heard: asyncio.Queue[Event] = asyncio.Queue()
    declaring(app, a="1h", b="1h")
    await sync(await app.database(), app.registry, "app")
    await edit(app, "a", payload={"n": 7})
    await edit(app, "b", payload={"n": 7})
    declaring(app, a="2h", b="1h")
    told: list[Event] = []
    async with running_worker(app, heard.put_nowait):
        while len(told) < 2:
            event = await asyncio.wait_for(heard.get(), 30)
            told += [event] * isinstance(event, EditsKept | EditsOverwritten)
    assert told == [EditsKept(("b",)), EditsOverwritten(("a",))]


async def test_a_worker_continues_if_declarations_cannot_be_written(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """C1: and logs it."""

    async def refused(*_: Any, **__: Any) -> None:
        raise DataRefused("no room")

    heard: asyncio.Queue[Event] = asyncio.Queue()
    monkeypatch.setattr(services, "sync", refused)
    declaring(app, a="1h")
    async with running_worker(app, heard.put_nowait):
        while not isinstance(event := await asyncio.wait_for(heard.get(), 10), ServiceFailed):
            pass
        assert (event.service, str(event.error)) == ("sync", "no room")
        job = await app.submit("tick")
        assert await job.result(timeout=10) is None


# What a handler sees


async def test_a_handler_gets_the_outcome_of_the_previous_fire(app: App) -> None:
    """A3."""
    seen: list[tuple[datetime, str, Any]] = []

    @app.every("1h", retry=Retry.never())
    async def sometimes(ctx: Context) -> None:
        seen.append((ctx.fire_at, ctx.origin, None if ctx.previous is None else (ctx.previous.status, ctx.previous.fire_at)))
        if len(seen) == 1:
            raise ConnectionError("not yet")

    async with testing.pipeline(app) as pipeline:
        await pipeline.sync()
        start = pipeline.now
        await pipeline.live_through("3h")
    first, second, third = (start + timedelta(hours=n) for n in (1, 2, 3))
    assert seen == [
        (first, "schedule", None),
        (second, "schedule", ("failed", first)),
        (third, "schedule", ("succeeded", second)),
    ]
