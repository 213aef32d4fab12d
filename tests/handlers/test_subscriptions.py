"""C15, F3: events from the end of a run to a real receiver; and their commands and client functions."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import sys
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from sexton import InvalidSubmission, NotAllowedIn, NotFound, Retry
from sexton.cli import main as cli
from sexton.clock import Clock, ManualClock, SystemClock
from sexton.domain.job import submission
from sexton.domain.partition import ALL, Scan
from sexton.domain.subscription import Kind, subscription
from sexton.domain.targets import HTTP_TASK, HttpTarget, SecretRef
from sexton.handlers.context import Context
from sexton.ids import entropy
from sexton.operations import subscriptions
from sexton.registry import Definition, Registry
from sexton.settings import Settings
from sexton.store.database import Postgres
from sexton.store.views.search import JobFilter
from sexton.store.work import jobs, runs
from sexton.store.work import subscriptions as subscription_rows
from sexton.worker.worker import Worker
from tests.callers import TESTER
from tests.client import test_remote
from tests.handlers.http_target import Caller, Received, Server, answer, serving
from tests.rig import NOW, Rig

SECRET = "whsec_" + base64.b64encode(b"a secret of the tests").decode()
FAST = Retry.after("1s", "2s", jitter=0)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as server:
        yield server


def work(_context: Context, *, fails: bool = False) -> dict[str, int]:
    if fails:
        raise ValueError("no")
    return {"sent": 1}


class House:
    """One worker for Python tasks and HTTP jobs; the test controls time."""

    def __init__(self, database: Postgres, clock: Clock, **options: Any) -> None:
        self.database, self.clock = database, clock
        self.calls = Caller(secrets={"HOOKS": SECRET}, clock=clock, **options).calls
        registry = Registry()
        registry.add(Definition("work", work, __name__, "work"))
        self.worker = Worker(
            database,
            registry,
            Settings(worker_concurrency=8),
            timers=asyncio.get_running_loop(),
            clock=clock,
            emit=lambda _event: None,
            rng=entropy(),
            poll_s=0.0,
            targets={HTTP_TASK: self.calls},
        )

    async def subscribe(self, url: str, kinds: tuple[Kind, ...] = ("completed", "dead_lettered"), **given: Any) -> None:
        target = HttpTarget(url, signed_with=("hooks",))
        async with self.database.connection() as connection:
            subscribed = subscription("orders", target, kinds=kinds, retry=FAST, **given)
            await subscriptions.put(connection, TESTER, subscribed, now=self.clock.database_now())

    async def submit(self, **payload: Any) -> str:
        async with self.database.connection() as connection:
            document = submission("work", payload, retry=Retry.never())
            (made,) = await jobs.submit(connection, [document], now=self.clock.database_now())
        return str(made.id)

    async def drain(self) -> None:
        """Runs all due jobs, and the jobs that these submit."""
        async with self.database.connection() as connection:
            await self.worker.enlist(connection)
        while True:
            async with self.database.connection() as connection:
                await runs.promote(connection, Scan(ALL, 100), now=self.clock.database_now())
            for intake in self.worker.intakes:
                await intake.run_once()
            if not len(self.worker.held_runs):
                return
            while len(self.worker.held_runs):
                await self.worker.reporter.wake.rest(1.0)
                await self.worker.reporter.run_once()

    async def log(self) -> list[subscription_rows.Delivery]:
        async with self.database.connection() as connection:
            return list((await subscription_rows.deliveries(connection, "orders", JobFilter(), limit=100)).rows)


@pytest.fixture
async def house(database: Postgres) -> AsyncIterator[House]:
    house = House(database, ManualClock(NOW))
    yield house
    await house.calls.close()


def is_signed(received: Received) -> bool:
    """Verified as a receiver with the secret does, by Standard Webhooks."""
    signed = f"{received.headers['webhook-id']}.{received.headers['webhook-timestamp']}.".encode() + received.body
    expected = base64.b64encode(hmac.new(base64.b64decode(SECRET.removeprefix("whsec_")), signed, hashlib.sha256).digest())
    return hmac.compare_digest(received.headers["webhook-signature"], "v1," + expected.decode())


async def test_a_receiver_gets_one_signed_event_without_polling(database: Postgres, server: Server) -> None:
    """C15: from the end of a run to the request, verified by an independent implementation of Standard Webhooks."""
    house = House(database, SystemClock())
    await house.subscribe(server.url + "/hook")
    job_id = await house.submit()
    await house.drain()
    await house.calls.close()
    (received,) = server.received
    assert (received.method, received.path) == ("POST", "/hook")
    assert received.headers["content-type"] == "application/json"
    assert is_signed(received)
    event = Webhook(SECRET).verify(received.body, received.headers)
    assert (event["type"], event["data"]["job_id"], event["data"]["result"]) == ("run.completed", job_id, {"sent": 1})
    (entry,) = await house.log()
    assert (entry.job.status, entry.response_status) == ("completed", 200)


async def test_a_failed_delivery_is_retried_and_replayed_under_the_same_id(house: House, server: Server) -> None:
    """C15: its own retries, its own dead letter, no event about itself; `webhook-id` stays the same through attempts and
    replays."""
    server.says(answer(500, b"not now"))
    await house.subscribe(server.url, kinds=("completed", "failed", "dead_lettered", "missed"))
    job_id = await house.submit(fails=True)
    await house.drain()
    for wait_s in (1, 2, 60):
        assert isinstance(house.clock, ManualClock)
        house.clock.move(timedelta(seconds=wait_s))
        await house.drain()
    log = await house.log()
    assert sorted(entry.delivers.kind for entry in log) == ["dead_lettered", "failed"]
    assert {(entry.job.status, entry.job.attempt, entry.response_status) for entry in log} == {("failed", 3, 500)}
    assert len(server.received) == 6
    assert all(is_signed(received) for received in server.received)
    ids = {received.headers["webhook-id"] for received in server.received}
    assert len(ids) == 2
    server.received.clear()
    server.says(answer(204))
    for _ in range(2):  # for the buried delivery, then for the successful one
        async with house.database.transaction() as connection:
            every = [entry.job.id for entry in log]
            assert len(await subscriptions.replay(connection, TESTER, "orders", every, now=house.clock.database_now())) == 2
        await house.drain()
    assert {entry.response_status for entry in await house.log()} == {204}
    assert {received.headers["webhook-id"] for received in server.received} == ids
    assert len(server.received) == 4
    assert {json.loads(received.body)["data"]["job_id"] for received in server.received} == {job_id}


async def test_it_works_through_a_pooler(pooled_url: str, server: Server) -> None:
    """B10, rule "session state only on direct connections": it uses no session state."""
    database = await Postgres.open(pooled_url)
    house = House(database, ManualClock(NOW))
    await house.subscribe(server.url)
    await house.submit()
    await house.drain()
    assert [entry.job.status for entry in await house.log()] == ["completed"]
    await house.calls.close()
    await database.close()


@pytest.mark.parametrize("status", [400, 404, 410])
async def test_a_receiver_that_rejects_a_delivery_is_called_again(house: House, server: Server, status: int) -> None:
    """C15: it may be under repair; for other jobs a 404 is permanent."""
    server.says(answer(status), answer(200))
    await house.subscribe(server.url)
    await house.submit()
    await house.drain()
    assert isinstance(house.clock, ManualClock)
    house.clock.move(timedelta(seconds=1))
    await house.drain()
    assert [entry.job.status for entry in await house.log()] == ["completed"]


async def test_202_counts_as_delivered_and_the_receiver_gets_no_callback_token(database: Postgres, server: Server) -> None:
    """C15: many receivers answer 202, and none of them calls back."""
    house = House(database, ManualClock(NOW), public_url="http://sexton.example", token=lambda _call: "let me")
    server.says(answer(202))
    await house.subscribe(server.url)
    await house.submit()
    await house.drain()
    await house.calls.close()
    assert [entry.job.status for entry in await house.log()] == ["completed"]
    assert not any(name.startswith("sexton-callback") for name in server.received[0].headers)


async def test_the_janitor_submits_held_deliveries(database: Postgres) -> None:
    """C15: a delivery that could not be submitted is not lost."""
    rig = Rig(database)
    given = subscription("orders", HttpTarget("https://hooks.example"), kinds=["completed"])
    async with database.connection() as connection:
        await subscriptions.put(connection, TESTER, given, now=NOW)
    await rig.execute(f"ALTER TABLE sexton.jobs ADD CONSTRAINT broken CHECK (task <> '{HTTP_TASK}') NOT VALID")
    job_id = await rig.submit()
    worker = await rig.worker()
    await worker.take()
    worker.stage.running[0].returns()
    await worker.report()
    assert await rig.status(job_id) == "completed"
    await rig.janitor().run_once()
    assert len(await rig.execute("SELECT FROM sexton.held_deliveries")) == 1
    await rig.execute("ALTER TABLE sexton.jobs DROP CONSTRAINT broken")
    await rig.janitor().run_once()
    assert await rig.execute("SELECT FROM sexton.held_deliveries") == []
    assert len(await rig.execute("SELECT FROM sexton.jobs WHERE name = 'webhook:orders'")) == 1


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], database_url: str) -> Call:
    """Runs the command with these arguments. Returns its exit code, output and error output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEXTON_DATABASE_URL", database_url)

    def called(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sexton", "subscriptions", *arguments])
        with pytest.raises(SystemExit) as exited:
            cli.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return int(exited.value.code or 0), out, err

    return called


def test_subscriptions_are_added_listed_shown_and_removed(call: Call) -> None:
    """C15, E6."""
    assert call() == (0, "", "no subscriptions\n")
    told = ["--kind", "completed", "--kind", "missed", "--tenant", "acme", "--run-queue", "mail", "--signed-with", "hooks"]
    sent = ["--header", "X-From: sexton", "--header", "Authorization: secret:login", "--max-attempts", "3", "--timeout", "5s"]
    code, out, _ = call("add", "orders", "https://hooks.example/x", *told, *sent, "--priority", "low", "--json")
    made = json.loads(out)
    assert code == 0
    assert (made["kinds"], made["filter"]) == (["completed", "missed"], {"tenant": "acme", "queue": "mail"})
    assert made["headers"] == {"X-From": "sexton", "Authorization": {"secret": "login"}}
    assert (made["retry"]["max_attempts"], made["timeout_s"], made["priority"]) == (3, 5.0, "low")
    assert "tenant acme, queue mail" in call("list")[1]
    assert "signed with" in call("show", "orders")[1]
    assert call("remove", "orders")[0] == 2
    assert call("remove", "orders", "--yes")[:2] == (0, "orders removed, 0 deliveries cancelled\n")
    assert call("show", "orders")[0] == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "orders", "ftp://hooks.example"], "url"),
        (["add", "a b", "https://hooks.example"], "name"),
        (["add", "orders", "https://hooks.example", "--kind", "started"], "kinds"),
        (["add", "orders", "https://hooks.example", "--header", "X"], "--header"),
        (["add", "orders", "https://hooks.example", "--job", "7"], "job_id"),
        (["replay", "orders"], "select in one way"),
        (["replay", "orders", "x", "--failed"], "select in one way"),
        (["replay", "orders", "--status", "any", "--from", "yesterday", "--yes"], "--from"),
    ],
)
def test_an_invalid_argument_is_reported(call: Call, arguments: list[str], message: str) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert message in err


async def _three_that_failed(database_url: str) -> None:
    database = await Postgres.open(database_url)
    clock = ManualClock(NOW)
    house = House(database, clock)
    async with serving() as server:
        server.says(answer(500))
        await house.subscribe(server.url, kinds=("completed",))
        for _ in range(3):
            await house.submit()
        for wait_s in (0, 1, 2):
            clock.move(timedelta(seconds=wait_s))
            await house.drain()
    await house.calls.close()
    await database.close()


def test_the_log_and_replays_from_the_command_line(database_url: str, call: Call) -> None:
    """C15, E6."""
    asyncio.run(_three_that_failed(database_url))
    code, out, _ = call("deliveries", "orders", "--status", "failed", "--json")
    log = json.loads(out)
    assert (code, [one["response_status"] for one in log]) == (0, [500, 500, 500])
    table = call("deliveries", "orders")[1]
    assert "answered 500" in table
    assert log[0]["id"] in table
    assert call("replay", "orders", "--failed", "--dry-run")[1] == "3 would be sent again\n"
    assert call("replay", "orders", log[0]["id"])[1] == "1 sent again\n"
    assert call("replay", "orders", log[0]["id"])[0] == 5
    assert call("replay", "orders", "--failed")[0] == 2
    assert call("replay", "orders", "--failed", "--limit", "1", "--yes")[1] == "1 sent again; there are more\n"
    since = ("--from", "2026-03-01T00:00:00Z")
    assert call("replay", "orders", "--status", "any", *since, "--yes")[1] == "1 sent again\n"
    assert call("remove", "orders", "--yes")[1] == "orders removed, 3 deliveries cancelled\n"


address, face = test_remote.address, test_remote.face  # the real API on a socket, and each of the two clients


async def test_both_clients_return_the_same(database: Postgres, house: House, face: test_remote.Face) -> None:
    """C15."""
    options = {"kinds": ["completed"], "tenant": "acme", "retry": FAST, "timeout": timedelta(seconds=5)}
    made = await face.set_subscription("orders", "https://hooks.example", **options)
    assert (made.filter.tenant, made.timeout_s, made.retry.delays) == ("acme", 5.0, (1.0, 2.0))
    assert await face.subscription("orders") == made
    assert [one.name for one in await face.subscriptions()] == ["orders"]
    assert await face.deliveries("orders", status="failed") == []
    assert (await face.replay_deliveries("orders", status=None)).matched_count == 0
    with pytest.raises(NotFound):
        await face.replay_delivery("orders", "00000000-0000-7000-8000-000000000000")
    with pytest.raises(InvalidSubmission, match="cannot be set"):
        await face.set_subscription("orders", "https://hooks.example", colour="blue")
    await face.set_subscription("orders", "https://hooks.example", headers={"Authorization": SecretRef("login", "Bearer ")})
    await house.submit()
    async with database.transaction() as connection:
        rows = await connection.fetch("SELECT id FROM sexton.runs")
        done = {"token": 0, "next": "end", "status": "succeeded", "ending": "completed"}
        reports = [{"run_id": str(row["id"]), **done} for row in rows]
        await connection.fetch("SELECT * FROM sexton.finish_runs($1::jsonb)", json.dumps(reports))
    (entry,) = await face.deliveries("orders")
    with pytest.raises(NotAllowedIn):
        await face.replay_delivery("orders", entry.id)
    assert (await face.remove_subscription("orders")).cancelled_count == 1
