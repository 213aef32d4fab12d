"""Only a caller with the lease of a run can end it: complete, fail, release, heartbeat over HTTP (C6, F3)."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from sexton.api.openapi import worker_examples
from sexton.domain import signed_lease
from sexton.domain.job import submission
from sexton.domain.retry import Retry
from sexton.domain.signed_lease import SignedLease
from sexton.store.database import Postgres
from sexton.store.work import callbacks, jobs, runs
from sexton.telemetry.events import Ended
from tests.api.remote_hand import Hand
from tests.api.support import Api, opened, problem


@pytest.fixture
def hand(api: Api) -> Hand:
    return Hand(api)


async def job_of(api: Api, run: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = (await api.http.get(f"/v1/jobs/{run['job_id']}")).json()
    return shown


async def execution_of(api: Api, response: httpx.Response) -> dict[str, Any]:
    shown: dict[str, Any] = (await api.http.get(f"/v1/executions/{response.json()['execution_id']}")).json()
    return shown


async def signed(api: Api, run: dict[str, Any], *, token: int) -> str:
    key = await api.state.leases._known_key()
    return signed_lease.written(key, SignedLease(UUID(run["run_id"]), UUID(run["job_id"]), token))


class TestComplete:
    async def test_a_completed_run_has_its_result_and_its_output(self, api: Api, hand: Hand) -> None:
        """C6, F3."""
        await api.submit()
        run = await hand.one()
        heard = await hand.report(run, "heartbeat", progress={"fraction": 0.5}, output="half")
        assert heard.json()["cancel_requested"] is False
        running = (await job_of(api, run))["last_execution"]
        assert (running["status"], running["progress"], running["output"]) == ("running", {"fraction": 0.5}, "half")
        await hand.report(run, "heartbeat", output="nearly")
        response = await hand.report(run, "complete", result={"pages": [1, 2]}, output="done")
        assert (response.status_code, response.json()["status"], response.json()["state"]) == (200, "succeeded", None)
        job = await job_of(api, run)
        assert job["status"] == "completed"
        ended = await execution_of(api, response)
        assert (ended["result"], ended["progress"], ended["output"]) == (
            {"pages": [1, 2]},
            {"fraction": 0.5},
            "half\nnearly\ndone",
        )
        assert ended["worker_id"] == hand.worker_id
        assert [event.status for event in api.events if isinstance(event, Ended)] == ["succeeded"]

    async def test_a_repeated_report_gets_the_same_answer(self, api: Api, hand: Hand) -> None:
        """Rule "reconcile lost replies": the first answer may have been lost. A different report comes too late."""
        await api.submit()
        run = await hand.one()
        first = await hand.report(run, "complete", result=1)
        again = await hand.report(run, "complete", result=1)
        assert (again.status_code, again.json()) == (200, first.json())
        for verb, body in (("fail", {"error": "no"}), ("release", {}), ("heartbeat", {})):
            problem(await hand.report(run, verb, **body), 409, "lease_lost")
        assert await api.count("executions") == 1

    async def test_a_key_is_completed_with_its_run(self, api: Api, hand: Hand) -> None:
        """C6: as by a worker of the cluster."""
        await api.submit(idempotency_key="once")
        await hand.report(await hand.one(), "complete")
        async with api.database.connection() as connection:
            (row,) = await connection.fetch("SELECT completed_at IS NOT NULL AS done FROM sexton.idempotency_keys")
        assert row["done"]

    async def test_the_lease_may_be_a_bearer_token(self, api: Api, hand: Hand) -> None:
        """F3: as targets that call back send it."""
        await api.submit()
        run = await hand.one()
        headers = {"Authorization": f"Bearer {run['lease']}"}
        response = await api.http.post(f"/v1/runs/{run['run_id']}/complete", json={}, headers=headers)
        assert response.status_code == 200

    @pytest.mark.parametrize(
        ("body", "status", "code", "pointer"),
        [
            ({"result": "x" * 65_535}, 413, "too_large", "/result"),
            ({"result": "\x00"}, 422, "invalid", "/result"),
            ({"output": 1}, 422, "invalid", "/output"),
            ({"colour": 1}, 422, "invalid", "/colour"),
        ],
    )
    async def test_a_result_that_cannot_be_stored_changes_nothing(
        self, api: Api, hand: Hand, body: dict[str, Any], status: int, code: str, pointer: str
    ) -> None:
        """F2: the caller may report again, with a smaller result."""
        await api.submit()
        run = await hand.one()
        problem(await hand.report(run, "complete", **body), status, code, pointer)
        assert (await hand.report(run, "complete")).status_code == 200

    async def test_a_result_that_only_the_database_rejects_is_a_clear_error(self, api: Api, hand: Hand) -> None:
        """F2, rule "bisect bad batches": half of a surrogate pair is valid JSON, but not valid text."""
        await api.submit()
        run = await hand.one()
        body = b'{"lease": "%s", "result": "\\ud800"}' % run["lease"].encode()
        headers = {"content-type": "application/json"}
        refused = await api.http.post(f"/v1/runs/{run['run_id']}/complete", content=body, headers=headers)
        assert refused.status_code in (400, 422), refused.text
        assert (await hand.report(run, "complete")).status_code == 200


class TestFail:
    async def test_the_jobs_own_policy_decides_what_follows(self, api: Api, hand: Hand) -> None:
        """C6, C4: one path for all endings (rule "one path in, one path out")."""
        await api.submit(retry={"max_attempts": 2, "backoff": "immediate"})
        first = await hand.one()
        failed = await hand.report(first, "fail", error="the printer is on fire", output="smoke")
        assert (failed.json()["status"], failed.json()["state"]) == ("failed", "ready")
        ended = await execution_of(api, failed)
        assert (ended["error"]["type"], ended["error"]["message"]) == ("RemoteError", "the printer is on fire")
        assert ended["output"] == "smoke"
        second = await hand.one()
        assert second["attempt"] == 2
        buried = await hand.report(second, "fail", error={"type": "Fire", "message": "again"})
        assert buried.json()["state"] is None
        (letter,) = (await api.http.get("/v1/dead-letters")).json()["items"]
        assert (letter["attempts"], letter["error"]["type"]) == (2, "Fire")

    async def test_a_permanent_error_is_buried_at_once(self, api: Api, hand: Hand) -> None:
        """C4."""
        await api.submit()
        failed = await hand.report(await hand.one(), "fail", error="no such user", permanent=True)
        assert failed.json()["state"] is None
        assert await api.count("dead_letters") == 1

    async def test_retry_after_is_a_lower_bound(self, api: Api, hand: Hand) -> None:
        """C4."""
        await api.submit(retry={"backoff": "immediate"})
        failed = await hand.report(await hand.one(), "fail", error="busy", retry_after="1h")
        assert failed.json()["state"] == "waiting"
        async with api.database.connection() as connection:
            (row,) = await connection.fetch("SELECT extract(epoch FROM due_at - now())::float8 AS left_s FROM sexton.runs")
        assert row["left_s"] > 3500

    async def test_a_retry_rule_uses_the_type_of_the_error(self, api: Api, hand: Hand) -> None:
        """C4: as it uses a class in Python."""
        document = submission("a", {}, retry=Retry().on("BadImage", "never"))
        async with api.database.connection() as connection:
            await jobs.submit(connection, [document])
        failed = await hand.report(await hand.one(), "fail", error={"type": "BadImage", "message": "no picture"})
        assert failed.json()["state"] is None

    async def test_text_that_postgresql_cannot_store_is_stored_in_a_readable_form(self, api: Api, hand: Hand) -> None:
        """Rule "bisect bad batches": an error must not be lost because of its characters."""
        await api.submit()
        failed = await hand.report(await hand.one(), "fail", error="a\x00b", output="c\x00d")
        ended = await execution_of(api, failed)
        assert (ended["error"]["message"], ended["output"]) == ("a␀b", "c␀d")


class TestRelease:
    async def test_it_spends_no_attempt(self, api: Api, hand: Hand) -> None:
        """C6, rule "losses have their own budget"."""
        await api.submit()
        run = await hand.one()
        first = await hand.report(run, "release", reason="no disk")
        assert (first.json()["status"], first.json()["state"]) == ("released", "ready")
        assert (await hand.report(run, "release")).json()["status"] == "released"
        assert (await hand.one())["attempt"] == 1

    async def test_with_a_delay_it_comes_back_later(self, api: Api, hand: Hand) -> None:
        """C6."""
        await api.submit()
        response = await hand.report(await hand.one(), "release", delay="5m")
        assert (response.json()["status"], response.json()["state"]) == ("snoozed", "waiting")


class TestTheFence:
    async def test_an_older_lease_of_the_same_run_ends_nothing(self, api: Api, hand: Hand) -> None:
        """A3, C6: the token of the claim is the fence in every call."""
        await api.submit()
        old = await hand.one()
        await hand.report(old, "release")
        new = await hand.one()
        assert new["run_id"] == old["run_id"]
        for verb, body in (("complete", {}), ("fail", {"error": "no"}), ("heartbeat", {"progress": 1})):
            problem(await hand.report(old, verb, **body), 409, "lease_lost")
        assert await api.count("live_output") == 0
        assert (await hand.report(new, "complete")).json()["status"] == "succeeded"
        problem(await hand.report(old, "complete"), 409, "lease_lost")  # the history has the report of the other

    async def test_a_lease_is_for_one_run_and_signed(self, api: Api, hand: Hand) -> None:
        """C6, F3: not one of another run, not an invented one, not one with a changed letter, and not a missing one."""
        for _ in range(2):
            await api.submit()
        mine, other = await hand.acquire(limit=2)
        lease = mine["lease"]
        changed = ("B" if lease[30] == "A" else "A").join((lease[:30], lease[31:]))
        for verb, body in (("complete", {}), ("fail", {"error": "no"}), ("release", {}), ("heartbeat", {})):
            for wrong in (other["lease"], changed, lease[:-4], "", "x" * 75, "ü" * 75):
                refused = await hand.report({**mine, "lease": wrong}, verb, **body)
                problem(refused, 401, "lease_invalid")
                assert refused.headers["www-authenticate"] == "Bearer"
            problem(await api.http.post(f"/v1/runs/{mine['run_id']}/{verb}", json=body), 401, "lease_invalid")
        assert await api.count("executions") == 0

    async def test_a_lease_that_was_never_claimed_ends_nothing(self, api: Api, hand: Hand) -> None:
        """C6: signed with the cluster's key, but for no claim yet."""
        await api.submit()
        run = await hand.one()
        run["lease"] = await signed(api, run, token=2)
        problem(await hand.report(run, "complete"), 409, "lease_lost")

    async def test_the_key_is_shown_nowhere(self, api: Api, hand: Hand) -> None:
        """E2: neither in a repr nor in the answers of the API."""
        key = await api.state.leases._known_key()
        assert len(key) == 32
        told = repr(api.state.leases) + repr(api.events) + (await api.http.get("/schema")).text
        assert key.hex() not in told
        assert repr(key) not in told

    async def test_a_report_during_which_the_run_was_handed_over_is_tried_again(
        self, api: Api, hand: Hand, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """F3: the hand-over keeps the token, so a callback that arrives during it still counts."""
        await api.submit()
        run = await hand.one()
        plain = runs.finish

        async def late(connection: Any, reports: Any, **named: Any) -> Any:
            monkeypatch.undo()
            fences = [(UUID(run["run_id"]), 1)]
            assert await callbacks.hand_over(connection, UUID(hand.worker_id), fences)
            return await plain(connection, reports, **named)

        monkeypatch.setattr(runs, "finish", late)
        assert (await hand.report(run, "complete")).json()["status"] == "succeeded"


class TestMany:
    async def test_many_runs_end_in_one_call_and_a_rejected_one_does_not_delay_the_others(self, api: Api, hand: Hand) -> None:
        """C6."""
        for _ in range(4):
            await api.submit()
        held = await hand.acquire(limit=4)
        items = [{"run_id": run["run_id"], "lease": run["lease"], "result": n} for n, run in enumerate(held)]
        items[1]["lease"] = held[2]["lease"]
        items[3]["result"] = "x" * 70_000
        items.append({"run_id": str(uuid4()), "lease": held[0]["lease"]})
        items.append({"run_id": held[0]["run_id"]})
        response = await api.http.post("/v1/runs/complete", json={"items": items})
        assert response.status_code == 200, response.text
        answers = response.json()["items"]
        codes = [one["problem"] and one["problem"]["code"] for one in answers]
        assert codes == [None, "lease_invalid", None, "too_large", "lease_invalid", "lease_invalid"]
        assert response.json()["refused_count"] == 4
        assert answers[2]["reported"]["status"] == "succeeded"
        again = await api.http.post("/v1/runs/complete", json={"items": items[:1]})
        assert again.json()["items"] == answers[:1]

    async def test_an_old_lease_beside_the_new_one_of_the_same_run_ends_nothing(self, api: Api, hand: Hand) -> None:
        """A3: in one call, in either order."""
        await api.submit()
        old = await hand.one()
        await hand.report(old, "release")
        new = await hand.one()
        items = [{"run_id": run["run_id"], "lease": run["lease"], "result": run["lease"]} for run in (old, new)]
        answers = (await api.http.post("/v1/runs/complete", json={"items": items})).json()["items"]
        assert [one["problem"] and one["problem"]["code"] for one in answers] == ["lease_lost", None]
        assert (await job_of(api, new))["last_execution"]["result"] == new["lease"]

    async def test_a_report_that_the_database_rejects_fails_alone(
        self, api: Api, hand: Hand, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Rule "bisect bad batches"."""
        for _ in range(3):
            await api.submit()
        held = await hand.acquire(limit=3)
        monkeypatch.setattr("sexton.api.remote.runs.kept", lambda _at, given: given)
        items = [{"run_id": run["run_id"], "lease": run["lease"], "result": n} for n, run in enumerate(held)]
        items[1]["result"] = "\x00"
        answers = (await api.http.post("/v1/runs/complete", json={"items": items})).json()["items"]
        assert [one["problem"] and one["problem"]["code"] for one in answers] == [None, "invalid", None]


class TestCancel:
    async def test_a_heartbeat_of_a_run_shows_a_cancel_and_any_report_ends_it_as_cancelled(self, api: Api, hand: Hand) -> None:
        """C9, rule "losses have their own budget": no further attempt, whatever the outcome."""
        await api.submit()
        run = await hand.one()
        await api.http.delete(f"/v1/jobs/{run['job_id']}")
        assert (await hand.report(run, "heartbeat")).json()["cancel_requested"] is True
        assert (await hand.report(run, "fail", error="stopped")).json()["state"] is None
        assert (await job_of(api, run))["status"] == "cancelled"
        assert await api.count("dead_letters") == 0


async def test_everything_works_behind_a_pooler(pooled_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule "session state only on direct connections": no session state, and a rejection by the database ends only its
    transaction."""
    database = await Postgres.open(pooled_url)
    async with opened(database) as api:
        hand = Hand(api)
        for _ in range(3):
            await api.submit()
        held = await hand.acquire(limit=3)
        await hand.report(held[0], "heartbeat", progress=1)
        assert (await hand.report(held[0], "fail", error="no")).json()["state"] == "waiting"
        assert (await hand.beat(holding=[run["run_id"] for run in held])).json()["stop"] == [
            {"run_id": held[0]["run_id"], "why": "lost"}
        ]
        items = [{"run_id": run["run_id"], "lease": run["lease"], "result": n} for n, run in enumerate(held)]
        items[1]["result"] = "\x00"
        monkeypatch.setattr("sexton.api.remote.runs.kept", lambda _at, given: given)
        answers = (await api.http.post("/v1/runs/complete", json={"items": items[1:]})).json()["items"]
        monkeypatch.undo()
        assert [one["problem"] is None for one in answers] == [False, True]
        assert (await hand.report(held[1], "complete")).status_code == 200
    await database.close()


async def test_the_examples_of_the_document_are_accepted_by_the_calls(api: Api) -> None:
    """F2: only their lease is invalid."""
    for asked in worker_examples.ACQUIRING.values():
        assert (await api.http.post("/v1/workers/acquire", json={**asked, "wait": 0})).status_code == 200
    for beat in worker_examples.WORKER_HEARTBEATS.values():
        worker_id = worker_examples.ACQUIRING["from_then_on"]["worker_id"]
        assert (await api.http.post(f"/v1/workers/{worker_id}/heartbeat", json=beat)).status_code == 200
    verbs = {
        "heartbeat": worker_examples.RUN_HEARTBEATS,
        "complete": worker_examples.COMPLETING,
        "fail": worker_examples.FAILING,
        "release": worker_examples.RELEASING,
    }
    for verb, bodies in verbs.items():
        for body in bodies.values():
            problem(await api.http.post(f"/v1/runs/{uuid4()}/{verb}", json=body), 401, "lease_invalid")
    many = await api.http.post("/v1/runs/complete", json=worker_examples.COMPLETING_MANY["two"])
    assert many.json()["refused_count"] == 2
