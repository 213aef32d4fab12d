"""The worker protocol over HTTP: acquire, heartbeat, leave; how workers are identified, and the cost of a lost answer (C6,
F3)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from sexton.api.remote import long_polling
from sexton.domain.job import submission
from sexton.operations.remote.claims import UNHEARD_S
from sexton.store.database import Postgres
from sexton.store.fleet import workers
from sexton.store.work import callbacks, jobs, runs
from sexton.telemetry.events import WorkerJoined
from tests.api.remote_hand import Hand
from tests.api.support import Api, enlist, opened, problem
from tests.api.test_process import served


@pytest.fixture
def hand(api: Api) -> Hand:
    return Hand(api)


async def states(api: Api) -> list[tuple[str, int, int]]:
    async with api.database.connection() as connection:
        rows = await connection.fetch("SELECT state, attempt, lost_count FROM sexton.runs ORDER BY id")
    return [tuple(row) for row in rows]


async def age(api: Api, seconds: float) -> None:
    """As if all claims had been made that much earlier."""
    async with api.database.connection() as connection:
        await connection.fetch("ALTER TABLE sexton.runs DISABLE TRIGGER ALL")
        await connection.fetch("UPDATE sexton.runs SET claimed_at = claimed_at - make_interval(secs => $1)", seconds)
        await connection.fetch("ALTER TABLE sexton.runs ENABLE TRIGGER ALL")


class TestAcquire:
    async def test_a_run_is_returned_with_all_that_is_needed_to_execute_it(self, api: Api, hand: Hand) -> None:
        """C6 (b), F3."""
        job = await api.submit(payload={"n": 1}, name="first", tenant="acme", timeout="90s", priority="high")
        run = await hand.one()
        assert run["job_id"] == run["run_id"] == job["id"]
        assert (run["handler"], run["payload"], run["name"], run["tenant"]) == ("a", {"n": 1}, "first", "acme")
        assert (run["attempt"], run["timeout_s"], run["priority"], run["queue"]) == (1, 90.0, "high", "default")
        assert run["idempotency_key"].startswith(job["id"])
        assert (await api.http.get(f"/v1/jobs/{job['id']}")).json()["status"] == "running"

    async def test_the_submitters_key_is_part_of_every_attempt(self, api: Api, hand: Hand) -> None:
        """C6."""
        await api.submit(idempotency_key="invoice-42")
        assert (await hand.one())["idempotency_key"] == "invoice-42"

    async def test_a_claim_is_limited_to_the_requested_number_tasks_and_queues(self, api: Api, hand: Hand) -> None:
        """C6, rule "claim only known tasks"; a job of a reserved task waits for a worker that names the task."""
        for handler in ("a", "a", "a", "b"):
            await api.submit(handler=handler)
        await api.submit(queue="mail")
        await api.submit(handler={"type": "http", "url": "https://shop.example/"})
        assert [run["handler"] for run in await hand.acquire(limit=2)] == ["a", "a"]
        assert [run["handler"] for run in await hand.acquire(limit=10)] == ["a"]
        assert len(await hand.acquire(limit=10, queues=["default", "mail"])) == 1
        (run,) = await hand.acquire(limit=10, tasks=["sexton.http"])
        assert (run["target"]["type"], run["target"]["url"]) == ("http", "https://shop.example/")

    async def test_a_remote_worker_joins_once(self, api: Api, hand: Hand) -> None:
        """E6: the log says so when it comes, and not with each of its heartbeats."""
        for _ in range(3):
            await hand.acquire(name="resizer")
        joined = [event for event in api.events if isinstance(event, WorkerJoined)]
        assert [str(event.worker_id) for event in joined] == [hand.worker_id]

    async def test_a_remote_worker_is_a_worker_like_any_other(self, api: Api, hand: Hand) -> None:
        """C6: it is listed, and its tasks are known, so submissions get no warning."""
        assert (await api.submit())["warnings"]
        await hand.acquire(name="resizer", queues=["default", "mail"], concurrency=7, limit=5)
        (listed,) = (await api.http.get("/v1/workers")).json()["items"]
        assert (listed["id"], listed["name"], listed["status"]) == (hand.worker_id, "resizer", "live")
        assert (listed["queues"], listed["tasks"], listed["concurrency"]) == (["default", "mail"], ["a"], 7)
        assert listed["running_count"] == 1
        api.state.known_tasks._read_at = float("-inf")
        assert (await api.submit())["warnings"] == []

    async def test_tenants_are_served_in_turn(self, api: Api, hand: Hand) -> None:
        """C6: fairness as for any worker, remembered from one claim to the next."""
        for tenant in ("one", "one", "one", "two", "two", "two"):
            await api.submit(tenant=tenant)
        served = [(await hand.one())["tenant"] for _ in range(6)]
        assert served == ["one", "two"] * 3

    async def test_a_completed_key_is_not_done_again(self, api: Api, hand: Hand) -> None:
        """C6: the run ends as for a worker of the cluster, and is not returned."""
        job = await api.submit(idempotency_key="once")
        async with api.database.connection() as connection:
            await connection.fetch("UPDATE sexton.idempotency_keys SET completed_at = now(), execution_id = job_id")
        assert await hand.acquire() == []
        shown = (await api.http.get(f"/v1/jobs/{job['id']}")).json()
        assert shown["status"] == "completed"
        assert "already completed" in shown["last_execution"]["reason"]

    async def test_a_worker_that_was_declared_dead_joins_again(self, api: Api, hand: Hand) -> None:
        """C6, rule "dead only when watched"."""
        await hand.acquire()
        async with api.database.connection() as connection:
            assert await workers.declare_lost(connection, {UUID(hand.worker_id): 0})
        problem(await hand.ask(), 409, "worker_lost")
        problem(await hand.beat(), 409, "worker_lost")
        dead, hand.worker_id = hand.worker_id, None
        await hand.acquire()
        assert hand.worker_id != dead

    async def test_the_ids_of_other_workers_and_of_callbacks_are_rejected(self, api: Api, hand: Hand) -> None:
        """C6: a heartbeat from outside would keep a dead worker alive."""
        async with api.database.connection() as connection:
            hand.worker_id = str(await enlist(connection, "a"))
        problem(await hand.ask(), 422, "invalid", "/worker_id")
        problem(await hand.beat(), 409, "worker_lost")
        hand.worker_id = str(callbacks.HOLDER)
        problem(await hand.ask(), 422, "invalid", "/worker_id")

    async def test_each_fault_is_named(self, api: Api, hand: Hand) -> None:
        """F2: and no worker has joined."""
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"tasks": []}, "/tasks"),
            ({"tasks": ["a", ""]}, "/tasks/1"),
            ({"tasks": ["a\x00"]}, "/tasks/0"),
            ({"queues": []}, "/queues"),
            ({"limit": 0}, "/limit"),
            ({"limit": 101}, "/limit"),
            ({"wait": "31s"}, "/wait"),
            ({"wait": "soon"}, "/wait"),
            ({"lease": 0.5}, "/lease"),
            ({"lease": "2h"}, "/lease"),
            ({"worker_id": "me"}, "/worker_id"),
            ({"colour": "red"}, "/colour"),
        ]
        for asked, pointer in wrong:
            problem(await hand.ask(**asked), 422, "invalid", pointer)
        assert await api.count("workers") == 0


class TestTheLongPoll:
    async def test_it_ends_when_a_run_is_ready(self, api: Api, hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
        """C6: by the notification, long before the next poll."""
        monkeypatch.setattr(long_polling, "POLL_S", 60.0)
        waiting = asyncio.create_task(hand.acquire(wait="30s"))
        await until(lambda: api.state.long_polling.waiting_count == 1)
        await until(lambda: is_listening(api))
        await api.submit()
        assert len(await asyncio.wait_for(waiting, 10)) == 1

    async def test_a_wake_up_while_it_claims_is_not_lost(self, api: Api, hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
        """C6: its claim has found nothing, and it does not wait yet."""
        for name in ("POLL_S", "POLL_BLIND_S"):
            monkeypatch.setattr(long_polling, name, 60.0)
        monkeypatch.setattr(api.database, "direct", False)
        assert await hand.acquire(wait="0.2s") == [], "the first poll is over"
        take, found = api.state.remote_claims.take, []

        async def slow_take(*args: Any, **options: Any) -> Any:
            found.append(await take(*args, **options))
            if len(found) == 1:
                await api.submit()
                api.state.long_polling.ring("default")
            return found[-1]

        monkeypatch.setattr(api.state.remote_claims, "take", slow_take)
        assert len(await asyncio.wait_for(hand.acquire(wait="30s"), 20)) == 1
        assert [len(each) for each in found] == [0, 1]

    async def test_notifications_with_any_names_take_up_no_memory(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        """C19: any role that may connect can send them. Names beyond the limit wake as an empty name does."""
        monkeypatch.setattr(long_polling, "QUEUES_LIMIT", 10)
        bell, group = api.state.long_polling, long_polling.Group.of(["late"], ["a"])
        for number in range(100):
            bell.ring(f"queue-{number}")
        heard = bell.heard(group)
        bell.ring("late")
        assert bell.heard(group) == heard + 1
        assert len(bell._heard) <= 11

    async def test_without_notifications_it_polls(self, api: Api, hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
        """C6: a pooler passes none on, and any may be lost."""
        monkeypatch.setattr(api.database, "direct", False)
        waiting = asyncio.create_task(hand.acquire(wait="30s"))
        await until(lambda: api.state.long_polling.waiting_count == 1)
        await api.submit()
        assert len(await asyncio.wait_for(waiting, 10)) == 1

    async def test_it_ends_empty_at_its_timeout_and_never_outlasts_the_lease(self, api: Api, hand: Hand) -> None:
        """C6: a worker that waits for the API is not dead."""
        began = asyncio.get_running_loop().time()
        assert await hand.acquire(wait="30s", lease="1s") == []
        assert 0.4 < asyncio.get_running_loop().time() - began < 5

    async def test_a_waiting_worker_does_not_hold_up_others(self, database: Postgres) -> None:
        """C6: it uses neither a place of the request limit nor a connection of the pool."""
        async with opened(database, api_request_limit=2, api_connection_limit=100) as api:
            waiting = []
            for count in range(1, 21):
                waiting.append(asyncio.create_task(Hand(api).acquire(wait="20s")))
                await until(lambda count=count: api.state.long_polling.waiting_count == count)  # type: ignore[misc]
            assert api.state.load_shedder.under_way_count == 0
            assert (await api.http.get("/v1/stats")).status_code == 200
            api.state.answer_all()
            assert await asyncio.gather(*waiting) == [[]] * 20
            problem(await Hand(api).ask(), 503, "overloaded")

    async def test_the_number_of_waiting_workers_is_bounded(self, database: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
        """C6: the others get Retry-After."""
        monkeypatch.setattr(database, "direct", False)  # without a notification the waiting ones keep waiting
        async with opened(database, api_connection_limit=2) as api:
            waiting = asyncio.create_task(Hand(api).acquire(wait="20s"))
            await until(lambda: api.state.long_polling.waiting_count == 1)
            refused = await Hand(api).ask(wait="20s")
            problem(refused, 503, "overloaded")
            assert refused.headers["retry-after"] == "1"
            await api.submit()
            assert len(await waiting) == 1

    async def test_of_several_workers_for_the_same_run_one_is_woken_and_wakes_the_next(
        self, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """C6: a thousand idle workers cost no more than one."""
        monkeypatch.setattr(long_polling, "POLL_S", 60.0)
        claims = count_claims(monkeypatch)
        waiting = [asyncio.create_task(Hand(api).acquire(wait="30s")) for _ in range(40)]
        await until(lambda: api.state.long_polling.waiting_count == 40)
        await until(lambda: is_listening(api))
        claims.clear()
        for _ in range(3):
            await api.submit()
        await until(lambda: sum(task.done() for task in waiting) == 3)
        assert len(claims) <= 20, "each of three, and a few that looked in vain or again: not each of forty"
        api.state.answer_all()
        found = [len(runs) for runs in await asyncio.gather(*waiting)]
        assert sorted(found) == [0] * 37 + [1] * 3

    async def test_a_wake_up_of_a_worker_that_disconnected_wakes_the_next(
        self, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """C6."""
        monkeypatch.setattr(api.database, "direct", False)  # no other wake-up
        bell, group = api.state.long_polling, long_polling.Group.of(["default"], ["a"])
        loop = asyncio.get_running_loop()
        gone, here = loop.create_future(), loop.create_future()
        waits = [asyncio.create_task(bell.wait(group, 30, caller)) for caller in (gone, here)]
        await until(lambda: bell.waiting_count == 2)
        bell.ring_one(group)
        gone.set_result(None)
        await asyncio.wait_for(asyncio.gather(*waits), 5)


class TestHangingUp:
    async def test_a_run_that_was_claimed_for_a_worker_that_disconnected_is_handed_back_at_once(
        self, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """C6: without waiting for the lease, and without spending an attempt, even for an at-most-once run, because no worker
        got it."""
        await api.submit()
        await api.submit(delivery="at_most_once")
        line = Line(b'{"tasks": ["a"], "limit": 5}')
        monkeypatch.setattr(runs, "claim", before(runs.claim, line.hang_up))
        await api.app(line.scope, line.receive, line.send)  # type: ignore[arg-type]
        assert await states(api) == [("ready", 0, 0), ("ready", 0, 0)]
        monkeypatch.undo()
        assert [run["attempt"] for run in await Hand(api).acquire(limit=5)] == [1, 1]

    async def test_a_broken_connection_is_noticed_while_it_waits(self, database: Postgres) -> None:
        """C6: another worker gets the runs that become ready then."""
        body = b'{"tasks": ["a"], "wait": "30s"}'
        head = f"POST /v1/workers/acquire HTTP/1.1\r\nHost: sexton\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        async with served(database) as api:
            _, writer = await asyncio.open_connection("127.0.0.1", int(api.address.rpartition(":")[2]))
            writer.write(head + body)
            await until(lambda: has_joined(database))
            writer.transport.abort()
            async with database.connection() as connection:
                await jobs.submit(connection, [submission("a", {})])
            held = await api.http.post("/v1/workers/acquire", json={"tasks": ["a"], "wait": "20s"})
            assert len(held.json()["runs"]) == 1

    async def test_a_worker_that_disconnects_while_it_waits_leaves_nothing_behind(self, api: Api) -> None:
        """C6."""
        line = Line(b'{"tasks": ["a"], "wait": "30s"}')
        call = asyncio.create_task(api.app(line.scope, line.receive, line.send))  # type: ignore[arg-type]
        await until(lambda: api.state.long_polling.waiting_count == 1)
        await line.hang_up()
        await asyncio.wait_for(call, 5)
        assert api.state.long_polling.waiting_count == 0
        await api.submit()
        assert await states(api) == [("ready", 0, 0)]


class TestWhatItHolds:
    async def test_a_claim_whose_answer_was_lost_is_handed_back_with_the_next_acquire(self, api: Api, hand: Hand) -> None:
        """Rule "reconcile lost replies": at once, spending no attempt. The same answer may return it again."""
        await api.submit()
        lost = await hand.one()
        again = await hand.one(holding=[])
        assert (again["run_id"], again["attempt"]) == (lost["run_id"], 1)
        problem(await hand.report(lost, "complete"), 409, "lease_lost")
        assert (await hand.report(again, "complete")).status_code == 200

    async def test_listed_runs_stay_claimed(self, api: Api, hand: Hand) -> None:
        """Rule "reconcile lost replies"."""
        await api.submit()
        run = await hand.one()
        assert await hand.acquire(holding=[run["run_id"]]) == []
        assert (await hand.report(run, "complete")).status_code == 200

    async def test_a_heartbeat_does_not_take_a_late_answer_for_a_lost_one(self, api: Api, hand: Hand) -> None:
        """Rule "reconcile lost replies": it may be sent while the answer to an acquire is in transit."""
        await api.submit()
        await hand.one()
        await hand.beat(holding=[])
        assert await states(api) == [("running", 1, 0)]
        await age(api, UNHEARD_S)
        await hand.beat(holding=[])
        assert await states(api) == [("ready", 0, 0)]

    async def test_without_a_list_no_run_is_handed_back(self, api: Api, hand: Hand) -> None:
        """Rule "reconcile lost replies"."""
        await api.submit()
        await hand.one()
        await age(api, 60)
        await hand.beat()
        await hand.acquire()
        assert await states(api) == [("running", 1, 0)]

    async def test_the_lost_start_of_an_at_most_once_run_is_its_only_one(self, api: Api, hand: Hand) -> None:
        """Rule "bounded prefetch": the claim is the start, even if the worker never got it."""
        job = await api.submit(delivery="at_most_once")
        await hand.one()
        assert await hand.acquire(holding=[]) == []
        assert (await api.http.get(f"/v1/jobs/{job['id']}")).json()["status"] == "failed"

    async def test_a_heartbeat_returns_the_runs_to_stop(self, api: Api, hand: Hand) -> None:
        """C6, C9: cancelled runs, and runs that another worker has by now."""
        submitted = [await api.submit() for _ in range(2)]
        held = await hand.acquire(limit=2)
        await api.http.delete(f"/v1/jobs/{submitted[0]['id']}")
        nobodys = str(uuid4())
        heard = (await hand.beat(holding=[run["run_id"] for run in held] + [nobodys])).json()
        assert heard["stop"] == [{"run_id": submitted[0]["id"], "why": "cancelled"}, {"run_id": nobodys, "why": "lost"}]
        assert heard["lease_s"] == 60.0
        (cancelled,) = [run for run in held if run["run_id"] == submitted[0]["id"]]
        assert (await hand.report(cancelled, "release")).json()["status"] == "cancelled"
        assert (await api.http.get(f"/v1/jobs/{submitted[0]['id']}")).json()["status"] == "cancelled"

    async def test_a_worker_that_leaves_hands_back_its_runs_and_is_forgotten(self, api: Api, hand: Hand) -> None:
        """C6."""
        await api.submit()
        await hand.one()
        response = await api.http.delete(f"/v1/workers/{hand.worker_id}")
        assert response.json() == {"worker_id": hand.worker_id, "released_count": 1}
        assert await states(api) == [("ready", 0, 0)]
        assert await api.count("workers") == 0
        problem(await api.http.delete(f"/v1/workers/{hand.worker_id}"), 409, "worker_lost")

    async def test_every_call_is_a_heartbeat(self, api: Api, hand: Hand) -> None:
        """C6, rule "dead only when watched"."""
        await api.submit()
        run = await hand.one()
        beats = [await beat_of(api)]
        await hand.acquire()
        beats.append(await beat_of(api))
        await hand.beat()
        beats.append(await beat_of(api))
        await hand.report(run, "heartbeat")
        beats.append(await beat_of(api))
        await hand.report(run, "complete")
        beats.append(await beat_of(api))
        assert beats == sorted(set(beats))


async def has_joined(database: Postgres) -> bool:
    async with database.connection() as connection:
        return bool(await connection.fetch("SELECT FROM sexton.workers"))


async def beat_of(api: Api) -> int:
    async with api.database.connection() as connection:
        return int((await connection.fetch("SELECT beat FROM sexton.workers"))[0][0])


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while True:
            answer = holds()
            if await answer if isinstance(answer, Awaitable) else answer:
                return
            await asyncio.sleep(0.005)


async def is_listening(api: Api) -> bool:
    async with api.database.connection() as connection:
        rows = await connection.fetch(
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'sexton listener'"
            " AND query LIKE 'LISTEN%' AND state = 'idle'"
        )
    return bool(rows)


def count_claims(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    made: list[int] = []
    plain = runs.claim

    async def counted(*given: Any, **named: Any) -> Any:
        made.append(1)
        return await plain(*given, **named)

    monkeypatch.setattr(runs, "claim", counted)
    return made


def before(function: Callable[..., Awaitable[Any]], first: Callable[[], Awaitable[None]]) -> Callable[..., Awaitable[Any]]:
    async def both(*given: Any, **named: Any) -> Any:
        await first()
        return await function(*given, **named)

    return both


class Line:
    """A caller that disconnects when the test says so."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._ended = asyncio.Event()
        self._is_read = False
        self.sent: list[Any] = []
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "path": "/v1/workers/acquire",
            "raw_path": b"/v1/workers/acquire",
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": [(b"host", b"sexton"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))],
            "server": ("sexton", 80),
            "client": ("127.0.0.1", 1),
        }

    async def hang_up(self) -> None:
        self._ended.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def receive(self) -> dict[str, Any]:
        if not self._is_read:
            self._is_read = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._ended.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
