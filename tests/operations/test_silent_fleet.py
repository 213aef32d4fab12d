"""With every process killed, no process declares another dead. The views judge by the last heartbeat and the database's
clock."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest

from sexton.api.answers import views
from sexton.domain.partition import ALL
from sexton.operations.explain import explain
from sexton.store.fleet import workers
from sexton.store.views import diagnosis, overview
from tests.callers import TESTER
from tests.store.support import NOW, after, claim, submit

if TYPE_CHECKING:
    from tests.store.support import Conn

LEASE_S = 4.5


async def fleet(connection: Conn, **options: Any) -> UUID:
    """One scheduler, and one worker with 100 slots and one process slot. Both send one heartbeat at NOW."""
    worker_id = uuid4()
    given = {"queues": ["default"], "tasks": ["a", "heavy"], "concurrency": 101, "lease_s": LEASE_S, **options}
    await workers.enlist(connection, worker_id, name="w1", process_tasks=["heavy"], process_slots=1, now=NOW, **given)
    await workers.node_beat(connection, uuid4(), name="n1", partitions=list(ALL), now=NOW)
    return worker_id


async def links(connection: Conn, job_id: UUID, now: datetime) -> dict[str, str]:
    return {link.check: link.detail for link in (await explain(connection, TESTER, job_id, now=now)).chain}


async def shown(connection: Conn, now: datetime) -> list[tuple[str, float]]:
    rows = await workers.workers(connection, now=now)
    return [(views.worker(row, 0.0).status, (now - row.beat_at).total_seconds()) for row in rows]


async def test_a_silent_worker_is_not_alive_and_its_slots_are_not_free(connection: Conn) -> None:
    """E7, B9."""
    await fleet(connection)
    job_id = await submit(connection, task="a")
    answer = (await links(connection, job_id, after(seconds=4)))["worker"]
    assert answer == "1 live worker of the queue 'default' may run it, 100 free slots."
    answer = (await links(connection, job_id, after(seconds=5)))["worker"]
    assert answer == "No worker is alive; 1 worker is silent, the last heartbeat was 2026-03-04 12:00:00Z."

    assert await shown(connection, after(seconds=4)) == [("live", 4.0)]
    assert await shown(connection, after(seconds=5)) == [("silent", 5.0)]
    found = await overview.stats(connection, now=after(seconds=4))
    assert (found.worker_count, found.silent_worker_count, found.slot_count, found.process_slot_count) == (1, 0, 100, 1)
    found = await overview.stats(connection, now=after(seconds=5))
    assert (found.worker_count, found.silent_worker_count, found.slot_count, found.process_slot_count) == (0, 1, 0, 0)
    for seconds, count in ((4, 1), (5, 0)):
        (queue,) = await overview.queues(connection, now=after(seconds=seconds))
        assert queue.worker_count == count
        assert [one.is_alive for one in (await diagnosis.schema(connection, now=after(seconds=seconds))).workers] == [
            count == 1
        ]
        assert bool(await overview.known_tasks(connection, now=after(seconds=seconds))) is (count == 1)


async def test_a_worker_is_judged_by_its_own_lease(connection: Conn) -> None:
    """A worker of a release that did not store its lease counts as alive for half a minute."""
    await fleet(connection, lease_s=60.0)
    assert await shown(connection, after(seconds=59)) == [("live", 59.0)]
    assert await shown(connection, after(seconds=61)) == [("silent", 61.0)]
    await connection.execute("UPDATE sexton.workers SET beat_within_s = NULL")
    assert await shown(connection, after(seconds=29)) == [("live", 29.0)]
    assert await shown(connection, after(seconds=31)) == [("silent", 31.0)]


@pytest.mark.parametrize("task", ["a", "heavy"])
async def test_slots_of_processes_are_counted_separately(connection: Conn, task: str) -> None:
    """A full worker has no free slot, though it has slots of the other kind."""
    worker_id = await fleet(connection)
    job_id = await submit(connection, task=task)
    full = {"a": (100, 0), "heavy": (1, 1)}[task]
    await workers.beat(
        connection, worker_id, running_count=full[0], process_running_count=full[1], draining=False, refused_count=0, now=NOW
    )
    kind = "free process slots" if task == "heavy" else "free slots"
    assert (await links(connection, job_id, NOW))["worker"] == f"1 live worker of the queue 'default' may run it, 0 {kind}."
    other = await submit(connection, task="heavy" if task == "a" else "a")
    left = "1 free process slot" if task == "a" else "100 free slots"
    assert (await links(connection, other, NOW))["worker"].endswith(f"{left}.")


async def test_slots_of_batch_tasks_are_counted_separately(connection: Conn) -> None:
    """C17: a full batch leaves the ordinary slots free, and the other way round."""
    worker_id = await fleet(connection, tasks=["a", "heavy", "send"], concurrency=601, batch_tasks=["send"], batch_slots=500)
    ordinary, batched = await submit(connection, task="a"), await submit(connection, task="send")
    await workers.beat(
        connection, worker_id, running_count=503, batch_running_count=500, draining=False, refused_count=0, now=NOW
    )
    assert (await links(connection, ordinary, NOW))["worker"].endswith(", 97 free slots.")
    assert (await links(connection, batched, NOW))["worker"].endswith(", 0 free batch slots.")
    await workers.beat(
        connection, worker_id, running_count=101, batch_running_count=1, draining=False, refused_count=0, now=NOW
    )
    assert (await links(connection, ordinary, NOW))["worker"].endswith(", 0 free slots.")
    assert (await links(connection, batched, NOW))["worker"].endswith(", 499 free batch slots.")
    found = await overview.stats(connection, now=NOW)
    assert (found.slot_count, found.process_slot_count, found.batch_slot_count) == (100, 1, 500)
    (shown_worker,) = await workers.workers(connection, now=NOW)
    assert (shown_worker.batch_slots, shown_worker.batch_running_count) == (500, 1)


async def test_a_draining_worker_is_named_as_the_reason(connection: Conn) -> None:
    worker_id = await fleet(connection)
    job_id = await submit(connection, task="a")

    async def drain(one: UUID) -> None:
        await workers.beat(connection, one, running_count=0, process_running_count=0, draining=True, refused_count=0, now=NOW)

    await drain(worker_id)
    answer = (await links(connection, job_id, NOW))["worker"]
    beginning = "No live worker of the queue 'default' takes new runs of the task 'a': "
    assert answer == f"{beginning}the live worker that knows it is draining."
    await drain(await fleet(connection))
    answer = (await links(connection, job_id, NOW))["worker"]
    assert answer == f"{beginning}the 2 live workers that know it are draining."
    other = await submit(connection, task="unknown")
    answer = (await links(connection, other, NOW))["worker"]
    assert answer == "No live worker of the queue 'default' knows the task 'unknown'."


async def test_only_workers_that_may_run_it_decide_which_slots_it_needs(connection: Conn) -> None:
    """In a rolling deploy the new code runs a task in child processes, and the old does not. Other queues do not count."""
    plain: dict[str, Any] = {"lease_s": LEASE_S, "process_tasks": [], "process_slots": 0, "now": NOW}
    child = {**plain, "process_tasks": ["heavy"], "process_slots": 2}
    await workers.enlist(connection, uuid4(), name="old", queues=["default"], tasks=["heavy"], concurrency=10, **plain)
    await workers.enlist(connection, uuid4(), name="other", queues=["other"], tasks=["heavy"], concurrency=10, **child)
    job_id = await submit(connection, task="heavy")
    assert (await links(connection, job_id, NOW))["worker"] == "1 live worker of the queue 'default' may run it, 10 free slots."
    await workers.enlist(connection, uuid4(), name="new", queues=["default"], tasks=["heavy"], concurrency=10, **child)
    answer = (await links(connection, job_id, NOW))["worker"]
    assert answer == "2 live workers of the queue 'default' may run it, 10 free slots and 2 free process slots."


async def test_with_every_process_killed_why_shows_that_nothing_is_promoted_and_since_when(connection: Conn) -> None:
    await fleet(connection)
    job_id = await submit(connection, task="a", delay="5s")
    at = after(seconds=10)
    answer = await links(connection, job_id, at)
    assert answer["scheduler"] == (
        "No scheduler and no worker is alive, so nothing is planned or promoted; "
        "the last heartbeat of one was 2026-03-04 12:00:00Z."
    )
    assert (await explain(connection, TESTER, job_id, now=at)).answer == answer["scheduler"]
    (node,) = await workers.nodes(connection, now=at)
    assert views.node(node, 10.0).status == "silent"
    assert (await overview.stats(connection, now=at)).node_count == 0


async def test_why_shows_that_the_worker_of_a_run_is_silent(connection: Conn) -> None:
    worker_id = await fleet(connection)
    job_id = await submit(connection, task="a")
    assert len(await claim(connection, worker_id, tasks=["a"], now=NOW)) == 1
    assert "silent" not in (await links(connection, job_id, after(seconds=4)))["running"]
    answer = (await links(connection, job_id, after(seconds=10)))["running"]
    assert answer.endswith(
        "; that worker is silent since 2026-03-04 12:00:00Z, and no scheduler is alive to give the run to another."
    )
