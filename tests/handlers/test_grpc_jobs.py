"""C2, C6: jobs that call a gRPC method, through a real worker on a real database to a real server."""

from __future__ import annotations

import json

import grpc
import msgspec
import pytest

from sexton.domain.targets import GrpcTarget, SecretRef, needs_of
from sexton.store.database import Postgres
from sexton.worker.missing_settings import DELAY_S
from sexton.worker.other_workers import PATIENCE_S
from tests.handlers.grpc_server import Shop, shop
from tests.handlers.target_worker import target_worker
from tests.rig import Rig

METHOD = "shop.v1.Orders/Charge"


@pytest.fixture
def rig(database: Postgres) -> Rig:
    return Rig(database)


def charge(server: Shop) -> GrpcTarget:
    return GrpcTarget(server.address, METHOD, tls=False, metadata={"authorization": SecretRef("shop", "Bearer ")})


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEXTON_SECRET_SHOP", "s3cret-token")


async def test_from_the_submission_to_the_result(rig: Rig) -> None:
    async with shop() as server, target_worker(rig, outbound_allow=["127.0.0.1:*"]) as hand:
        job_id = await rig.submit(charge(server), {"userId": 42}, timeout="20s")
        await hand.take()
        await hand.ends()
        (seen,) = server.calls
    (execution,) = await rig.executions(job_id)
    assert execution.status == "succeeded"
    assert json.loads(execution.result_json or "") == {"chargedCents": 995, "note": "thank you"}
    assert seen.metadata["authorization"] == "Bearer s3cret-token"
    assert seen.time_remaining_s == pytest.approx(20.5, abs=1)
    (row,) = await rig.execute("SELECT policy::text AS policy FROM sexton.jobs WHERE id = $1", job_id)
    assert "s3cret-token" not in row["policy"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_call_that_one_worker_rejects_is_made_by_another(rig: Rig, host: str) -> None:
    """F3: in a rolling deploy, before and after its name is resolved. It spends no attempt."""
    async with shop() as server, target_worker(rig) as old, target_worker(rig, outbound_allow=["localhost:*"]) as new:
        target = msgspec.structs.replace(charge(server), address=server.address.replace("127.0.0.1", host))
        job_id = await rig.submit(target, {"userId": 42})
        await old.take()
        await old.ends()
        run = await rig.run(job_id)
        assert run is not None
        assert (run["state"], run["attempt"]) == ("waiting", 0)
        await old.beat()
        (told,) = await rig.execute("SELECT lacks FROM sexton.workers WHERE lacks <> '{}'")
        assert set(told["lacks"]) <= needs_of(target)
        rig.move(DELAY_S[0])
        await rig.promote()
        await new.take()
        await new.ends()
        assert await rig.status(job_id) == "completed"


async def test_every_attempt_carries_the_same_key(rig: Rig) -> None:
    """C6 (b)."""
    async with shop() as server, target_worker(rig, outbound_allow=["127.0.0.1:*"]) as hand:
        server.answer = lambda request, seen: seen.context.abort(grpc.StatusCode.UNAVAILABLE, "busy", (("retry-after", "90"),))
        job_id = await rig.submit(charge(server), {"userId": 42})
        await hand.take()
        await hand.ends()
        run = await rig.run(job_id)
        assert run is not None
        assert (run["due_at"] - rig.clock.database_now()).total_seconds() >= 90
        server.answer = lambda request, seen: {"charged_cents": 1}
        rig.move(3600)
        await rig.promote()
        await hand.beat()
        await hand.take()
        await hand.ends()
        assert await rig.statuses(job_id) == ["failed", "succeeded"]
        first, second = (seen.metadata for seen in server.calls)
    assert first["idempotency-key"] == second["idempotency-key"]
    assert (first["sexton-attempt"], second["sexton-attempt"]) == ("1", "2")


async def test_a_target_that_is_not_allowed_is_not_called(rig: Rig) -> None:
    """F3: loopback is rejected by default, and permanently after ten minutes; until then a worker that allows it may start."""
    async with shop() as server, target_worker(rig) as hand:
        job_id = await rig.submit(charge(server))
        await hand.take()
        await hand.ends()
        assert (await rig.last(job_id)).status == "snoozed"
        rig.move(PATIENCE_S)
        await hand.beat()
        await rig.promote()
        await hand.take()
        await hand.ends()
        assert server.calls == []
    (letter,) = await rig.letters()
    assert letter.job_id == job_id
    assert letter.error is not None
    assert "the call is not allowed" in letter.error.message
