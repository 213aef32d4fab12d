"""Suspects: how a loss changes a run, which workers may claim it then, and in groups of which size. Rule "suspects apart"."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from sexton.domain.job import submission
from sexton.domain.limit import Limit
from sexton.domain.outcome import Lost, Outcome, Released, Snoozed, Succeeded, TimedOut
from sexton.domain.run import Claimed
from sexton.operations import one_time_jobs
from sexton.operations.cancel import cancel as cancel_job
from sexton.store.fleet import workers
from sexton.store.work import runs
from tests.callers import TESTER
from tests.store.support import (
    FLAKY,
    GRACE_S,
    NOW,
    after,
    blocked_task,
    claim,
    claim_suspects,
    enlist,
    finish,
    run_row,
    status,
    submit,
    submit_many,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from tests.store.support import Conn


async def _quarantined(connection: Conn, companies: Sequence[int], **options: Any) -> list[UUID]:
    """Suspects with these group sizes; the first is due first. Their jobs' ids."""
    ids = await submit_many(connection, [submission("a", {}, **options)] * len(companies))
    await connection.execute("ALTER TABLE sexton.runs DISABLE TRIGGER test_only_watch")
    for nth, (job_id, company) in enumerate(zip(ids, companies, strict=True)):
        await connection.execute(
            "UPDATE sexton.runs SET state = 'quarantined', company = $2, token = 2, due_at = $3 WHERE job_id = $1",
            job_id,
            company,
            after(seconds=nth - 1000),
        )
    await connection.execute("ALTER TABLE sexton.runs ENABLE TRIGGER test_only_watch")
    return ids


async def _enlist(connection: Conn, **more: Any) -> UUID:
    return await enlist(connection, quarantine=True, **more)


async def _count(connection: Conn, *, queues: Sequence[str] = ("default",), tasks: Sequence[str] = ("a",)) -> int:
    return await runs.count_suspects(connection, queues=queues, tasks=tasks, now=NOW)


def _jobs(claimed: list[Claimed]) -> list[UUID]:
    return [one.lease.job_id for one in claimed]


async def _state_of(connection: Conn, job_id: UUID) -> tuple[str, int | None, int]:
    row = await run_row(connection, job_id)
    assert row is not None
    return row["state"], row["company"], row["lost_count"]


class TestWhatALossDoes:
    async def test_the_first_loss_is_only_remembered(self, connection: Conn) -> None:
        """C18: most workers end by a deploy or a reboot."""
        worker_id, job_id = await enlist(connection), await submit(connection)
        (one,) = await claim(connection, worker_id)
        await finish(connection, one.lease, Lost("dead", held=40))
        assert await _state_of(connection, job_id) == ("ready", 0, 0)
        (again,) = await claim(connection, worker_id)
        assert again.lease.token == 2

    @pytest.mark.parametrize(("held", "company"), [(2, 1), (3, 2), (40, 20), (41, 21)])
    async def test_the_second_loss_in_a_row_puts_it_into_quarantine(self, connection: Conn, held: int, company: int) -> None:
        """C18: in a group of half of what its worker held, and without a charge."""
        worker_id, job_id = await enlist(connection), await submit(connection)
        for count in (40, held):
            (one,) = await claim(connection, worker_id)
            await finish(connection, one.lease, Lost("dead", held=count))
        assert await _state_of(connection, job_id) == ("quarantined", company, 0)
        assert await claim(connection, worker_id) == []
        assert await status(connection, job_id) == "pending"

    async def test_each_further_loss_halves_the_group_until_it_is_alone_and_then_charged(self, connection: Conn) -> None:
        """C18: the bound of deaths. Forty suspects, one of them poison: it takes down 4 groups and then 3 workers alone."""
        (job_id,) = await _quarantined(connection, [20])
        seen = []
        while (row := await run_row(connection, job_id)) is not None:
            (one,) = await claim_suspects(connection, await _enlist(connection))
            await finish(connection, one.lease, Lost("dead", held=row["company"]))
            after_it = await run_row(connection, job_id)
            seen.append(None if after_it is None else (after_it["company"], after_it["lost_count"]))
        assert seen == [(10, 0), (5, 0), (3, 0), (2, 0), (1, 0), (1, 1), (1, 2), None]
        (letter,) = await connection.fetch("SELECT reason, lost_count FROM sexton.dead_letters")
        assert letter["reason"] == "it took down 3 workers; the limit is 3: dead"
        assert letter["lost_count"] == 3

    async def test_two_losses_alone_lead_to_quarantine_too(self, connection: Conn) -> None:
        """C18: no run takes down more than two ordinary workers."""
        worker_id, job_id = await enlist(connection), await submit(connection)
        for expected in (("ready", 0, 1), ("quarantined", 1, 2)):
            (one,) = await claim(connection, worker_id)
            await finish(connection, one.lease, Lost("dead"))
            assert await _state_of(connection, job_id) == expected

    async def test_a_loss_in_a_larger_group_does_not_enlarge_its_own(self, connection: Conn) -> None:
        """C18: a worker over HTTP may have held others by mistake."""
        (job_id,) = await _quarantined(connection, [3])
        (one,) = await claim_suspects(connection, await _enlist(connection))
        await finish(connection, one.lease, Lost("dead", held=90))
        assert await _state_of(connection, job_id) == ("quarantined", 3, 0)

    @pytest.mark.parametrize(("outcome", "state"), [(FLAKY, "waiting"), (TimedOut("late"), "waiting")])
    @pytest.mark.parametrize("company", [0, 3])
    async def test_any_report_of_its_own_clears_it(self, connection: Conn, outcome: Outcome, state: str, company: int) -> None:
        """C18: it survived, so it took down no worker."""
        (job_id,) = await _quarantined(connection, [3])
        (one,) = await claim_suspects(connection, await _enlist(connection))
        if company == 0:
            await connection.execute("ALTER TABLE sexton.runs DISABLE TRIGGER test_only_watch")
            await connection.execute("UPDATE sexton.runs SET company = 0")
        await finish(connection, one.lease, outcome)
        assert await _state_of(connection, job_id) == (state, None, 0)

    async def test_a_snooze_does_not_clear_it(self, connection: Conn) -> None:
        """C18: it costs no budget, so a run that snoozes now and then would take down ordinary workers without a bound."""
        worker_id, job_id = await enlist(connection), await submit(connection)
        ordinary_count = 0
        for _ in range(10):
            for one in await claim(connection, worker_id):
                ordinary_count += 1
                await finish(connection, one.lease, Lost("dead", held=40))
                if ordinary_count == 1:
                    (again,) = await claim(connection, worker_id)
                    await finish(connection, again.lease, Snoozed(0.0))
            for one in await claim_suspects(connection, await _enlist(connection)):
                await finish(connection, one.lease, Snoozed(0.0))
        assert ordinary_count == 2
        assert await _state_of(connection, job_id) == ("quarantined", 20, 0)
        (suspect,) = await claim_suspects(connection, await _enlist(connection))
        await finish(connection, suspect.lease, Snoozed(60.0))
        assert await claim_suspects(connection, await _enlist(connection)) == [], "it waits for its time"

    async def test_a_run_that_is_handed_back_stays_a_suspect(self, connection: Conn) -> None:
        """C18: a drain proves nothing, for a suspect in quarantine or for a run that was lost once."""
        (suspect,) = await _quarantined(connection, [3])
        (one,) = await claim_suspects(connection, await _enlist(connection))
        await finish(connection, one.lease, Released("drained"))
        assert await _state_of(connection, suspect) == ("quarantined", 3, 0)
        worker_id, lost_once = await enlist(connection), await submit(connection)
        for outcome in (Lost("dead", held=9), Released("drained")):
            (one,) = await claim(connection, worker_id)
            await finish(connection, one.lease, outcome)
        assert await _state_of(connection, lost_once) == ("ready", 0, 0)

    async def test_a_report_of_the_last_release_charges_as_before(self, connection: Conn) -> None:
        """D7: its sweeper does not pass the number of held runs."""
        worker_id, job_id = await enlist(connection), await submit(connection)
        for count in (1, 2):
            (one,) = await claim(connection, worker_id)
            report = {"run_id": one.run_id, "worker_id": worker_id, "token": count, "next": "again", "status": "lost"}
            document = json.dumps([report | {"spends": "loss", "delay_s": 0}], default=str)
            await connection.fetch("SELECT * FROM sexton.finish_runs($1::jsonb, $2)", document, NOW)
            assert await _state_of(connection, job_id) == ("ready", None, count)

    async def test_at_most_once_ends_and_shows_how_many_were_held(self, connection: Conn) -> None:
        """A7: its only start was lost, alone or in a group."""
        worker_id, job_id = await enlist(connection), await submit(connection, delivery="at_most_once")
        (one,) = await claim(connection, worker_id)
        await finish(connection, one.lease, Lost("its worker stopped together with 39 other runs", held=40))
        assert await status(connection, job_id) == "failed"
        (letter,) = await connection.fetch("SELECT reason FROM sexton.dead_letters")
        assert letter["reason"].endswith("its worker stopped together with 39 other runs")

    async def test_a_requested_cancel_ends_it(self, connection: Conn) -> None:
        """A5: running or waiting in quarantine."""
        running, waiting = await _quarantined(connection, [1, 1])
        (one,) = await claim_suspects(connection, await _enlist(connection))
        for job_id in (running, waiting):
            async with connection.transaction():
                await cancel_job(connection, TESTER, job_id, now=NOW)
        await finish(connection, one.lease, Lost("dead"))
        assert [await status(connection, job_id) for job_id in (running, waiting)] == ["cancelled", "cancelled"]


class TestTheClaim:
    async def test_an_ordinary_worker_gets_no_suspect_and_one_in_quarantine_gets_nothing_else(self, connection: Conn) -> None:
        """C18."""
        ordinary, confined = await enlist(connection), await _enlist(connection)
        (suspect,) = await _quarantined(connection, [5])
        innocent = await submit(connection)
        assert _jobs(await claim(connection, confined)) == []
        assert _jobs(await claim_suspects(connection, confined)) == [suspect]
        assert _jobs(await claim(connection, ordinary)) == [innocent]

    @pytest.mark.parametrize(
        ("companies", "groups"),
        [
            ([3, 3, 3, 3], [3, 1]),
            ([4, 2, 4, 4], [3, 1]),
            ([2, 1, 2], [2, 1]),
            ([1, 9, 9], [2, 1]),
            ([9, 9, 2], [2, 1]),
        ],
    )
    async def test_the_smallest_allowed_group_bounds_the_claim(
        self, connection: Conn, companies: list[int], groups: list[int]
    ) -> None:
        """C18: the least suspected first, then in the order of their due time; one that does not fit waits for the next group.
        Otherwise every worker in quarantine would begin with the run that takes it down, and harmless runs would wait for its
        end."""
        ids = await _quarantined(connection, companies)
        taken = []
        while group := await claim_suspects(connection, await _enlist(connection)):
            taken.append(_jobs(group))
            assert len(group) <= min(companies[ids.index(one)] for one in _jobs(group))
        assert [len(group) for group in taken] == groups
        assert [one for group in taken for one in group] == sorted(ids, key=lambda one: -companies[ids.index(one)])

    async def test_runs_that_it_already_holds_count(self, connection: Conn) -> None:
        """C18: a second claim adds only as many as the group sizes of all allow."""
        ids = await _quarantined(connection, [3, 3, 3, 3, 2])
        worker_id = await _enlist(connection)
        first = await claim_suspects(connection, worker_id, 2)
        assert _jobs(first) == ids[:2]
        assert _jobs(await claim_suspects(connection, worker_id)) == ids[2:3]
        assert await claim_suspects(connection, worker_id) == []
        await finish(connection, first[0].lease, Succeeded())
        assert _jobs(await claim_suspects(connection, worker_id)) == ids[3:4]
        await finish(connection, first[1].lease, Succeeded())
        assert await claim_suspects(connection, worker_id) == [], "the last may be one of two"

    async def test_two_claims_of_one_worker_see_each_other(self, connection: Conn, rival: Conn) -> None:
        """C18, rule "lock, then decide": they do not take two groups."""
        await _quarantined(connection, [2, 2, 2, 2])
        worker_id = await _enlist(connection)
        async with connection.transaction():
            assert len(await claim_suspects(connection, worker_id)) == 2
            other = await blocked_task(connection, rival, claim_suspects(rival, worker_id))
        assert await other == []

    async def test_a_worker_with_ordinary_runs_gets_none(self, connection: Conn) -> None:
        """C18: a worker over HTTP may ask for both."""
        worker_id = await enlist(connection)
        await submit(connection)
        await claim(connection, worker_id)
        await _quarantined(connection, [5])
        assert await claim_suspects(connection, worker_id) == []

    async def test_dead_workers_get_none(self, connection: Conn) -> None:
        """C4."""
        await _quarantined(connection, [5])
        worker_id = await _enlist(connection)
        await workers.declare_lost(connection, {worker_id: 0}, now=NOW)
        assert await claim_suspects(connection, worker_id) == []

    async def test_a_claim_contains_everything_that_an_ordinary_one_does(self, connection: Conn) -> None:
        """C18: it is the same run, with its payload, its key and its budgets."""
        worker_id = await enlist(connection)
        await submit(connection, payload={"n": 1}, name="n", key="k", timeout=60, deadline=3600)
        for _ in range(2):
            (plain,) = await claim(connection, worker_id)
            await finish(connection, plain.lease, Lost("dead", held=2))
        (suspect,) = await claim_suspects(connection, await _enlist(connection))
        assert (suspect.payload_json, suspect.name, suspect.idempotency_key, suspect.timeout_s) == ('{"n": 1}', "n", "k", 60.0)
        assert (suspect.lease.attempt, suspect.lease.lost_count, suspect.lease.token) == (1, 0, 3)
        row = await run_row(connection, suspect.lease.job_id)
        assert row is not None
        assert row["must_end_at"] == after(seconds=60 + GRACE_S)

    async def test_queues_and_tasks_are_those_of_the_worker(self, connection: Conn) -> None:
        """C18, rule "claim only known tasks"."""
        await _quarantined(connection, [5], queue="mail")
        worker_id = await _enlist(connection)
        assert await claim_suspects(connection, worker_id) == []
        assert await claim_suspects(connection, worker_id, queues=["mail"], tasks=["b"]) == []
        assert (await _count(connection), await _count(connection, queues=["mail", "default"])) == (0, 1)
        assert await _count(connection, queues=["mail"], tasks=["b"]) == 0
        assert len(await claim_suspects(connection, worker_id, queues=["default", "mail"])) == 1
        assert await _count(connection, queues=["mail"]) == 0

    async def test_a_paused_suspect_is_not_claimed(self, connection: Conn) -> None:
        """C18: paused by its queue, its tenant, or itself; after the pause it is in quarantine again."""
        (job_id,) = await _quarantined(connection, [5], tenant="acme")
        worker_id = await _enlist(connection)

        async def reachable() -> tuple[int, int]:
            count = await _count(connection)
            async with connection.transaction():
                taken = await claim_suspects(connection, worker_id)
                for one in taken:
                    await finish(connection, one.lease, Released("tried"))
            return count, len(taken)

        await connection.execute("INSERT INTO sexton.queues (name, paused_at, updated_at) VALUES ('default', $1, $1)", NOW)
        assert await reachable() == (0, 0)
        await connection.execute("DELETE FROM sexton.queues")
        await connection.execute("INSERT INTO sexton.tenants (name, paused_at, updated_at) VALUES ('acme', $1, $1)", NOW)
        assert await reachable() == (0, 0)
        await connection.execute("DELETE FROM sexton.tenants")
        async with connection.transaction():
            await one_time_jobs.pause(connection, TESTER, job_id, now=NOW)
        assert await reachable() == (0, 0)
        async with connection.transaction():
            await one_time_jobs.resume(connection, TESTER, job_id, now=NOW)
        assert await reachable() == (1, 1)

    async def test_its_limit_applies_and_others_overtake_it(self, connection: Conn) -> None:
        """C18, rule "slots, not counts": it stays in quarantine, and is claimed when a slot is free."""
        limited = await _quarantined(connection, [9, 9], limit=Limit(key="k", running=1))
        (free,) = await _quarantined(connection, [9])
        await connection.execute("ALTER TABLE sexton.runs DISABLE TRIGGER test_only_watch")
        await connection.execute("UPDATE sexton.runs SET due_at = $2 WHERE job_id = $1", free, after(seconds=-1))
        await connection.execute("ALTER TABLE sexton.runs ENABLE TRIGGER test_only_watch")
        worker_id = await _enlist(connection)
        taken = await claim_suspects(connection, worker_id)
        assert sorted(_jobs(taken)) == sorted([limited[0], free])
        assert (await _state_of(connection, limited[1]))[0] == "quarantined"
        assert await claim_suspects(connection, worker_id) == []
        await finish(connection, next(one.lease for one in taken if one.lease.job_id == limited[0]), Succeeded())
        assert _jobs(await claim_suspects(connection, worker_id)) == [limited[1]]

    async def test_the_limit_of_its_tenant_applies(self, connection: Conn) -> None:
        """C18, rule "slots, not counts"."""
        await connection.execute("INSERT INTO sexton.tenants (name, running_max, updated_at) VALUES ('acme', 2, $1)", NOW)
        await _quarantined(connection, [9] * 3, tenant="acme")
        taken = await claim_suspects(connection, await _enlist(connection))
        assert len(taken) == 2
        await finish(connection, taken[0].lease, Succeeded())
        assert len(await claim_suspects(connection, await _enlist(connection))) == 1

    async def test_the_release_rate_of_its_queue_applies(self, connection: Conn) -> None:
        """C18."""
        await connection.execute(
            "INSERT INTO sexton.queues (name, release_rate, release_burst, updated_at) VALUES ('default', 1, 2, $1)", NOW
        )
        await _quarantined(connection, [9] * 3)
        worker_id = await _enlist(connection)
        assert len(await claim_suspects(connection, worker_id)) == 2
        assert await claim_suspects(connection, worker_id) == []


class TestTheFleet:
    async def test_a_declaration_counts_the_held_runs(self, connection: Conn) -> None:
        """C18: the runs are ended in batches, so their number must be known before."""
        worker_id = await enlist(connection)
        await submit_many(connection, [submission("a", {})] * 3)
        await claim(connection, worker_id)
        await workers.declare_lost(connection, {worker_id: 0}, now=NOW)
        for left in (3, 2, 1):
            found = await runs.abandoned(connection, lease_s=6, limit=1, now=NOW)
            assert [one.held_count for one in found] == [3], f"{left} are left"
            await finish(connection, found[0].lease, Lost("dead", held=3))

    async def test_runs_claimed_since_count_too(self, connection: Conn) -> None:
        """C18: the last release does not count, and a claim may commit after the count."""
        worker_id = await enlist(connection)
        await submit_many(connection, [submission("a", {})] * 2)
        await claim(connection, worker_id)
        await connection.execute("UPDATE sexton.workers SET lost_at = $1, held_at_loss = NULL", NOW)
        assert [one.held_count for one in await runs.abandoned(connection, lease_s=6, limit=9, now=NOW)] == [2, 2]

    async def test_a_claim_of_suspects_in_flight_is_counted(self, connection: Conn, rival: Conn) -> None:
        """C18: the declaration leaves the worker for its next pass, which counts all held runs."""
        await _quarantined(connection, [2, 2])
        worker_id = await _enlist(connection)
        async with connection.transaction():
            await claim_suspects(connection, worker_id)
            assert await workers.declare_lost(rival, {worker_id: 0}, now=NOW) == []
        assert await workers.declare_lost(rival, {worker_id: 0}, now=NOW) == [worker_id]
        assert [one.held_count for one in await runs.abandoned(connection, lease_s=6, limit=9, now=NOW)] == [2, 2]

    @pytest.mark.parametrize(("parent_beat_s", "with_parent"), [(-9, True), (-7, True), (-2, False), (0, False)])
    async def test_a_child_that_was_lost_with_its_parent_is_a_separate_case(
        self, connection: Conn, parent_beat_s: float, with_parent: bool
    ) -> None:
        """C18: the parent may have taken it down, so the loss proves nothing against its run."""
        parent = await enlist(connection, now=after(seconds=parent_beat_s))
        child = await _enlist(connection, parent_id=parent, now=after(seconds=-8))
        await _quarantined(connection, [1])
        await claim_suspects(connection, child)
        await workers.declare_lost(connection, {child: 0}, now=NOW)
        (one,) = await runs.abandoned(connection, lease_s=6, limit=9, now=NOW)
        assert (one.held_count, one.with_parent) == (1, with_parent)

    async def test_a_parent_that_saw_its_child_end_reports_it_at_once(self, connection: Conn) -> None:
        """C18: without waiting for a lease, and the reason says what happened."""
        child = await _enlist(connection, parent_id=await enlist(connection))
        await _quarantined(connection, [1])
        await claim_suspects(connection, child)
        assert await workers.declare_ended(connection, child, reason="its process was killed by signal 11", now=NOW)
        assert not await workers.declare_ended(connection, child, reason="again", now=NOW)
        (one,) = await runs.abandoned(connection, lease_s=6, limit=9, now=NOW)
        assert (one.held_count, one.with_parent, one.lost_reason) == (1, False, "its process was killed by signal 11")

    async def test_a_heartbeat_shows_waiting_suspects(self, connection: Conn) -> None:
        """C18: in the same statement, also of a busy worker, and only suspects that the worker could execute."""
        worker_id, other = await enlist(connection), await enlist(connection, tasks=["b"])

        async def told(of: UUID) -> bool:
            beaten = await workers.beat(connection, of, running_count=1, draining=False, refused_count=0, now=NOW)
            assert beaten is not None
            return beaten.suspects_wait

        assert not await told(worker_id)
        await _quarantined(connection, [4])
        assert await told(worker_id)
        assert not await told(other)
        await claim_suspects(connection, await _enlist(connection))
        assert not await told(worker_id)
