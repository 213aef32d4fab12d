"""Rolling deploys: a worker that lacks a secret or a setting hands the run back, and a worker that has it makes the call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import UUID

import pytest
from yarl import URL

from sexton.domain.subscription import subscription
from sexton.domain.targets import HttpTarget, SecretRef, needs_of
from sexton.errors import NotHere
from sexton.operations import subscriptions
from sexton.operations.explain import explain
from sexton.store.fleet import workers
from sexton.telemetry.events import SettingMissing
from sexton.worker.missing_settings import DELAY_S, KEPT_S, NAMES_LIMIT, RUNS_LIMIT, MissingSettings
from sexton.worker.other_workers import HOSTS_LIMIT, PATIENCE_S, OtherWorkers
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


async def again(rig: Rig, job_id: UUID, hand: HandWorker, workers: Sequence[HandWorker], *, after_s: float = 0.0) -> None:
    """The run is due again, while all these workers live, and one of them takes it."""
    run = await rig.run(job_id)
    assert run is not None
    rig.move(max((run["due_at"] - rig.clock.database_now()).total_seconds(), after_s))
    for one in workers:
        await one.beat()
    await rig.promote()
    await work(hand)


@pytest.mark.parametrize("count", [1, 2, 12])
async def test_a_call_that_all_workers_reject_for_ten_minutes_fails_permanently(rig: Rig, server: Server, count: int) -> None:
    """Also in a fleet that is so large that a run comes back to the same worker once in a quarter of an hour."""
    async with AsyncExitStack() as stack:
        fleet = [await stack.enter_async_context(target_worker(rig)) for _ in range(count)]
        job_id = await rig.submit(HttpTarget(server.url))
        await work(fleet[0])
        begun_at = rig.clock.database_now()
        for turn in range(1, 40):
            assert (await rig.last(job_id)).status == "snoozed"
            await again(rig, job_id, fleet[turn % count], fleet, after_s=60.0)
            if await rig.status(job_id) == "failed":
                break
        assert 600 <= (rig.clock.database_now() - begun_at).total_seconds() <= 660 + 60 * count
        (letter,) = await rig.letters()
        assert letter.permanent
        assert server.received == []


async def test_a_call_that_the_only_worker_rejects_waits_for_one_that_starts_later(rig: Rig, server: Server) -> None:
    """F3: the first step of a rolling deploy. It spends no attempt."""
    async with target_worker(rig) as old:
        job_id = await rig.submit(HttpTarget(server.url))
        await work(old)
        run = await rig.run(job_id)
        assert run is not None
        assert (run["state"], run["attempt"]) == ("waiting", 0)
        assert (await why(rig, job_id))["configuration"].endswith("; it waits until a worker has it.")
        rig.move(PATIENCE_S)
        async with target_worker(rig, outbound_allow=HERE) as new:
            await again(rig, job_id, old, [old, new])
            assert (await rig.last(job_id)).status == "snoozed"
            await again(rig, job_id, new, [old, new])
            assert await rig.status(job_id) == "completed"


async def test_the_hosts_that_are_waited_for_are_bounded(rig: Rig) -> None:
    """One tenant's jobs with ever new hosts do not come back for ever; hosts that are no longer called make room."""
    elsewhere, run_id = OtherWorkers(rig.database, clock=rig.clock), UUID(int=1)
    for n in range(HOSTS_LIMIT):
        assert await elsewhere(run_id, f"outbound h{n}:80")
    assert not await elsewhere(run_id, "outbound another:80")
    assert await elsewhere(run_id, "outbound h0:80")
    rig.move(KEPT_S)
    assert await elsewhere(run_id, "outbound another:80")


async def test_a_worker_in_quarantine_is_not_another_worker(rig: Rig, server: Server) -> None:
    """It has the settings of its parent, and takes only suspects."""
    async with target_worker(rig) as hand:
        await rig.execute(
            "INSERT INTO sexton.workers (id, name, queues, tasks, concurrency, started_at, beat_at, quarantine, lacks) "
            "SELECT gen_random_uuid(), 'child', w.queues, w.tasks, 1, w.started_at, 'infinity', true, '{secret stripe}' "
            "FROM sexton.workers w"
        )
        job_id = await rig.submit(HttpTarget(server.url))
        await work(hand)
        await again(rig, job_id, hand, [hand], after_s=PATIENCE_S)
        assert await rig.status(job_id) == "failed"
        (me,) = await rig.execute("SELECT name FROM sexton.workers WHERE NOT quarantine")
        needing = await rig.submit(call(server))
        assert (await why(rig, needing))["configuration"] == (
            f"Outbound {HttpTarget(server.url).host_and_port} is missing on {me['name']}; it waits until a worker has it."
        )


async def test_what_was_missing_is_forgotten_after_a_call_that_needed_it(rig: Rig, server: Server, tmp_path: Path) -> None:
    """A file with the secret has appeared meanwhile."""
    async with target_worker(rig, outbound_allow=HERE, secrets_dir=tmp_path) as hand:
        job_id = await rig.submit(call(server))
        await work(hand)
        assert hand.worker.missing.names == ["secret stripe"]
        (tmp_path / "stripe").write_text("sk_live_hush")
        await again(rig, job_id, hand, [hand], after_s=10.0)
        assert await rig.status(job_id) == "completed"
        assert hand.worker.missing.names == []


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://bücher.example/x", "outbound xn--bcher-kva.example:80"),
        ("http://[0:0:0:0:0:0:0:1]/", "outbound ::1:80"),
        ("https://Billing.Internal/", "outbound billing.internal:443"),
    ],
)
def test_a_host_is_named_as_the_worker_names_it(url: str, name: str) -> None:
    """Otherwise `why` does not find what the worker has noted."""
    assert needs_of(HttpTarget(url)) == {name}
    assert name == f"outbound {URL(url).raw_host}:{URL(url).port}"


def test_the_list_of_missing_names_is_bounded_and_expires(rig: Rig) -> None:
    missing = MissingSettings(clock=rig.clock, emit=rig.heard)
    for n in range(NAMES_LIMIT + 10):
        missing.returned(UUID(int=n), NotHere(f"secret s{n}", "…"))
    assert len(missing.names) == NAMES_LIMIT
    for n in range(RUNS_LIMIT + 10):
        missing.returned(UUID(int=n), NotHere("secret x", "…"))
    assert len(missing._returned) == RUNS_LIMIT
    rig.move(KEPT_S)
    assert missing.names == []
