"""Two open transactions on the same limit, bucket, key or slot: the second waits, skips it or gets the next one, and each test
says which. `blocked_task` sees the wait in the server; none of them sleeps (C9, C10)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sexton.domain.limit import standing_limit
from sexton.domain.outcome import Succeeded
from sexton.domain.sharing import TenantSettings
from sexton.operations import limits, one_time_jobs
from sexton.operations.caller import Caller
from sexton.operations.recurring import recurring_jobs
from sexton.store.sharing import parked_runs, tenants
from tests.callers import TESTER

from .support import NOW, after, blocked_task, claim, claim_suspects, enlist, finish, submit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sexton.store.database import Connection

    from .support import Conn

IN_ORDER = {"key": "acme", "ordered": True}


async def ready(connection: Connection, count: int, **options: Any) -> list[UUID]:
    """Jobs that are ready although a limit may hold them back: too many do no harm, because the claim checks again."""
    ids = [await submit(connection, now=NOW + timedelta(microseconds=n), **options) for n in range(count)]
    await connection.fetch("UPDATE sexton.runs SET state = 'ready' WHERE state = 'parked'")
    return ids


async def states(connection: Connection, ids: Sequence[UUID]) -> list[str | None]:
    rows = await connection.fetch("SELECT id, state FROM sexton.runs WHERE id = ANY ($1)", list(ids))
    known = {row["id"]: row["state"] for row in rows}
    return [known.get(one) for one in ids]


async def holders(connection: Connection, key: str) -> dict[int, UUID]:
    rows = await connection.fetch("SELECT n, run_id FROM sexton.slots WHERE key = $1 AND run_id IS NOT NULL", key)
    return {row["n"]: row["run_id"] for row in rows}


async def hurry(connection: Conn) -> None:
    """From now on a wait for a lock soon fails."""
    await connection.execute("SET lock_timeout = '500ms'")


# Slots of a key


async def test_two_claims_that_create_the_same_slot_do_not_share_it(connection: Conn, rival: Conn) -> None:
    """Neither sees the slot that the other creates: the second waits for it, and finds it taken."""
    worker_id = await enlist(connection)
    first, second = await ready(connection, 2, limit={"key": "stripe", "running": 1})
    async with rival.transaction():
        assert [run.lease.job_id for run in await claim(rival, worker_id, limit=1)] == [first]
        late = await blocked_task(rival, connection, claim(connection, worker_id, limit=1))
    assert await late == []
    assert await holders(connection, "stripe") == {1: first}
    assert await states(connection, [first, second]) == ["running", "parked"]


async def test_a_slot_whose_creator_rolls_back_goes_to_the_claim_that_waited(connection: Conn, rival: Conn) -> None:
    worker_id = await enlist(connection)
    _, second = await ready(connection, 2, limit={"key": "stripe", "running": 1})
    open_claim = rival.transaction()
    await open_claim.start()
    await claim(rival, worker_id, limit=1)
    late = await blocked_task(rival, connection, claim(connection, worker_id, limit=1))
    await open_claim.rollback()
    assert [run.lease.job_id for run in await late] == [second]
    assert await holders(connection, "stripe") == {1: second}


async def test_a_claim_that_lost_a_slot_gets_the_next_one(connection: Conn, rival: Conn) -> None:
    worker_id = await enlist(connection)
    first, second = await ready(connection, 2, limit={"key": "stripe", "running": 2})
    async with rival.transaction():
        await claim(rival, worker_id, limit=1)
        late = await blocked_task(rival, connection, claim(connection, worker_id, limit=1))
    assert [run.lease.job_id for run in await late] == [second]
    assert await holders(connection, "stripe") == {1: first, 2: second}


async def test_a_claim_skips_slots_that_another_is_taking(connection: Conn, rival: Conn) -> None:
    """If the slots exist already, no claim waits."""
    worker_id = await enlist(connection)
    first, second, third = await ready(connection, 3, limit={"key": "stripe", "running": 2})
    await connection.fetch("INSERT INTO sexton.slots (key, n) VALUES ('stripe', 1), ('stripe', 2)")
    await hurry(connection)
    async with rival.transaction():
        await claim(rival, worker_id, limit=1)
        assert [run.lease.job_id for run in await claim(connection, worker_id)] == [second]
    assert await holders(connection, "stripe") == {1: first, 2: second}
    assert await states(connection, [third]) == ["parked"]


async def test_a_slot_that_is_being_released_is_free_only_after_the_commit(connection: Conn, rival: Conn) -> None:
    worker_id = await enlist(connection)
    await ready(connection, 1, limit={"key": "stripe", "running": 1})
    (held,) = await claim(connection, worker_id)
    (waiting,) = await ready(connection, 1, limit="stripe")
    await hurry(connection)
    async with rival.transaction():
        await finish(rival, held.lease, Succeeded())
        assert await claim(connection, worker_id) == []
    await parked_runs.release(connection, now=NOW)
    assert [run.lease.job_id for run in await claim(connection, worker_id)] == [waiting]


async def test_a_limit_that_is_being_lowered_holds_no_claim_up(connection: Conn, rival: Conn) -> None:
    """Until the commit the old number counts; from then on no run starts above the new one."""
    worker_id = await enlist(connection)
    first, second, third = await ready(connection, 3, limit={"key": "stripe", "running": 3})
    await connection.fetch("INSERT INTO sexton.slots (key, n) VALUES ('stripe', 1), ('stripe', 2), ('stripe', 3)")
    await hurry(connection)
    async with rival.transaction():
        await limits.put(rival, TESTER, standing_limit("stripe", running=1), now=NOW)
        assert [run.lease.job_id for run in await claim(connection, worker_id, limit=1)] == [first]
    await connection.fetch("UPDATE sexton.runs SET state = 'ready' WHERE state = 'parked'")
    assert await claim(connection, worker_id) == []
    assert await holders(connection, "stripe") == {1: first}
    assert await states(connection, [second, third]) == ["parked", "parked"]


async def test_a_limit_is_lowered_beside_an_open_claim(connection: Conn, rival: Conn) -> None:
    """The claim keeps what it took; both of its runs must end before another starts."""
    worker_id = await enlist(connection)
    first, second, third = await ready(connection, 3, limit={"key": "stripe", "running": 2})
    await hurry(connection)
    async with rival.transaction():
        held = await claim(rival, worker_id, limit=2)
        async with connection.transaction():
            await limits.put(connection, TESTER, standing_limit("stripe", running=1), now=NOW)
    assert await holders(connection, "stripe") == {1: first, 2: second}
    for one, room in zip(held, (0, 1), strict=True):
        await finish(connection, one.lease, Succeeded())
        await connection.fetch("UPDATE sexton.runs SET state = 'ready' WHERE state = 'parked'")
        assert len(await claim(connection, worker_id)) == room
    assert list((await holders(connection, "stripe")).values()) == [third]


async def suspect(connection: Connection, **options: Any) -> UUID:
    """A job whose run is in quarantine, to be executed alone."""
    job_id = await submit(connection, **options)
    await connection.fetch("ALTER TABLE sexton.runs DISABLE TRIGGER test_only_watch")
    await connection.fetch("UPDATE sexton.runs SET state = 'quarantined', company = 1, token = 2 WHERE job_id = $1", job_id)
    await connection.fetch("ALTER TABLE sexton.runs ENABLE TRIGGER test_only_watch")
    return job_id


async def test_a_claim_of_suspects_and_a_claim_do_not_share_a_slot(connection: Conn, rival: Conn) -> None:
    worker_id = await enlist(connection)
    limit = {"key": "stripe", "running": 1}
    suspected = await suspect(connection, limit=limit)
    (ordinary,) = await ready(connection, 1, limit=limit)
    await connection.fetch("INSERT INTO sexton.slots (key, n) VALUES ('stripe', 1)")
    await hurry(connection)
    async with rival.transaction():
        (held,) = await claim_suspects(rival)
        assert held.lease.job_id == suspected
        assert await claim(connection, worker_id) == []
    assert await holders(connection, "stripe") == {1: suspected}
    await finish(connection, held.lease, Succeeded())
    await parked_runs.release(connection, now=NOW)
    assert [run.lease.job_id for run in await claim(connection, worker_id)] == [ordinary]


async def test_a_claim_and_a_claim_of_suspects_do_not_share_a_slot(connection: Conn, rival: Conn) -> None:
    worker_id = await enlist(connection)
    limit = {"key": "stripe", "running": 1}
    suspected = await suspect(connection, limit=limit)
    (ordinary,) = await ready(connection, 1, limit=limit)
    await connection.fetch("INSERT INTO sexton.slots (key, n) VALUES ('stripe', 1)")
    await hurry(connection)
    async with rival.transaction():
        (held,) = await claim(rival, worker_id)
        assert held.lease.job_id == ordinary
        assert await claim_suspects(connection) == []
    assert await holders(connection, "stripe") == {1: ordinary}
    await finish(connection, held.lease, Succeeded())
    assert [run.lease.job_id for run in await claim_suspects(connection)] == [suspected]


# Slots of a tenant


async def limit_tenant(connection: Connection, **settings: Any) -> None:
    columns, values = ", ".join(settings), list(settings.values())
    places = ", ".join(f"${n}" for n in range(1, len(values) + 1))
    await connection.fetch(
        f"INSERT INTO sexton.tenants (name, updated_at, {columns}) VALUES ('acme', now(), {places})", *values
    )


async def test_a_run_that_its_tenant_holds_back_stays_ready(connection: Conn, rival: Conn) -> None:
    """It has no key: parked, it would wait for ever."""
    worker_id = await enlist(connection)
    await limit_tenant(connection, running_max=1)
    first, second = await ready(connection, 2, tenant="acme")
    async with rival.transaction():
        await claim(rival, worker_id, limit=1)
        late = await blocked_task(rival, connection, claim(connection, worker_id, limit=1))
    assert await late == []
    assert await holders(connection, "@tenant:acme") == {1: first}
    assert await states(connection, [second]) == ["ready"]


async def test_a_claim_skips_slots_of_the_tenant_that_another_is_taking(connection: Conn, rival: Conn) -> None:
    """If the slots exist already, no claim waits."""
    worker_id = await enlist(connection)
    await limit_tenant(connection, running_max=2)
    first, second, third = await ready(connection, 3, tenant="acme")
    await connection.fetch("INSERT INTO sexton.slots (key, n) VALUES ('@tenant:acme', 1), ('@tenant:acme', 2)")
    await hurry(connection)
    async with rival.transaction():
        await claim(rival, worker_id, limit=1)
        assert [run.lease.job_id for run in await claim(connection, worker_id)] == [second]
    assert await holders(connection, "@tenant:acme") == {1: first, 2: second}
    assert await states(connection, [third]) == ["ready"]


async def test_a_slot_of_the_tenant_that_is_being_released_is_free_only_after_the_commit(connection: Conn, rival: Conn) -> None:
    worker_id = await enlist(connection)
    await limit_tenant(connection, running_max=1)
    first, second = await ready(connection, 2, tenant="acme")
    (held,) = await claim(connection, worker_id, limit=1)
    await hurry(connection)
    async with rival.transaction():
        await finish(rival, held.lease, Succeeded())
        assert await claim(connection, worker_id) == []
        assert await holders(connection, "@tenant:acme") == {1: first}
    assert [run.lease.job_id for run in await claim(connection, worker_id)] == [second]


async def test_a_tenant_whose_limit_is_being_lowered_holds_no_claim_up(connection: Conn, rival: Conn) -> None:
    """Until the commit the old number counts; from then on no run starts above the new one."""
    worker_id = await enlist(connection)
    await limit_tenant(connection, running_max=3)
    first, second, third = await ready(connection, 3, tenant="acme")
    await hurry(connection)
    async with rival.transaction():
        await tenants.put(rival, "acme", TenantSettings(running_max=1), now=NOW)
        assert [run.lease.job_id for run in await claim(connection, worker_id, limit=2)] == [first, second]
    assert await claim(connection, worker_id) == []
    assert await holders(connection, "@tenant:acme") == {1: first, 2: second}
    assert await states(connection, [third]) == ["ready"]


async def test_the_limit_of_a_tenant_is_lowered_beside_an_open_claim(connection: Conn, rival: Conn) -> None:
    """The claim keeps what it took; both of its runs must end before another starts."""
    worker_id = await enlist(connection)
    await limit_tenant(connection, running_max=2)
    _, _, third = await ready(connection, 3, tenant="acme")
    await hurry(connection)
    async with rival.transaction():
        held = await claim(rival, worker_id, limit=2)
        await tenants.put(connection, "acme", TenantSettings(running_max=1), now=NOW)
    for one, room in zip(held, (0, 1), strict=True):
        await finish(connection, one.lease, Succeeded())
        assert len(await claim(connection, worker_id)) == room
    assert list((await holders(connection, "@tenant:acme")).values()) == [third]


# Buckets


async def test_two_claims_draw_from_one_bucket_one_after_the_other(connection: Conn, rival: Conn) -> None:
    """The second waits for a moment, and then leaves its runs parked; after the commit it counts the remaining tokens."""
    worker_id = await enlist(connection)
    ids = await ready(connection, 5, limit={"key": "mail", "count": 3, "per": "1h", "burst": 3})
    async with rival.transaction():
        assert len(await claim(rival, worker_id, limit=2)) == 2
        assert await claim(connection, worker_id, limit=2) == []
    await connection.fetch("UPDATE sexton.runs SET state = 'ready' WHERE state = 'parked'")
    assert [run.lease.job_id for run in await claim(connection, worker_id)] == ids[2:3]


async def test_two_claims_of_a_paced_queue_come_one_after_the_other(connection: Conn, rival: Conn) -> None:
    worker_id = await enlist(connection)
    await connection.fetch(
        "INSERT INTO sexton.queues (name, updated_at, release_rate, release_burst) VALUES ('default', now(), 0.001, 3)"
    )
    await ready(connection, 5)
    async with rival.transaction():
        assert len(await claim(rival, worker_id, limit=2)) == 2
        assert await claim(connection, worker_id, limit=2) == []
    assert len(await claim(connection, worker_id)) == 1


async def test_two_passes_over_a_rate_release_its_burst_once(connection: Conn, rival: Conn) -> None:
    """The end of a run releases the next while a promoter does the same."""
    for _ in range(6):
        await submit(connection, limit={"key": "mail", "count": 2, "per": "1h", "burst": 2})
    again = "SELECT released FROM sexton.release_parked(ARRAY['mail'], $1)"
    async with rival.transaction():
        assert await rival.fetchval(again, NOW) == 2
        assert await connection.fetchval(again, NOW) == 0
    assert await connection.fetchval(again, NOW) == 0
    assert await connection.fetchval("SELECT count(*) FROM sexton.runs WHERE state = 'ready'") == 2


async def test_a_claim_and_a_pass_over_a_rate_draw_its_burst_once(connection: Conn, rival: Conn) -> None:
    """The pass leaves the bucket that a claim holds for its next look."""
    worker_id = await enlist(connection)
    limit = {"key": "mail", "count": 2, "per": "1h", "burst": 2}
    await ready(connection, 2, limit=limit)
    waiting = [await submit(connection, limit=limit, now=after(seconds=1)) for _ in range(3)]
    await hurry(connection)
    async with rival.transaction():
        assert len(await claim(rival, worker_id, limit=1)) == 1
        seen = await parked_runs.release(connection, now=NOW)
        assert (seen.released_count, seen.next_s) == (0, 0.1)
    assert (await parked_runs.release(connection, now=NOW)).released_count == 0, "one is ready, and one token is left"
    assert len(await claim(connection, worker_id)) == 1
    await connection.fetch("UPDATE sexton.runs SET state = 'ready' WHERE state = 'parked'")
    assert await claim(connection, worker_id) == []
    assert await states(connection, waiting) == ["parked"] * 3


async def test_a_claim_does_not_wait_for_an_open_pass_over_its_rate(connection: Conn, rival: Conn) -> None:
    worker_id = await enlist(connection)
    await ready(connection, 3, limit={"key": "mail", "count": 2, "per": "1h", "burst": 2})
    (other,) = await ready(connection, 1)
    await hurry(connection)
    async with rival.transaction():
        await rival.fetchval("SELECT released FROM sexton.release_parked(ARRAY['mail'], $1)", NOW)
        await rival.fetchval("SELECT sexton.lock_limits(ARRAY['mail'])")
        assert [run.lease.job_id for run in await claim(connection, worker_id)] == [other]
    await connection.fetch("UPDATE sexton.runs SET state = 'ready' WHERE state = 'parked'")
    assert len(await claim(connection, worker_id)) == 2, "the burst"


async def pace(connection: Connection) -> None:
    """Three runs at once, and then none in the time of the test."""
    await connection.fetch(
        "INSERT INTO sexton.queues (name, updated_at, release_rate, release_burst) VALUES ('default', now(), 0.001, 3)"
    )


async def test_a_look_at_paced_queues_and_an_open_claim_do_not_wait_for_each_other(connection: Conn, rival: Conn) -> None:
    """The look names the queue by its last committed bucket, and the claim that follows counts again."""
    worker_id = await enlist(connection)
    await pace(connection)
    await ready(connection, 6)
    await hurry(connection)
    async with rival.transaction():
        assert len(await claim(rival, worker_id, limit=3)) == 3
        assert (await parked_runs.tend(connection, now=NOW)).queues == ["default"]
        assert await claim(connection, worker_id) == []
    assert (await parked_runs.tend(connection, now=NOW)).queues == []
    assert await claim(connection, worker_id) == []
    await connection.fetch("UPDATE sexton.queues SET bucket_at = 'epoch'")
    async with rival.transaction():
        assert (await parked_runs.tend(rival, now=NOW)).queues == ["default"]
        assert len(await claim(connection, worker_id)) == 3


async def test_a_claim_and_a_claim_of_suspects_draw_from_one_paced_queue(connection: Conn, rival: Conn) -> None:
    worker_id = await enlist(connection)
    await pace(connection)
    for _ in range(2):
        await suspect(connection)
    await ready(connection, 4)
    await hurry(connection)
    async with rival.transaction():
        assert len(await claim(rival, worker_id, limit=2)) == 2
        assert await claim_suspects(connection) == []
    async with rival.transaction():
        assert len(await claim_suspects(rival)) == 1
        assert await claim(connection, worker_id) == []
    assert await claim(connection, worker_id) == []
    assert await claim_suspects(connection) == []


async def test_a_submission_beside_an_open_one_of_its_tenant_uses_the_last_committed_numbers(
    connection: Conn, rival: Conn
) -> None:
    """It waits for 50 ms and no longer: an open transaction of a caller stops no other caller."""
    await limit_tenant(connection, waiting_max=2, submit_rate=0.001, submit_burst=2)
    async with rival.transaction():
        mine = await submit(rival, tenant="acme")
        other = await submit(connection, tenant="acme")
        assert await connection.fetchval("SELECT waiting_count FROM sexton.tenants") == 0
    assert await states(connection, [mine, other]) == ["ready", "ready"]
    assert await connection.fetchval("SELECT waiting_count FROM sexton.tenants") == 1


# Keys


async def test_two_submissions_that_create_one_limit_create_it_once(connection: Conn, rival: Conn) -> None:
    """The first to commit sets the numbers."""
    async with rival.transaction():
        await submit(rival, limit={"key": "stripe", "running": 1})
        late = await blocked_task(rival, connection, submit(connection, limit={"key": "stripe", "running": 9}))
    job_id = await late
    assert await states(connection, [job_id]) == ["parked"]
    assert await connection.fetchval("SELECT running FROM sexton.limits") == 1


async def test_a_job_that_names_a_limit_while_it_is_removed_still_runs(connection: Conn, rival: Conn) -> None:
    """Rule "look again every pass": a limit that no longer exists holds no run back."""
    worker_id = await enlist(connection)
    await limits.put(connection, TESTER, standing_limit("stripe", running=1), now=NOW)
    await hurry(connection)
    async with rival.transaction():
        assert await limits.remove(rival, TESTER, "stripe")
        job_id = await submit(connection, limit="stripe")
    await parked_runs.release(connection, now=NOW)
    assert [run.lease.job_id for run in await claim(connection, worker_id)] == [job_id]


async def test_a_limit_is_removed_beside_an_open_submission_that_names_it(connection: Conn, rival: Conn) -> None:
    """Rule "look again every pass": the removal does not see the job, and the job still runs."""
    worker_id = await enlist(connection)
    await limits.put(connection, TESTER, standing_limit("stripe", running=1), now=NOW)
    await hurry(connection)
    async with rival.transaction():
        job_id = await submit(rival, limit="stripe")
        async with connection.transaction():
            assert await limits.remove(connection, TESTER, "stripe")
    await parked_runs.release(connection, now=NOW)
    assert [run.lease.job_id for run in await claim(connection, worker_id)] == [job_id]


async def test_an_ordered_key_has_one_first_in_line_for_two_passes(connection: Conn, rival: Conn) -> None:
    first, second = [await submit(connection, limit=IN_ORDER, now=after(seconds=n)) for n in range(2)]
    again = "SELECT released FROM sexton.release_parked(ARRAY['acme'], $1)"
    async with rival.transaction():
        assert await rival.fetchval(again, after(seconds=2)) == 1
        assert await connection.fetchval(again, after(seconds=2)) == 0
    assert await connection.fetchval(again, after(seconds=2)) == 0
    assert await states(connection, [first, second]) == ["ready", "parked"]
    assert await holders(connection, "acme") == {1: first}


async def test_no_run_overtakes_the_first_in_line_while_a_transaction_holds_it(connection: Conn, rival: Conn) -> None:
    """Rule "never wait inside a batch": the key is left for the next pass."""
    first, second = [await submit(connection, limit=IN_ORDER, now=after(seconds=n)) for n in range(2)]
    await hurry(connection)
    async with rival.transaction():
        await rival.execute("SELECT FROM sexton.runs WHERE job_id = $1 FOR UPDATE", first)
        assert (await parked_runs.release(connection, now=after(seconds=2))).released_count == 0
    assert (await parked_runs.release(connection, now=after(seconds=2))).released_count == 1
    assert await states(connection, [first, second]) == ["ready", "parked"]


async def test_the_first_in_line_that_is_being_paused_keeps_its_slot_until_the_commit(connection: Conn, rival: Conn) -> None:
    first, second = [await submit(connection, limit=IN_ORDER, now=after(seconds=n)) for n in range(2)]
    await parked_runs.release(connection, now=after(seconds=2))
    await hurry(connection)
    async with rival.transaction():
        await one_time_jobs.pause(rival, Caller("test"), first, note=None, now=NOW)
        assert (await parked_runs.release(connection, now=after(seconds=2))).released_count == 0
    assert (await parked_runs.release(connection, now=after(seconds=2))).released_count == 1
    assert await states(connection, [first, second]) == ["paused", "ready"]


# Jobs


async def test_a_recall_skips_a_locked_job(connection: Conn, rival: Conn) -> None:
    """The open transaction of one caller keeps no other schedule from being caught up."""
    documents = [{"task": "a", "name": name, "schedule": {"cron": "*/15 * * * *"}} for name in ("held", "free")]
    async with connection.transaction():
        held, free = await recurring_jobs.submit(connection, TESTER, documents, now=NOW)
    await hurry(connection)
    late = "SELECT sexton.recall($1::smallint[], 100, $2)"
    async with rival.transaction():
        await rival.fetch("SELECT FROM sexton.jobs_recurring WHERE id = $1 FOR UPDATE", held.id)
        assert await connection.fetchval(late, list(range(64)), after(hours=1)) == 1
        rows = await connection.fetch("SELECT DISTINCT job_id FROM sexton.runs")
        assert [row["job_id"] for row in rows] == [held.id]
    assert await connection.fetchval(late, list(range(64)), after(hours=1)) == 1
    assert free.created
