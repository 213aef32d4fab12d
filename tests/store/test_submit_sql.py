"""`sexton.submit` and `sexton.submit_schedule`: from any language, inside any transaction, by a role without other rights; and
their notifications."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from sexton.domain import run
from sexton.domain.job import submission
from sexton.domain.job_options import OPTIONS
from sexton.domain.outcome import Released, Snoozed, Succeeded
from sexton.domain.partition import ALL, Scan
from sexton.errors import KeyReused
from sexton.operations.caller import SCHEDULER
from sexton.operations.recurring import plan
from sexton.store.postgres.driver_errors import translated_errors
from sexton.store.work import jobs, runs, schedules
from tests.store.support import FLAKY, NOW, claim, enlist, finish, plain, run_row, snapshot, status, submit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.store.support import Conn


async def test_every_argument_of_the_function_is_stored(connection: Conn) -> None:
    """A12: the whole of a job in one SELECT."""
    before = await connection.fetchval("SELECT clock_timestamp()")
    job_id = await connection.fetchval(
        """SELECT sexton.submit('a', '{"n": 1}', delay => '1 hour', queue => 'mail', priority => 'high', tenant => 'acme',
             name => 'n',
             key => 'k', key_ttl => '1 day', timeout => '2 min', tags => '{x,y}', unique_by => '{task,payload.n}',
             unique_for => '3 hours', trace => 't')"""
    )
    row = await run_row(connection, job_id)
    assert row is not None
    assert (row["state"], row["queue"], row["lane"], row["tenant"], row["timeout_s"]) == ("waiting", "mail", 1, "acme", 120.0)
    assert timedelta(hours=1) <= row["due_at"] - before < timedelta(hours=1, minutes=1)
    job = await connection.fetchrow("SELECT * FROM sexton.jobs")
    assert job is not None
    found = (plain(job["payload"]), job["name"], job["tags"], job["trace"], job["submitted_by"], job["idempotency_key"])
    assert found == ({"n": 1}, "n", ["x", "y"], "t", await connection.fetchval("SELECT session_user::text"), "k")
    ttl = await connection.fetchval("SELECT expires_at - $1 FROM sexton.idempotency_keys", job["submitted_at"])
    held = await connection.fetchval("SELECT holds_until - $1 FROM sexton.unique_keys", job["submitted_at"])
    assert (ttl, held) == (timedelta(days=1), timedelta(hours=3))


async def test_every_policy_and_the_limit_are_stored(connection: Conn) -> None:
    """A12: the execution options of a job, in SQL as over HTTP."""
    for function in ("submit('a', delay => '1 hour', ", "submit_schedule('a', every => '1 hour', "):
        job_id = await connection.fetchval(
            f"""SELECT sexton.{function} deadline => '2 hours', start_within => '5 min', lease => '10 s',
                  progress_within => '30 s', grace => '2 s', max_lost => 1, max_attempts => 7, delivery => 'at_most_once',
                  limit_key => 'stripe', limit_running => 5, limit_count => 10, limit_per => '1 s', limit_burst => 3)"""
        )
        shown = await jobs.show(connection, job_id)
        assert shown.at_most_once
        assert plain(shown.policy_json) == {
            "retry": {"max_attempts": 7},
            "deadline_s": 7200,
            "start_within_s": 300,
            "lease_s": 10,
            "progress_within_s": 30,
            "grace_s": 2,
            "max_lost": 1,
            "limit": {"key": "stripe", "running": 5, "count": 10, "per_s": 1, "burst": 3},
        }
        assert run.policy_of(shown.policy_json).lease_s == 10.0
    row = await run_row(connection, await connection.fetchval("SELECT sexton.submit('a', limit_key => 'stripe')"))
    assert row is not None
    assert (row["limit_key"], row["state"]) == ("stripe", "parked")
    limit = await connection.fetchrow("SELECT running, count, per_s, burst FROM sexton.limits")
    assert tuple(limit or ()) == (5, 10, 1.0, 3)


@pytest.mark.parametrize(("function", "jobs_of"), [("submit", "one-time"), ("submit_schedule", "recurring")])
async def test_sql_accepts_every_option_of_the_table_and_no_other(connection: Conn, function: str, jobs_of: str) -> None:
    """Every option has arguments in SQL; what they do not offer of it, the row says."""
    names = await connection.fetchval("SELECT proargnames FROM pg_proc WHERE proname = $1", function)
    expected = [name for option in OPTIONS if option.jobs in ("any", jobs_of) for name in option.arguments]
    assert sorted(names) == sorted([*expected, "trace"])


async def test_an_instant_and_the_defaults(connection: Conn) -> None:
    """A12, A1."""
    job_id = await connection.fetchval("SELECT sexton.submit('a', run_at => $1)", NOW + timedelta(days=3650))
    row = await run_row(connection, job_id)
    assert row is not None
    assert (row["due_at"], row["state"], row["queue"], row["lane"]) == (NOW + timedelta(days=3650), "waiting", "default", 2)
    assert plain((await jobs.show(connection, job_id)).payload_json) == {}
    nothing = await connection.fetchval("SELECT sexton.submit('a', NULL)")
    assert plain((await jobs.show(connection, nothing)).payload_json) == {}


async def test_a_job_commits_and_rolls_back_with_its_submitters_transaction(connection: Conn, rival: Conn) -> None:
    """A12: transactional submission."""
    transaction = connection.transaction()
    await transaction.start()
    job_id = await connection.fetchval("SELECT sexton.submit('a')")
    assert await run_row(rival, job_id) is None
    await transaction.rollback()
    assert await run_row(connection, job_id) is None
    async with connection.transaction():
        job_id = await connection.fetchval("SELECT sexton.submit('a')")
    assert await run_row(rival, job_id) is not None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("''", "task: name the task"),
        ("NULL", "task: name the task"),
        ("'a', run_at => now(), delay => '1 s'", "run_at and delay: give one"),
        ("'a', delay => '-1 s'", "delay: -00:00:01 is negative"),
        ("'a', timeout => '-1 s'", "timeout: -00:00:01 is negative"),
        ("'a', run_at => 'infinity'", "run_at: infinity is not an instant"),
        ("'a', run_at => '-infinity'", "run_at: -infinity is not an instant"),
        ("'a', priority => 'urgent'", 'priority: "urgent" is not a lane'),
        ("'a', priority => ''", 'priority: "" is not a lane'),
        ("'a', to_jsonb(repeat('x', 400000))", "payload: 400002 bytes, the limit is 262144"),
        ("'a', unique_by => '{task,secret}'", 'unique_by: "secret" is not a part of a job'),
        ("'a', unique_by => '{}'", "unique_by: name at least one part"),
        ("'a', grace => '-1 s'", "grace: -00:00:01 is negative"),
        ("'a', max_lost => 0", "max_lost: 0 must be between 1 and 1000"),
        ("'a', max_attempts => 0", "max_attempts: 0 must be between 1 and 1000"),
        ("'a', delivery => 'twice'", 'delivery: "twice" is unknown'),
        ("'a', limit_running => 5", "limit_key: is required with the other limit arguments"),
        ("'a', limit_key => 'x', limit_running => 0", "limit_running: 0 must be between 1 and 10000"),
        (
            "'a', limit_key => 'x', limit_running => 2, limit_ordered => true",
            "limit_running: an ordered limit allows 1 run at once",
        ),
        ("'a', limit_key => 'x', limit_count => 2", "limit_count, limit_per: each needs the other"),
        ("'a', limit_key => 'x', limit_burst => 2", "limit_burst: needs limit_count and limit_per"),
        ("'a', limit_key => 'x', limit_count => 0, limit_per => '1 s'", "limit_count: 0 must be between 1 and 1000000"),
        ("'a', limit_key => 'x', limit_count => 1, limit_per => '1 s', limit_burst => 0", "limit_burst: 0 must be between"),
        ("'a', limit_key => 'x', limit_count => 1, limit_per => '2 days'", "limit_per: 2 days must be between"),
        ("'a', limit_key => 'nobody'", 'limit.key: there is no limit named "nobody"'),
    ],
)
async def test_an_invalid_argument_is_rejected_by_name(connection: Conn, call: str, message: str) -> None:
    """F2, A12: the message names the argument, and nothing changes."""
    before = await snapshot(connection)
    with pytest.raises(asyncpg.InvalidParameterValueError) as refused:
        await connection.execute(f"SELECT sexton.submit({call})")
    assert str(refused.value).startswith(message)
    assert await snapshot(connection) == before


async def test_a_key_used_for_another_body_is_rejected_with_a_hint(connection: Conn) -> None:
    """A10, A12."""
    await connection.execute("SELECT sexton.submit('a', key => 'k')")
    with pytest.raises(KeyReused) as refused, translated_errors():
        await connection.execute("SELECT sexton.submit('b', key => 'k')")
    assert getattr(refused.value.__cause__, "hint", "").startswith("Use a new key")


async def test_the_same_call_from_another_time_zone_is_the_same_body(connection: Conn) -> None:
    """A10, B9: the fingerprint is of the instant, not of its text in the session's zone."""
    call = "SELECT sexton.submit('a', key => 'k', run_at => '2036-01-01 12:00+00')"
    ids = set()
    for zone in ("UTC", "America/New_York", "Asia/Kathmandu"):
        await connection.execute(f"SET timezone = '{zone}'")
        ids.add(await connection.fetchval(call))
    assert len(ids) == 1


@pytest.fixture
async def clerk(connection: Conn, database_url: str) -> AsyncIterator[Conn]:
    """A connection of a role that has USAGE on the schema and EXECUTE on `submit`, and nothing else."""
    name = f"clerk_{await connection.fetchval('SELECT oid FROM pg_database WHERE datname = current_database()')}"
    await connection.execute(f"""
        CREATE ROLE {name} LOGIN;
        GRANT USAGE ON SCHEMA sexton TO {name};
        GRANT EXECUTE ON FUNCTION sexton.submit TO {name}""")
    clerk = await asyncpg.connect(database_url)
    # Like SET SESSION AUTHORIZATION at login; a local socket may reject another role.
    await clerk.execute(f"SET SESSION AUTHORIZATION {name}")
    yield clerk
    await clerk.close()
    await connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


async def test_a_role_with_two_grants_may_submit(clerk: Conn, connection: Conn) -> None:
    """A12, F1: the function runs as its owner, and the submitter's own name is kept."""
    job_id = await clerk.fetchval("SELECT sexton.submit('a', '{\"n\": 1}', key => 'k', unique_by => '{task}')")
    shown = await jobs.show(connection, job_id)
    assert shown.submitted_by == await clerk.fetchval("SELECT session_user::text")


async def test_a_role_that_may_submit_creates_missing_partitions_too(clerk: Conn, connection: Conn) -> None:
    """A12, rule "lock in id order"."""
    for row in await connection.fetch(
        "SELECT inhrelid::regclass::text AS child FROM pg_inherits WHERE inhrelid::regclass::text LIKE '%\\_2%'"
    ):
        await connection.execute(f"DROP TABLE IF EXISTS {row['child']}")
    job_id = await clerk.fetchval("SELECT sexton.submit('a')")
    assert await status(connection, job_id) == "pending"


async def test_a_role_that_may_submit_can_do_nothing_else(clerk: Conn, connection: Conn) -> None:
    """F1: it can read or change no table, and call no other function with an effect."""
    await submit(connection)
    for row in await connection.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'sexton'::regnamespace AND relkind IN ('r', 'p')"
    ):
        for statement in ("SELECT FROM {}", "DELETE FROM {}", "TRUNCATE {}", "DROP TABLE {}", "INSERT INTO {} DEFAULT VALUES"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await clerk.execute(statement.format(f"sexton.{row['relname']}"))
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await clerk.execute("CREATE TABLE sexton.mine (n int)")
    callable_ = await connection.fetch(
        """SELECT proname FROM pg_proc WHERE pronamespace = 'sexton'::regnamespace
           AND has_function_privilege($1, oid, 'EXECUTE') AND proname NOT LIKE 'test_only%' ORDER BY 1""",
        await clerk.fetchval("SELECT session_user::text"),
    )
    assert [row["proname"] for row in callable_] == ["submit", "uuid7_floor"]


async def test_no_function_of_the_schema_is_granted_to_public(connection: Conn) -> None:
    """F1: a later migration that adds a function must revoke it; pure ones are listed here by name."""
    rows = await connection.fetch(
        """SELECT proname FROM pg_proc WHERE pronamespace = 'sexton'::regnamespace AND proname NOT LIKE 'test_only%'
           AND has_function_privilege('public', oid, 'EXECUTE')"""
    )
    assert [row["proname"] for row in rows] == ["uuid7_floor"]


async def test_every_function_that_runs_as_its_owner_has_a_fixed_search_path(connection: Conn) -> None:
    """F1: with pg_temp last, so that temporary objects of a caller do not come first."""
    rows = await connection.fetch(
        "SELECT proname, proconfig FROM pg_proc WHERE pronamespace = 'sexton'::regnamespace AND prosecdef"
    )
    assert sorted(row["proname"] for row in rows) == ["submit", "submit_schedule"]
    assert all("search_path=sexton, pg_temp" in row["proconfig"] for row in rows)


async def test_temporary_objects_and_search_paths_cannot_hijack_a_submission(clerk: Conn, connection: Conn) -> None:
    """F1: no object of the caller is called or written as the owner."""
    database = await connection.fetchval("SELECT current_database()")
    name = await clerk.fetchval("SELECT session_user::text")
    await connection.execute(f'GRANT CREATE, TEMPORARY ON DATABASE "{database}" TO {name}')
    await clerk.execute("""
        CREATE SCHEMA evil;
        CREATE FUNCTION evil.own() RETURNS void LANGUAGE plpgsql AS $$
          BEGIN RAISE EXCEPTION 'hijacked as %', current_user; END $$;
        CREATE FUNCTION evil.pg_notify(text, text) RETURNS void LANGUAGE sql AS 'SELECT evil.own()';
        CREATE FUNCTION evil.jsonb_array_length(jsonb) RETURNS int LANGUAGE sql AS 'SELECT evil.own(); SELECT 1';
        CREATE FUNCTION evil.coalesce_text(text, text) RETURNS text LANGUAGE sql AS 'SELECT evil.own(); SELECT $1';
        CREATE FUNCTION evil.eq(uuid, uuid) RETURNS boolean LANGUAGE sql AS 'SELECT evil.own(); SELECT true';
        CREATE OPERATOR evil.= (LEFTARG = uuid, RIGHTARG = uuid, FUNCTION = evil.eq);
        CREATE TEMPORARY TABLE jobs (id uuid); CREATE TEMPORARY TABLE runs (id uuid); CREATE TEMPORARY TABLE tasks (name text);
        CREATE TEMPORARY TABLE idempotency_keys (tenant text); CREATE TEMPORARY TABLE unique_keys (tenant text);
        CREATE FUNCTION pg_temp.announce(text[], boolean) RETURNS void LANGUAGE sql AS 'SELECT evil.own()';
        SET search_path = evil, pg_temp, pg_catalog""")
    job_id = await clerk.fetchval("SELECT sexton.submit('a', key => 'k', unique_by => '{task}')")
    assert await status(connection, job_id) == "pending"
    await connection.execute(f'DROP SCHEMA evil CASCADE; REVOKE ALL ON DATABASE "{database}" FROM {name}')


# Notifications


@asynccontextmanager
async def _heard(listener: Conn) -> AsyncIterator[list[tuple[str, str]]]:
    """The notifications of the block, read at its end without waiting: PostgreSQL delivers them before it answers."""
    heard: list[tuple[str, str]] = []

    def hear(_connection: object, _pid: int, channel: str, payload: object) -> None:
        heard.append((channel, str(payload)))

    for channel in ("sexton_ready", "sexton_due", "sexton_cancel", "sexton_plan"):
        await listener.add_listener(channel, hear)
    yield heard
    await listener.execute("SELECT 1")
    await asyncio.sleep(0)
    for channel in ("sexton_ready", "sexton_due", "sexton_cancel", "sexton_plan"):
        await listener.remove_listener(channel, hear)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [("sexton_ready", "default")]),
        ({"queue": "mail"}, [("sexton_ready", "mail")]),
        ({"delay": "2.9s"}, [("sexton_due", "")]),
        ({"delay": "3s"}, []),
        ({"delay": "1h"}, []),
    ],
)
async def test_a_submission_announces_only_what_a_sleeping_service_would_miss(
    connection: Conn, rival: Conn, options: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    """B10: due now wakes workers of that queue, due soon wakes schedulers, due later wakes none."""
    async with _heard(rival) as heard:
        await submit(connection, **options)
    assert heard == expected


async def test_a_batch_announces_each_queue_once(connection: Conn, rival: Conn) -> None:
    """B10."""
    async with _heard(rival) as heard:
        await jobs.submit(connection, [submission("a", {}, queue=f"q{n % 2}") for n in range(50)], now=NOW)
    assert sorted(heard) == [("sexton_ready", "q0"), ("sexton_ready", "q1")]


async def test_a_duplicate_announces_nothing(connection: Conn, rival: Conn) -> None:
    """A10, B10."""
    await submit(connection, key="k")
    async with _heard(rival) as heard:
        await submit(connection, key="k")
    assert heard == []


async def test_a_rolled_back_submission_announces_nothing(connection: Conn, rival: Conn) -> None:
    """A12, B10."""
    transaction = connection.transaction()
    async with _heard(rival) as heard:
        await transaction.start()
        await submit(connection)
        await transaction.rollback()
    assert heard == []


async def test_notifications_can_be_turned_off_per_call_and_per_database(
    connection: Conn, rival: Conn, database_url: str
) -> None:
    """B10: everything still runs, on polling."""
    async with _heard(rival) as heard:
        await jobs.submit(connection, [submission("a", {})], notify=False, now=NOW)
    assert heard == []
    await connection.execute(
        f'ALTER DATABASE "{await connection.fetchval("SELECT current_database()")}" SET sexton.notify = off'
    )
    silenced = await asyncpg.connect(database_url)
    async with _heard(rival) as heard:
        await submit(silenced)
        await silenced.execute("SELECT sexton.submit('a')")
        await runs.announce(silenced, ["default"], due_soon=True)
    await silenced.close()
    assert heard == []


async def test_a_run_that_is_handed_back_is_announced_if_a_service_could_miss_it(connection: Conn, rival: Conn) -> None:
    """B10, C12: a hand-back wakes workers, a short snooze wakes schedulers, a long retry or an end wakes none."""
    worker_id = await enlist(connection)
    cases: list[tuple[Any, list[tuple[str, str]]]] = [
        (Released("drain"), [("sexton_ready", "default")]),
        (Snoozed(1.0), [("sexton_due", "")]),
        (Snoozed(60.0), []),
        (FLAKY, []),
        (Succeeded(), []),
    ]
    for outcome, expected in cases:
        await submit(connection)
        (claimed,) = await claim(connection, worker_id)
        async with _heard(rival) as heard:
            await finish(connection, claimed.lease, outcome)
        assert heard == expected, outcome
        if isinstance(outcome, Released):
            (claimed,) = await claim(connection, worker_id)
            await finish(connection, claimed.lease, Succeeded())


SCHEDULE = """SELECT sexton.submit_schedule('a', '{"n": 1}', name => 'report', every => '15 min', timezone => 'Europe/Berlin',
  jitter => '30 s', start_at => '2099-03-05T00:00:00Z', end_at => '2099-12-31T00:00:00Z', max_fires => 9,
  exclude => '{2099-12-25}', overlap => 'queue', catch_up => 'all', catch_up_window => '2 hours', queue => 'mail',
  priority => 'high', tenant => 'acme', timeout => '2 min', tags => '{x}', trace => 't')"""


async def _plan(connection: Conn) -> None:
    seen = await schedules.to_plan(connection, Scan(ALL, 100))
    await plan.write(connection, SCHEDULER, seen)


async def test_every_argument_of_a_schedule_is_stored(connection: Conn, rival: Conn) -> None:
    """A12, A4: a complete recurring job in one SELECT, and a planner is notified."""
    async with _heard(rival) as heard:
        job_id = await connection.fetchval(SCHEDULE)
    assert heard == [("sexton_plan", "")]
    await _plan(connection)
    view = await jobs.show(connection, job_id)
    assert (view.status, view.name, view.tenant, view.queue, view.lane) == ("pending", "report", "acme", "mail", 1)
    assert (view.timeout_s, view.tags, view.trace, plain(view.payload_json)) == (120.0, ["x"], "t", {"n": 1})
    start = "2099-03-05T00:00:00Z"
    assert plain(view.schedule_json) == {
        "every": 900.0,
        "timezone": "Europe/Berlin",
        "jitter": {"max": 30.0},
        "start_at": start,
        "end_at": "2099-12-31T00:00:00Z",
        "max_fires": 9,
        "exclude": ["2099-12-25"],
        "anchor_at": start,
    }
    assert plain(view.recurrence_json) == {"overlap": {"policy": "queue"}, "catch_up": {"policy": "all", "window": 7200}}
    row = await connection.fetchrow("SELECT fire_at, due_at - fire_at AS jitter FROM sexton.runs")
    assert row is not None
    assert row["fire_at"].isoformat() == "2099-03-05T00:00:00+00:00"
    assert timedelta(0) < row["jitter"] < timedelta(seconds=30)


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (
            "every => '1 h', anchor_at => '2099-03-05 00:20+01', dst_gap => 'after', dst_overlap => 'first'",
            {"every": 3600.0, "anchor_at": "2099-03-04T23:20:00Z"},
        ),
        (
            "cron => '0 0 12 ? * 2', dialect => 'quartz', dst_gap => 'skip', dst_overlap => 'both'",
            {"cron": "0 0 12 ? * 2", "dialect": "quartz", "dst": {"gap": "skip", "overlap": "both"}},
        ),
        ("cron => '0 9 * * *', dialect => 'strict', anchor_at => now()", {"cron": "0 9 * * *", "dialect": "cron"}),
        (
            "rrule => 'DTSTART:20990305T090000Z RRULE:FREQ=DAILY', anchor_at => now(), dst_overlap => 'last'",
            {"rrule": "DTSTART:20990305T090000Z RRULE:FREQ=DAILY", "dst": {"overlap": "last"}},
        ),
    ],
    ids=["every", "quartz", "strict", "rrule"],
)
async def test_the_reading_of_a_rule_is_stored_and_the_same_call_again_changes_nothing(
    connection: Conn, arguments: str, kept: dict[str, Any]
) -> None:
    """A12, A14: the dialect, the wall times that a change of the clocks skips or repeats, and the starting point."""
    call = f"SELECT sexton.submit_schedule('a', name => 'n', {arguments})"
    job_id = await connection.fetchval(call)
    assert await connection.fetchval(call) == job_id
    await _plan(connection)
    assert await connection.fetchval(call) == job_id
    view = await jobs.show(connection, job_id)
    stored = plain(view.schedule_json)
    assert {name: stored[name] for name in kept} == kept
    assert stored.keys() - kept.keys() <= {"timezone"}
    assert (view.version, view.status) == (1, "pending")


async def test_submitting_the_same_schedule_again_changes_nothing_planned_or_not(connection: Conn) -> None:
    """A14: create or update by name."""
    job_id = await connection.fetchval(SCHEDULE)
    assert await connection.fetchval(SCHEDULE) == job_id
    await _plan(connection)
    assert await connection.fetchval(SCHEDULE) == job_id
    assert (await jobs.show(connection, job_id)).version == 1
    changed = await connection.fetchval(
        "SELECT sexton.submit_schedule('a', name => 'report', tenant => 'acme', cron => '@daily')"
    )
    assert changed == job_id
    await _plan(connection)
    view = await jobs.show(connection, job_id)
    assert (view.version, view.status, plain(view.schedule_json)) == (2, "pending", {"cron": "@daily"})


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("cron => '61 * * * *'", "61"),
        ("cron => '0 9 31 2 *'", "never fires"),
        ("cron => '@daily', timezone => 'Mars/Olympus'", "Mars/Olympus"),
        ("rrule => 'FREQ=SOMETIMES'", "FREQ"),
        ("every => '10 ms'", "1 s between two fires"),
        ("every => '1 h', end_at => '2001-01-01'", "past"),
    ],
)
async def test_a_rule_that_a_planner_cannot_read_ends_with_the_reason(connection: Conn, arguments: str, reason: str) -> None:
    """A4: there is no caller to answer, so the job has the reason; also for an existing name."""
    fresh = await connection.fetchval(f"SELECT sexton.submit_schedule('a', {arguments})")
    await connection.fetchval("SELECT sexton.submit_schedule('a', name => 'n', every => '1 h')")
    await _plan(connection)
    edited = await connection.fetchval(f"SELECT sexton.submit_schedule('a', name => 'n', {arguments})")
    await _plan(connection)
    view = await jobs.show(connection, fresh)
    assert view.status == "failed"
    assert reason in (view.over_reason or "")
    assert (await jobs.show(connection, edited)).status in ("failed", "completed")
    assert await connection.fetchval("SELECT count(*) FROM sexton.runs") == 0


async def test_a_zone_in_the_text_of_an_edited_rule_is_parsed(connection: Conn) -> None:
    """A4: as in the first submission."""
    job_id = await connection.fetchval("SELECT sexton.submit_schedule('a', name => 'n', every => '1 h')")
    await _plan(connection)
    for rule in ("cron => 'TZ=Asia/Tokyo 0 9 * * *'", "rrule => 'DTSTART;TZID=Asia/Tokyo:20260302T090000 RRULE:FREQ=DAILY'"):
        await connection.fetchval(f"SELECT sexton.submit_schedule('a', name => 'n', {rule})")
        await _plan(connection)
        view = await jobs.show(connection, job_id)
        assert (view.status, plain(view.schedule_json)["timezone"]) == ("pending", "Asia/Tokyo")
        assert view.next_fire_at is not None
        assert view.next_fire_at.astimezone(UTC).hour == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("''", "task: name the task"),
        ("'a'", "exactly one of them"),
        ("'a', cron => '@daily', every => '1 h'", "exactly one of them"),
        ("'a', every => '0'", "every: 00:00:00 must be greater than zero"),
        ("'a', every => '-1 h'", "every: -01:00:00 must be greater than zero"),
        ("'a', every => '1 h', jitter => '-1 s'", "jitter: -00:00:01 is negative"),
        ("'a', every => '1 h', timeout => '-1 s'", "timeout: -00:00:01 is negative"),
        ("'a', every => '1 h', catch_up_window => '-1 s'", "catch_up_window: -00:00:01 is negative"),
        ("'a', every => '1 h', priority => 'urgent'", "is not a lane"),
        ("'a', every => '1 h', overlap => 'pile'", "overlap: "),
        ("'a', every => '1 h', catch_up => 'some'", "catch_up: "),
        ("'a', every => '1 h', dst_gap => 'before'", 'dst_gap: "before" is unknown'),
        ("'a', every => '1 h', dst_overlap => 'second'", 'dst_overlap: "second" is unknown'),
        ("'a', cron => '@daily', dialect => 'vixie'", 'dialect: "vixie" is unknown'),
        ("'a', jsonb_build_object('x', repeat('x', 400000)), every => '1 h'", "the limit is 262144"),
    ],
)
async def test_an_invalid_argument_of_a_schedule_is_named(connection: Conn, arguments: str, words: str) -> None:
    """F2."""
    with pytest.raises(asyncpg.DataError, match=words):
        await connection.fetchval(f"SELECT sexton.submit_schedule({arguments})")


async def test_a_role_needs_a_grant_of_its_own_to_schedule(clerk: Conn, connection: Conn) -> None:
    """A12: and with it needs nothing else."""
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await clerk.fetchval("SELECT sexton.submit_schedule('a', every => '1 h')")
    await connection.execute(
        f"GRANT EXECUTE ON FUNCTION sexton.submit_schedule TO {await clerk.fetchval('SELECT session_user')}"
    )
    job_id = await clerk.fetchval("SELECT sexton.submit_schedule('a', every => '1 h', tags => '{x}')")
    assert (await jobs.show(connection, job_id)).submitted_by == await clerk.fetchval("SELECT session_user::text")


ONE_TIME, RECURRING = "sexton.submit('a', {})", "sexton.submit_schedule('a', every => '1 h', {})"
OF_BOTH = [
    "tenant => ''",
    "queue => ''",
    "name => ''",
    "trace => ''",
    "tags => array['']",
    "tags => array[null]::text[]",
    "tags => array_fill('x'::text, array[21])",
    "tenant => repeat('x', 201)",
    "timeout => '3661 days'",
    "deadline => '3661 days'",
    "lease => '-1 s'",
]


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        *[(call, argument) for call in (ONE_TIME, RECURRING) for argument in OF_BOTH],
        (ONE_TIME, "key => ''"),
        (ONE_TIME, "key => 'k', key_ttl => '-1 s'"),
        (ONE_TIME, "delay => '3661 days'"),
        (ONE_TIME, "unique_by => '{task}', unique_for => '-1 s'"),
        (RECURRING, "catch_up_window => '3661 days'"),
        (RECURRING, "jitter => '31 min'"),
    ],
)
async def test_a_text_or_a_span_out_of_its_bounds_is_rejected_by_name(connection: Conn, call: str, argument: str) -> None:
    """F2, F4, C9: the bounds are those of the SDK."""
    named = argument.rpartition(", ")[2] if "_for" in argument or "_ttl" in argument else argument
    with pytest.raises(asyncpg.PostgresError, match=f"^{named.partition(' ')[0]}: ") as caught:
        await connection.fetchval(f"SELECT {call.format(argument)}")
    assert caught.value.sqlstate == "22023"


async def test_the_longest_spans_of_the_sdk_are_accepted(connection: Conn) -> None:
    """A12: ten years, as in domain/duration.py."""
    longest = "interval '3660 days'"
    spans = ", ".join(f"{name} => {longest}" for name in ("delay", "timeout", "key_ttl", "deadline", "grace"))
    await connection.execute(f"SELECT sexton.submit('a', key => 'k', {spans})")
    await connection.execute(f"SELECT sexton.submit_schedule('a', every => {longest}, jitter => '30 min')")
