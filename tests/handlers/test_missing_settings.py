"""Rolling deploys: a worker that lacks a secret or a setting hands the run back, and a worker that has it makes the call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from sexton.domain.subscription import subscription
from sexton.domain.targets import HttpTarget, SecretRef
from sexton.errors import NotHere
from sexton.operations import subscriptions
from sexton.operations.explain import explain
from sexton.store.fleet import workers
from sexton.telemetry.events import SettingMissing
from sexton.worker.missing import DELAY_S, KEPT_S, NAMES_LIMIT, RUNS_LIMIT, Missing
from tests.callers import TESTER
from tests.handlers.http_target import Server, serving
from tests.handlers.target_worker import target_worker
from tests.rig import HandWorker, Rig

HERE = ["127.0.0.1:*"]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as server:
        yield server


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """The folder of the worker that has the secret."""
    (tmp_path / "stripe").write_text("sk_live_hush")
    return tmp_path


async def work(hand: HandWorker) -> None:
    await hand.beat()
    await hand.take()
    await hand.ends()
    await hand.beat()


async def why(rig: Rig, job_id: UUID) -> dict[str, str]:
    async with rig.database.connection() as connection:
        explained = await explain(connection, TESTER, job_id, now=rig.clock.database_now())
    return {"answer": explained.answer, **{link.check: link.detail for link in explained.chain}}


def call(server: Server) -> HttpTarget:
    return HttpTarget(server.url, headers={"Authorization": SecretRef("stripe", "Bearer ")})


async def test_a_run_goes_to_the_worker_that_has_the_secret(rig: Rig, server: Server, secrets: Path) -> None:
    """C15, F3. It spends no attempt, and no dead letter is written."""
    async with (
        target_worker(rig, outbound_allow=HERE) as without,
        target_worker(rig, outbound_allow=HERE, secrets_dir=secrets) as having,
    ):
        job_id = await rig.submit(call(server))
        await work(without)
        run = await rig.run(job_id)
        assert run is not None
        assert (run["state"], run["attempt"], (await rig.last(job_id)).status) == ("waiting", 0, "snoozed")
        assert "SEXTON_SECRET_STRIPE" in ((await rig.last(job_id)).reason or "")
        assert (await rig.letters(), server.received) == ([], [])
        answer = (await why(rig, job_id))["configuration"]
        assert answer.startswith("Secret stripe is missing on ")
        assert answer.endswith("; 1 other live worker has not said that it lacks it; it may have it.")
        rig.move(DELAY_S[0])
        await rig.promote()
        await work(having)
        assert await rig.status(job_id) == "completed"
        assert server.received[0].headers["authorization"] == "Bearer sk_live_hush"


async def test_without_a_worker_that_has_it_the_run_waits_and_is_not_claimed_repeatedly(rig: Rig, server: Server) -> None:
    """In an hour it is claimed about once a minute; `why` names the secret and the worker."""
    async with target_worker(rig, outbound_allow=HERE) as hand:
        job_id = await rig.submit(call(server))
        waits = []
        for _ in range(9):
            await work(hand)
            run = await rig.run(job_id)
            assert run is not None
            waits.append((run["due_at"] - rig.clock.database_now()).total_seconds())
            rig.move(waits[-1])
            await rig.promote()
        assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
        await hand.beat()
        (me,) = await rig.execute("SELECT name FROM sexton.workers")
        answer = await why(rig, job_id)
        assert answer["configuration"] == f"Secret stripe is missing on {me['name']}; it waits until a worker has it."
        assert await rig.letters() == []
        assert [event.what for event in rig.of(SettingMissing)] == ["secret stripe"], "one line, not one for each return"
        async with rig.database.connection() as connection:
            (shown,) = await workers.workers(connection, now=rig.clock.database_now())
        assert shown.lacks == ["secret stripe"]


async def test_the_answer_of_why_names_the_secret_and_the_worker(rig: Rig, server: Server) -> None:
    async with target_worker(rig, outbound_allow=HERE) as hand:
        job_id = await rig.submit(call(server))
        await work(hand)
        (me,) = await rig.execute("SELECT name FROM sexton.workers")
        answer = (await why(rig, job_id))["answer"]
        assert f"secret 'stripe' is unknown to worker {me['name']}" in answer


async def test_a_webhook_waits_for_its_secret_too(rig: Rig, server: Server) -> None:
    async with target_worker(rig, outbound_allow=HERE) as hand:
        async with rig.database.transaction() as connection:
            given = subscription("hooks", HttpTarget(server.url, signed_with=("stripe",)), kinds=["completed"])
            await subscriptions.put(connection, TESTER, given, now=rig.clock.database_now())
        ended = await rig.submit(HttpTarget(server.url))
        await work(hand)
        assert await rig.status(ended) == "completed"
        await work(hand)
        (run,) = await rig.execute("SELECT state, attempt FROM sexton.runs")
        assert (run["state"], run["attempt"]) == ("waiting", 0)
        assert await rig.letters() == []


async def test_a_call_that_one_worker_rejects_is_tried_by_another(rig: Rig, server: Server) -> None:
    """Its settings may be outdated. If all live workers reject it, it fails permanently."""
    async with target_worker(rig) as old, target_worker(rig, outbound_allow=["localhost:*"]) as new:
        job_id = await rig.submit(HttpTarget(server.url))
        await work(old)
        assert (await rig.last(job_id)).status == "snoozed"
        assert "SEXTON_OUTBOUND_ALLOW" in ((await rig.last(job_id)).reason or "")
        rig.move(DELAY_S[0])
        await rig.promote()
        await work(new)
        assert await rig.status(job_id) == "completed"


async def test_a_call_that_all_live_workers_reject_fails_permanently(rig: Rig, server: Server) -> None:
    async with target_worker(rig) as one, target_worker(rig) as other:
        job_id = await rig.submit(HttpTarget(server.url))
        await work(one)
        assert (await rig.last(job_id)).status == "snoozed"
        rig.move(DELAY_S[0])
        await rig.promote()
        await work(other)
        assert await rig.status(job_id) == "failed"
        (letter,) = await rig.letters()
        assert letter.permanent
        assert server.received == []


def test_the_list_of_missing_names_is_bounded_and_expires(rig: Rig) -> None:
    missing = Missing(clock=rig.clock, emit=rig.heard)
    for n in range(NAMES_LIMIT + 10):
        missing.returned(UUID(int=n), NotHere(f"secret s{n}", "…"))
    assert len(missing.names) == NAMES_LIMIT
    for n in range(RUNS_LIMIT + 10):
        missing.returned(UUID(int=n), NotHere("secret x", "…"))
    assert len(missing._returned) == RUNS_LIMIT
    rig.move(KEPT_S)
    assert missing.names == []
