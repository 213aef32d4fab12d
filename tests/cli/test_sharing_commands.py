"""`sexton tenants`, `queues` and `limits`, and the same functions of the SDK and the remote client."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import psycopg
import pytest

from sexton import (
    App,
    AsyncClient,
    Client,
    Context,
    InvalidSubmission,
    Limit,
    LimitExceeded,
    NotAllowedIn,
    NotFound,
    Retry,
    testing,
)
from sexton.api.app import create
from sexton.cli import main as cli
from sexton.client.remote import retries
from sexton.clock import SystemClock
from sexton.ids import entropy
from sexton.settings import Settings
from sexton.store.database import Postgres

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], database_url: str) -> Call:
    """Runs the command with these arguments. Returns its exit code, output and error output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEXTON_DATABASE_URL", database_url)

    def called(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sexton", *arguments])
        with pytest.raises(SystemExit) as exited:
            cli.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return int(exited.value.code or 0), out, err

    return called


class TestCommands:
    def test_tenants_are_listed_set_paused_and_forgotten(self, call: Call) -> None:
        """C8, C9, E6: `set` changes only the given fields."""
        assert call("tenants")[::2] == (0, "no tenant has live work or settings\n")
        code, out, _ = call("tenants", "set", "acme", "--weight", "3", "--running-max", "50", "--submit-rate", "2.5")
        assert code == 0
        assert {"weight        3", "submit rate   2.5/s", "submit burst  3", "running       0 of 50"} <= set(out.splitlines())
        found = json.loads(call("tenants", "set", "acme", "--waiting-max", "10", "--jitter", "30s", "--json")[1])
        assert (found["weight"], found["running_max"], found["waiting_max"], found["jitter_s"]) == (3, 50, 10, 30)
        found = json.loads(call("tenants", "set", "acme", "--submit-rate", "0", "--running-max", "0", "--json")[1])
        assert (found["submit_rate"], found["submit_burst"], found["running_max"], found["waiting_max"]) == (
            None,
            None,
            None,
            10,
        )
        assert call("tenants", "pause", "acme", "--note", "unpaid")[:2] == (0, "acme paused\n")
        header, row = call("tenants")[1].splitlines()
        assert header.split() == ["TENANT", "READY", "RUNNING", "WAITING", "PARKED", "WEIGHT", "LIMITS", "STATUS"]
        assert row.split() == ["acme", "0", "0", "0", "0", "3", "10", "waiting", "paused"]
        assert "unpaid" in call("tenants", "show", "acme")[1]
        assert call("tenants", "resume", "acme")[:2] == (0, "acme resumed\n")
        assert call("tenants", "list")[1] == call("tenants")[1]
        assert json.loads(call("tenants", "--json")[1]) == json.loads(call("tenants", "list", "--json")[1])
        assert call("tenants", "remove", "acme")[0] == 0
        assert call("tenants", "remove", "acme")[0] == 4
        assert call("tenants", "show", "acme")[0] == 4

    def test_queues_are_listed_set_paused_and_forgotten(self, call: Call) -> None:
        """C11, E6."""
        arguments = ("--release-rate", "50", "--ageing", "10m", "--timeout", "0", "--max-attempts", "3")
        code, out, _ = call("queues", "set", "mail", *arguments)
        assert code == 0
        assert {"release rate   50/s", "release burst  5", "ageing         600 s", "timeout        none"} <= set(
            out.splitlines()
        )
        found = json.loads(call("queues", "set", "mail", "--jitter", "5s", "--ageing", "0", "--json")[1])
        assert (found["release_rate"], found["ageing_s"], found["timeout_s"], found["jitter_s"]) == (50, None, 0, 5)
        assert found["retry"]["max_attempts"] == 3
        assert json.loads(call("queues", "set", "mail", "--release-rate", "0", "--json")[1])["release_burst"] is None
        assert call("queues", "pause", "mail", "--note", "down")[:2] == (0, "mail paused\n")
        assert call("queues")[1].splitlines()[1].split()[-1] == "paused"
        assert "down" in call("queues", "show", "mail")[1]
        assert call("queues", "resume", "mail")[:2] == (0, "mail resumed\n")
        assert call("queues", "remove", "mail")[0] == 0
        assert call("queues", "remove", "mail")[0] == 4

    def test_limits_are_listed_shown_set_and_removed(self, call: Call) -> None:
        """C10, E6."""
        assert call("limits")[::2] == (0, "no limits\n")
        code, out, _ = call("limits", "set", "stripe", "--running", "5", "--count", "10", "--per", "1s")
        assert code == 0
        assert "limit            5 at once, 10 per 1 s" in out
        job_id = call("submit", "a", "--limit", "stripe")[1].strip()
        header, row = call("limits", "list", "--prefix", "str")[1].splitlines()
        assert header.split() == ["KEY", "LIMIT", "HELD", "PARKED"]
        assert row.split() == ["stripe", *["5", "at", "once,", "10", "per", "1", "s"], "0", "1"]
        assert json.loads(call("limits", "show", "stripe", "--json")[1])["parked_count"] == 1
        code, _, err = call("limits", "remove", "stripe")
        assert code == 5
        assert "1 run waits" in err
        assert call("jobs", "cancel", job_id)[0] == 0
        assert call("limits", "remove", "stripe")[:2] == (0, "stripe removed\n")
        assert call("limits", "show", "stripe")[0] == 4

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["tenants", "set", "a"], "--weight"),
            (["tenants", "set", "a", "--weight", "0"], "sexton: --weight: "),
            (["queues", "set", "a"], "--release-rate"),
            (["queues", "set", "a", "--ageing", "soon"], "sexton: --ageing: "),
            (["limits", "set", "a"], "--running"),
            (["limits", "set", "a", "--count", "5"], "sexton: --per: "),
            (["limits", "set", "@a", "--running", "5"], "/key"),
            (["submit", "a", "--limit", "nobody-set-it"], "sexton: --limit: "),
        ],
    )
    def test_invalid_input_exits_with_2_and_one_line(self, call: Call, arguments: list[str], words: str) -> None:
        """E6, F2."""
        code, out, err = call(*arguments)
        assert (code, out) == (2, "")
        assert words in err
        assert len(err.splitlines()) == 1

    def test_a_tenant_over_its_limit_exits_with_5_and_the_reason(self, call: Call) -> None:
        """C9, E6."""
        call("tenants", "set", "acme", "--waiting-max", "1")
        assert call("submit", "a", "--tenant", "acme")[0] == 0
        code, out, err = call("submit", "a", "--tenant", "acme")
        assert (code, out) == (5, "")
        assert "acme" in err
        code, _, err = call("submit", "a", "--tenant", "acme", "--json")
        assert (code, json.loads(err)["limit"]) == (5, "waiting")


class TestApp:
    async def test_an_app_sets_limits_for_others(self, database_url: str) -> None:
        """C8-C11."""
        async with App(database_url) as app:
            await app.set_tenant("acme", weight=3, waiting_max=2, jitter="5s")
            await app.pause_tenant("acme", note="x")
            tenant = await app.tenant("acme")
            assert tenant is not None
            assert (tenant.weight, tenant.waiting_max, tenant.jitter_s, tenant.note, tenant.paused_by) == (3, 2, 5, "x", "app")
            await app.resume_tenant("acme")
            for _ in range(2):
                await app.submit("a", tenant="acme")
            with pytest.raises(LimitExceeded) as raised:
                await app.submit("a", tenant="acme")
            assert (raised.value.limit, raised.value.tenant, raised.value.max) == ("waiting", "acme", 2)
            await app.remove_tenant("acme")
            with pytest.raises(NotFound):
                await app.remove_tenant("acme")
            await app.set_queue("mail", release_rate=5, retry=Retry.never())
            await app.pause_queue("mail")
            queue = await app.queue("mail")
            assert queue is not None
            assert (queue.release_rate, queue.retry, queue.paused_by) == (5, Retry.never(), "app")
            await app.resume_queue("mail")
            await app.remove_queue("mail")
            assert await app.queue("mail") is None
            await app.set_limit("stripe", running=5)
            await app.submit("a", limit="stripe")
            limit = await app.limit("stripe")
            assert limit is not None
            assert (limit.running, limit.parked_count) == (5, 1)
            with pytest.raises(NotAllowedIn, match="1 run waits"):
                await app.remove_limit("stripe")
            with pytest.raises(NotFound):
                await app.remove_limit("none")
            for wrong in (app.set_tenant("a", weight=0), app.set_queue("", ageing=1), app.set_limit("a")):
                with pytest.raises(InvalidSubmission):
                    await wrong

    async def test_a_task_names_its_limit_and_a_job_may_name_another(self, database_url: str) -> None:
        """C10: at submission; for jobs submitted in plain SQL, by the options that workers registered."""
        async with App(database_url) as app:

            @app.task(limit={"key": "mail:{payload.to}", "running": 1})
            async def send(ctx: Context, to: str) -> None: ...

            await send.submit(to="ann")
            await send.submit(to="bob", limit=Limit("other", count=10, per_s=1.0))
            assert [one is not None for one in (await app.limit("mail:ann"), await app.limit("mail:bob"))] == [True, False]
            other = await app.limit("other")
            assert other is not None
            assert (other.count, other.burst) == (10, 1)
            with pytest.raises(InvalidSubmission, match="brace") as raised:
                await send.submit(to="x", limit="a{")
            assert raised.value.field == "/limit/key"
            with pytest.raises(InvalidSubmission, match="there is no limit"):
                await send.submit(to="x", limit="nobody-set-it")
            async with testing.pipeline(app, start=datetime.now(UTC) + timedelta(seconds=1)) as pipeline:
                await pipeline.drain()
            ended = await app.limit("mail:ann")
            assert ended is not None
            assert (ended.held_count, ended.parked_count) == (0, 0)
            options = app.registry.get("send")
            assert options is not None
            assert options.options["limit"] == {"key": "mail:{payload.to}", "running": 1}

    async def test_a_limit_is_reported_through_a_connection_of_the_caller(self, database_url: str) -> None:
        """C9: with any driver."""
        async with App(database_url) as app:
            await app.set_tenant("acme", submit_rate=0.01)
            await app.submit("a", tenant="acme")

            def with_psycopg() -> None:
                with psycopg.connect(database_url) as connection:
                    app.submit_sync("a", tenant="acme", connection=connection)

            with pytest.raises(LimitExceeded) as raised:
                await asyncio.to_thread(with_psycopg)
            assert (raised.value.limit, raised.value.tenant) == ("submit_rate", "acme")
            assert raised.value.retry_after_s == pytest.approx(100, abs=5)


class TestRemote:
    async def test_both_clients_set_the_same(self, database: Postgres) -> None:
        """C8-C11."""
        api = create(database, Settings(), clock=SystemClock(), emit=lambda _: None, rng=entropy())
        async with AsyncClient("http://x", transport=httpx.ASGITransport(api)) as client:  # type: ignore[arg-type]
            assert (await client.set_tenant("a/b", weight=2, jitter=timedelta(seconds=5))).jitter_s == 5
            assert (await client.pause_tenant("a/b", note="n")).status == "paused"
            assert (await client.resume_tenant("a/b")).status == "active"
            assert (await client.remove_tenant("a/b")).removed
            assert (await client.set_queue("q", release_rate=5, retry=Retry.never())).release_burst == 1
            assert (await client.pause_queue("q")).status == "paused"
            assert (await client.resume_queue("q")).status == "active"
            assert (await client.remove_queue("q")).removed
            for n in range(3):
                await client.set_limit(f"k/{n}", count=10, per=timedelta(seconds=2))
            assert [one.key async for one in client.limits("k/", limit=2)] == ["k/0", "k/1"]
            assert (await client.limit("k/0")).per_s == 2
            assert (await client.remove_limit("k/0")).removed
            handle = await client.submit("a", limit={"key": "k/1"})
            assert handle.job.limit is not None
            assert handle.job.limit.key == "k/1"
            with pytest.raises(NotAllowedIn):
                await client.remove_limit("k/1")
            with pytest.raises(InvalidSubmission, match="cannot be set"):
                await client.set_tenant("a", wieght=2)  # type: ignore[call-arg]
            with pytest.raises(InvalidSubmission):
                await client.submit("a", limit={"kye": "a"})
        await api.state["api"].close()
        faces = [{name for name in dir(face) if not name.startswith("_")} for face in (Client, AsyncClient)]
        assert faces[0] ^ faces[1] <= {"aclose", "close"}

    async def test_a_short_wait_is_made_and_a_long_one_is_an_error(
        self, database: Postgres, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """C9: the caller decides what to do for an hour."""
        monkeypatch.setattr(retries, "PAUSE_S_MAX", 2.0)
        api = create(database, Settings(), clock=SystemClock(), emit=lambda _: None, rng=entropy())
        sent: list[int] = []

        async def count(response: httpx.Response) -> None:
            sent.append(response.status_code)

        async with AsyncClient("http://x", transport=httpx.ASGITransport(api)) as client:  # type: ignore[arg-type]
            client._http.event_hooks = {"response": [count]}
            await client.set_tenant("slow", submit_rate=0.001)
            await client.set_tenant("quick", submit_rate=2, submit_burst=1)
            await client.submit("a", tenant="slow")
            with pytest.raises(LimitExceeded) as raised:
                await client.submit("a", tenant="slow")
            assert (raised.value.limit, sent.count(429)) == ("submit_rate", 1)
            assert (raised.value.retry_after_s or 0) > 900
            for _ in range(2):
                await client.submit("a", tenant="quick")
            assert sent.count(429) <= 2
        await api.state["api"].close()
