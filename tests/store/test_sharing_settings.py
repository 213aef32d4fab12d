"""The settings of tenants, queues and limits: stored, replaced, paused, deleted; the holders of a limit; and its explanation by
`why`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import pytest

from sexton.domain.job import submission
from sexton.domain.limit import standing_limit
from sexton.domain.outcome import Succeeded
from sexton.domain.partition import ALL
from sexton.domain.retry import Retry
from sexton.domain.sharing import queue_settings, tenant_settings
from sexton.errors import InvalidSubmission, LimitExceeded, NotAllowedIn
from sexton.operations import limits, queues, tenants
from sexton.operations.caller import Caller
from sexton.operations.cancel import cancel as cancel_job
from sexton.operations.explain import explain
from sexton.operations.explain.link import Link
from sexton.store.database import _SERVER_SETTINGS
from sexton.store.fleet import workers
from sexton.store.postgres.driver_errors import translated_errors
from sexton.store.sharing import limits as limit_rows
from sexton.store.sharing import parked_runs
from sexton.store.sharing import queues as queue_rows
from sexton.store.sharing import tenants as tenant_rows
from sexton.store.views import overview
from sexton.store.work import jobs
from tests.callers import TESTER
from tests.store.support import NOW, after, claim, enlist, finish, submit, submit_many

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.store.support import Conn


@pytest.fixture
async def heard(database_url: str) -> AsyncIterator[list[tuple[str, str]]]:
    """The notifications, as (channel, payload)."""
    notified: list[tuple[str, str]] = []
    listener = await asyncpg.connect(database_url)
    for channel in ("sexton_ready", "sexton_due"):
        await listener.add_listener(channel, lambda _c, _p, name, payload: notified.append((str(name), str(payload))))
    yield notified
    await listener.close()


async def _told(connection: Conn, heard: list[tuple[str, str]]) -> set[tuple[str, str]]:
    """A notification of this connection arrives after all that were sent before it."""
    await connection.execute("SELECT pg_notify('sexton_due', 'end')")
    while ("sexton_due", "end") not in heard:
        await connection.execute("SELECT pg_sleep(0.002)")
    found = set(heard) - {("sexton_due", "end")}
    heard.clear()
    return found


async def limited(connection: Conn, key: str, many: int = 1, **numbers: Any) -> list[UUID]:
    return await submit_many(connection, [submission("a", {}, limit={"key": key, **numbers})] * many)


async def start(connection: Conn, worker_id: UUID, now: Any = NOW) -> list[Any]:
    await parked_runs.release(connection, now=now)
    return await claim(connection, worker_id, now=now)


class TestTenants:
    async def test_settings_are_replaced_as_a_whole_and_a_pause_stays(self, connection: Conn) -> None:
        """C8, C9, F4."""
        assert await tenant_rows.get(connection, "acme") is None
        await tenants.put(
            connection, TESTER, "acme", tenant_settings(weight=3, running_max=5, submit_rate=2.5, jitter="30s"), now=NOW
        )
        found = await tenant_rows.get(connection, "acme")
        assert found == tenant_rows.Tenant("acme", 3, 5, None, 2.5, 3, 30.0, None, None, None, NOW)
        await tenants.pause(connection, Caller("ann"), "acme", note="unpaid", now=after(seconds=1))
        await tenants.put(connection, TESTER, "acme", tenant_settings(), now=after(seconds=2))
        found = await tenant_rows.get(connection, "acme")
        assert found is not None
        assert (found.weight, found.running_max, found.submit_rate, found.submit_burst) == (1, None, None, None)
        assert (found.paused_at, found.paused_by, found.note) == (after(seconds=1), "ann", "unpaid")

    async def test_a_pause_keeps_its_first_caller_and_its_last_note(self, connection: Conn) -> None:
        """C11."""
        await tenants.pause(connection, Caller("ann"), "acme", note="a", now=NOW)
        await tenants.pause(connection, Caller("bob"), "acme", note="b", now=after(hours=1))
        found = await tenant_rows.get(connection, "acme")
        assert found is not None
        assert (found.paused_at, found.paused_by, found.note) == (NOW, "ann", "b")
        await tenants.resume(connection, TESTER, "acme")
        found = await tenant_rows.get(connection, "acme")
        assert found is not None
        assert (found.paused_at, found.paused_by, found.note) == (None, None, None)
        assert await tenants.remove(connection, TESTER, "acme")
        assert not await tenants.remove(connection, TESTER, "acme")
        assert await tenant_rows.get(connection, "acme") is None

    async def test_a_change_that_lets_more_start_wakes_workers_and_schedulers(
        self, connection: Conn, heard: list[tuple[str, str]]
    ) -> None:
        """C8, C11: otherwise only a poll would notice it."""
        await submit(connection, tenant="acme", queue="mail")
        await _told(connection, heard)
        await tenants.pause(connection, TESTER, "acme", now=NOW)
        assert await _told(connection, heard) == set()
        woken = {("sexton_ready", "mail"), ("sexton_due", "")}
        await tenants.resume(connection, TESTER, "acme")
        assert await _told(connection, heard) == woken
        await tenants.put(connection, TESTER, "acme", tenant_settings(running_max=5), now=NOW)
        assert await _told(connection, heard) == woken
        await tenants.remove(connection, TESTER, "acme")
        assert await _told(connection, heard) == woken
        await queues.resume(connection, TESTER, "print")
        assert await _told(connection, heard) == {("sexton_ready", "print"), ("sexton_due", "")}
        await limits.put(connection, TESTER, standing_limit("a", running=1), now=NOW)
        assert await _told(connection, heard) == {("sexton_due", "")}

    async def test_runs_that_wait_already_count_when_the_number_of_waiting_is_first_limited(self, connection: Conn) -> None:
        """C9: ready and waiting ones; running ones do not count."""
        worker_id = await enlist(connection)
        await submit(connection, tenant="acme")
        (running,) = await claim(connection, worker_id)
        await submit(connection, tenant="acme")
        await submit(connection, tenant="acme", delay="1h")
        await submit(connection, tenant="other")
        await tenants.put(connection, TESTER, "acme", tenant_settings(waiting_max=3), now=NOW)
        counted = await connection.fetch("SELECT id FROM sexton.runs WHERE counted")
        assert len(counted) == 2
        assert running.lease.run_id not in {row["id"] for row in counted}
        await submit(connection, tenant="acme", now=after(seconds=5))
        with pytest.raises(LimitExceeded, match="acme") as raised, translated_errors():
            await submit(connection, tenant="acme", now=after(seconds=10))
        error = raised.value
        assert (error.limit, error.tenant, error.max, error.retry_after_s) == ("waiting", "acme", 3, 1)
        await submit(connection, tenant="other", now=after(seconds=10))

    async def test_a_change_of_the_rate_causes_no_burst(self, connection: Conn) -> None:
        """C9: the present tokens stay, and no more are added."""
        await tenants.put(connection, TESTER, "acme", tenant_settings(submit_rate=1, submit_burst=5), now=NOW)
        for _ in range(5):
            await submit(connection, tenant="acme")
        await tenants.put(connection, TESTER, "acme", tenant_settings(submit_rate=10, submit_burst=100), now=NOW)
        with pytest.raises(LimitExceeded) as raised, translated_errors():
            await submit(connection, tenant="acme")
        assert (raised.value.limit, raised.value.max) == ("submit_rate", 10)
        assert raised.value.retry_after_s == pytest.approx(0.1)
        await submit(connection, tenant="acme", now=after(seconds=0.1))

    async def test_many_are_listed_by_name(self, connection: Conn) -> None:
        for name in ("c", "a", "b"):
            await tenants.put(connection, TESTER, name, tenant_settings(weight=2), now=NOW)
        assert [one.name for one in await tenant_rows.known(connection, limit=2)] == ["a", "b"]
        assert [one.name for one in await tenant_rows.known(connection, after="b")] == ["c"]
        assert set(await tenant_rows.get_many(connection, ["a", "x"])) == {"a"}

    async def test_one_tenant_is_counted_beside_a_large_one(self, connection: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
        """E6: its ready runs are found by index, however many others have."""
        monkeypatch.setattr(overview, "COUNT_LIMIT", 4)
        for _ in range(10):
            await submit(connection, tenant="big")
        for priority in ("low", "critical"):
            await submit(connection, tenant="small", queue="mail", priority=priority)
        assert await overview.tenant(connection, "small") == overview.TenantLoad("small", 2, 0, 0, 0, False)
        assert await overview.tenant(connection, "big") == overview.TenantLoad("big", 4, 0, 0, 0, True)
        assert await overview.tenant(connection, "none") == overview.TenantLoad("none", 0, 0, 0, 0, False)


class TestQueues:
    async def test_settings_are_replaced_as_a_whole_and_a_pause_stays(self, connection: Conn) -> None:
        """C11."""
        retry = Retry.after("1s", "5s")
        chosen = queue_settings(release_rate=50, ageing="10m", timeout=0, jitter="5s", retry=retry)
        await queues.put(connection, TESTER, "mail", chosen, now=NOW)
        found = await queue_rows.get(connection, "mail")
        assert found is not None
        assert (found.release_rate, found.release_burst, found.ageing_s, found.timeout_s, found.jitter_s) == (50, 5, 600, 0, 5)
        assert found.retry == retry
        await queues.pause(connection, Caller("ann"), "mail", note="down", now=after(seconds=1))
        await queues.put(connection, TESTER, "mail", queue_settings(), now=after(seconds=2))
        found = await queue_rows.get(connection, "mail")
        assert found == queue_rows.Queue(
            "mail", None, None, None, None, None, None, after(seconds=1), "ann", "down", after(seconds=2)
        )
        await queues.resume(connection, TESTER, "mail")
        assert [one.paused_at for one in await queue_rows.known(connection)] == [None]
        assert await queues.remove(connection, TESTER, "mail")
        assert not await queues.remove(connection, TESTER, "mail")

    async def test_defaults_of_a_queue_apply_to_jobs_without_own_values(self, connection: Conn) -> None:
        """C11."""
        await queues.put(connection, TESTER, "mail", queue_settings(timeout="7s", retry=Retry.never()), now=NOW)
        plain = await jobs.show(connection, await submit(connection, queue="mail"))
        own = await jobs.show(connection, await submit(connection, queue="mail", timeout="1s", retry=Retry(max_attempts=9)))
        assert (plain.timeout_s, own.timeout_s) == (7.0, 1.0)
        assert '"max_attempts": 1' in str(plain.policy_json)
        assert '"max_attempts": 9' in str(own.policy_json)

    async def test_no_run_starts_from_a_paused_queue_or_for_a_paused_tenant(self, connection: Conn) -> None:
        """C11."""
        worker_id = await enlist(connection)
        await submit(connection, tenant="acme")
        await queues.pause(connection, TESTER, "default", now=NOW)
        assert await claim(connection, worker_id) == []
        await queues.resume(connection, TESTER, "default")
        await tenants.pause(connection, TESTER, "acme", now=NOW)
        assert await claim(connection, worker_id) == []
        await tenants.resume(connection, TESTER, "acme")
        assert len(await claim(connection, worker_id)) == 1


class TestLimits:
    async def test_a_limit_shows_its_holders_and_how_many_wait(self, connection: Conn) -> None:
        """C10, E6."""
        worker_id = await enlist(connection)
        ids = await limited(connection, "stripe", 3, running=1)
        (held,) = await start(connection, worker_id)
        found = await limit_rows.get(connection, "stripe", now=NOW)
        assert found is not None
        assert (found.running, found.held_count, found.parked_count, found.capped, found.tokens) == (1, 1, 2, False, None)
        assert found.holders == [limit_rows.Holder(held.lease.run_id, ids[0], "a", "default", worker_id, "w", NOW)]
        (listed,) = await limit_rows.find(connection, now=NOW)
        assert (listed.key, listed.held_count, listed.parked_count, listed.holders) == ("stripe", 1, 2, [])
        await finish(connection, held.lease, Succeeded())
        found = await limit_rows.get(connection, "stripe", now=NOW)
        assert found is not None
        assert (found.held_count, found.holders) == (0, [])
        assert await limit_rows.get(connection, "none", now=NOW) is None

    async def test_the_numbers_in_a_job_only_create_a_limit(self, connection: Conn) -> None:
        """C10: later settings override them."""
        await limited(connection, "stripe", running=5)
        await limits.put(connection, Caller("ann"), standing_limit("stripe", running=2), now=NOW)
        await limited(connection, "stripe", running=9)
        await limited(connection, "stripe")
        found = await limit_rows.get(connection, "stripe", now=NOW)
        assert found is not None
        assert (found.running, found.made_by) == (2, "ann")
        with pytest.raises(InvalidSubmission, match="there is no limit") as raised, translated_errors():
            await limited(connection, "unknown")
        assert raised.value.field == "/limit/key"

    async def test_limits_are_listed_by_key_and_prefix(self, connection: Conn) -> None:
        for key in ("b:2", "a", "b:1", "c"):
            await limits.put(connection, TESTER, standing_limit(key, running=1), now=NOW)
        assert [one.key for one in await limit_rows.find(connection, limit=2)] == ["a", "b:1"]
        assert [one.key for one in await limit_rows.find(connection, after="b:1")] == ["b:2", "c"]
        assert [one.key for one in await limit_rows.find(connection, prefix="b:")] == ["b:1", "b:2"]

    async def test_a_limit_that_runs_wait_for_is_not_removed(self, connection: Conn) -> None:
        """C10: otherwise nothing would hold them back."""
        ids = await limited(connection, "stripe", 2, running=1)
        with pytest.raises(NotAllowedIn, match="2 runs wait"):
            await limits.remove(connection, TESTER, "stripe")
        await parked_runs.release(connection, now=NOW)  # one is released, and waits for a worker
        with pytest.raises(NotAllowedIn, match="2 runs wait"):
            await limits.remove(connection, TESTER, "stripe")
        async with connection.transaction():
            await cancel_job(connection, TESTER, ids[1], now=NOW)
        with pytest.raises(NotAllowedIn, match="1 run waits"):
            await limits.remove(connection, TESTER, "stripe")
        async with connection.transaction():
            await cancel_job(connection, TESTER, ids[0], now=NOW)
        assert await limits.remove(connection, TESTER, "stripe")
        assert not await limits.remove(connection, TESTER, "stripe")
        assert await connection.fetch("SELECT FROM sexton.slots") == []

    async def test_the_holders_of_a_limit_keep_it_when_the_number_is_lowered(self, connection: Conn) -> None:
        """C10."""
        worker_id = await enlist(connection)
        await limited(connection, "stripe", 4, running=3)
        held = await start(connection, worker_id)
        assert len(held) == 3
        await limits.put(connection, TESTER, standing_limit("stripe", running=1), now=NOW)
        found = await limit_rows.get(connection, "stripe", now=NOW)
        assert found is not None
        assert (found.running, found.held_count, len(found.holders)) == (1, 3, 3)
        for one in held[:2]:
            await finish(connection, one.lease, Succeeded())
            assert await start(connection, worker_id) == []
        await finish(connection, held[2].lease, Succeeded())
        assert len(await start(connection, worker_id)) == 1

    async def test_a_change_of_the_rate_leaves_an_empty_bucket_empty(self, connection: Conn) -> None:
        """C10: an empty bucket stays empty."""
        worker_id = await enlist(connection)
        await limited(connection, "api", 12, count=10, per="10s", burst=2)
        assert len(await start(connection, worker_id)) == 2
        await limits.put(connection, TESTER, standing_limit("api", count=100, per="10s", burst=50), now=NOW)
        found = await limit_rows.get(connection, "api", now=NOW)
        assert found is not None
        assert found.tokens == 0
        assert found.next_token_s == pytest.approx(0.1)
        assert await start(connection, worker_id) == []
        assert len(await start(connection, worker_id, after(seconds=0.3))) == 3

    async def test_holders_are_named_to_their_limit(self, connection: Conn) -> None:
        worker_id = await enlist(connection)
        await limited(connection, "stripe", 4, running=4)
        await start(connection, worker_id)
        found = await limit_rows.get(connection, "stripe", holders=2, now=NOW)
        assert found is not None
        assert (found.held_count, len(found.holders)) == (4, 2)


class TestWhy:
    async def told(self, connection: Conn, job_id: UUID, now: Any = NOW) -> tuple[str, dict[str, Link]]:
        explained = await explain(connection, TESTER, job_id, now=now)
        return explained.answer, {link.check: link for link in explained.chain}

    async def test_a_paused_queue_is_named_with_the_caller_who_paused_it(self, connection: Conn) -> None:
        """B7, C11."""
        await enlist(connection)
        job_id = await submit(connection)
        await queues.pause(connection, Caller("ann"), "default", note="the server is down", now=NOW)
        answer, links = await self.told(connection, job_id)
        assert answer == "Its queue 'default' is paused since 2026-03-04 12:00:00Z by ann: the server is down."
        assert links["queue_pause"].evidence["paused_by"] == "ann"

    async def test_a_paused_tenant_and_one_at_its_limit_are_named(self, connection: Conn) -> None:
        """B7, C9."""
        worker_id = await enlist(connection)
        await tenants.put(connection, TESTER, "acme", tenant_settings(running_max=1), now=NOW)
        _, job_id = await submit_many(connection, [submission("a", {}, tenant="acme")] * 2)
        (held,) = await claim(connection, worker_id)
        answer, links = await self.told(connection, job_id)
        assert answer == "Its tenant 'acme' has 1 of 1 run at once, which is its limit."
        assert links["tenant_limit"].evidence == {"tenant": "acme", "running_max": 1, "running_count": 1}
        await finish(connection, held.lease, Succeeded())
        assert (await self.told(connection, job_id))[1]["tenant_limit"].ok
        await tenants.pause(connection, Caller("ann"), "acme", now=NOW)
        answer, _ = await self.told(connection, job_id)
        assert answer == "Its tenant 'acme' is paused since 2026-03-04 12:00:00Z by ann."

    async def test_a_run_that_waits_for_a_limit_names_it_and_its_holders(self, connection: Conn) -> None:
        """B7, C10."""
        worker_id = await enlist(connection)
        await workers.node_beat(connection, UUID(int=9), name="n1", partitions=list(ALL), now=NOW)
        *_, job_id = await limited(connection, "stripe", 2, running=1)
        (held,) = await start(connection, worker_id)
        answer, links = await self.told(connection, job_id)
        assert answer == f"It waits for the limit 'stripe' of 1 at once, held by run {held.lease.run_id} on w."
        assert links["limit"].evidence["holders"][0]["run_id"] == held.lease.run_id
        await finish(connection, held.lease, Succeeded())
        await parked_runs.release(connection, now=NOW)
        answer, links = await self.told(connection, job_id)
        assert (links["limit"].ok, links["limit"].detail) == (True, "Its limit 'stripe' has room.")

    async def test_a_rate_shows_when_the_next_start_is(self, connection: Conn) -> None:
        """B7, C10."""
        worker_id = await enlist(connection)
        await workers.node_beat(connection, UUID(int=9), name="n1", partitions=list(ALL), now=NOW)
        *_, job_id = await limited(connection, "api", 2, count=1, per="10s", burst=1)
        assert len(await start(connection, worker_id)) == 1
        answer, _ = await self.told(connection, job_id, after(seconds=4))
        assert answer == "It waits for the limit 'api' of 1 per 10 s; the next start is in 6 s."

    async def test_the_release_rate_of_a_queue_is_named(self, connection: Conn) -> None:
        """B7, C11."""
        worker_id = await enlist(connection)
        await queues.put(connection, TESTER, "default", queue_settings(release_rate=0.1), now=NOW)
        _, job_id = await submit_many(connection, [submission("a", {})] * 2)
        assert len(await claim(connection, worker_id)) == 1
        answer, _ = await self.told(connection, job_id)
        assert answer == "Its queue 'default' releases 0.1 runs per second, and has just done so."
        assert (await self.told(connection, job_id, after(seconds=11)))[1]["release_rate"].ok


@pytest.mark.made_up_rows
async def test_an_explanation_of_a_limit_costs_the_same_beside_many_runs(database_url: str) -> None:
    """B8: by index, and bounded; planned on empty tables."""
    connection = await asyncpg.connect(database_url, server_settings={**_SERVER_SETTINGS, "statement_timeout": "120s"})
    await connection.execute("ALTER TABLE sexton.runs DISABLE TRIGGER USER")
    await limits.put(connection, TESTER, standing_limit("few", running=5), now=NOW)
    await limit_rows.get(connection, "few", now=NOW)
    await limit_rows.find(connection, now=NOW)
    await connection.execute(
        """INSERT INTO sexton.runs
             (id, job_id, fire_at, due_at, lane, partition, at_most_once, state, origin, queue, tenant, task, limit_key)
           SELECT id, id, $1::timestamptz, $1, 2, 0, false, CASE WHEN n % 2 = 0 THEN 'parked' ELSE 'ready' END, 'now', 'q',
             't' || n % 7, 'a', 'many' || n % 2
           FROM (SELECT n, gen_random_uuid() AS id FROM generate_series(1, 40000) n) s""",
        NOW,
        timeout=120,
    )
    await limits.put(connection, TESTER, standing_limit("many0", running=5), now=NOW)

    async def read() -> int:
        await connection.execute("SELECT pg_stat_force_next_flush()")
        (row,) = await connection.fetch(
            "SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname = 'runs') "
            "+ (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'runs') AS n"
        )
        return int(row["n"])

    before = await read()
    await limit_rows.get(connection, "few", now=NOW)
    assert await read() - before == 0
    assert [one.parked_count for one in await limit_rows.find(connection, now=NOW)] == [0, 1_000]
    assert await read() - before <= 1_001
    found = await limit_rows.get(connection, "many0", now=NOW)
    assert found is not None
    assert (found.parked_count, found.capped) == (10_000, True)
    assert await read() - before <= 1_001 + 10_001
    await connection.close()
