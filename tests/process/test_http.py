"""A worker is killed between a call and its report. The call is made again under the same key, and a target that checks the key
applies the effect once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sexton.domain.targets import HttpTarget
from sexton.handlers.http.hosts import FIRST_PERMITS
from tests.handlers.http_target import Received, answer, serving

from .cluster import SHORT, StartCluster

if TYPE_CHECKING:
    from sexton import App
    from tests.store.support import Conn


async def test_a_worker_killed_between_the_call_and_its_report_costs_no_second_effect(
    app: App, start_cluster: StartCluster
) -> None:
    """C6 (b), D4: at least once for the call, once for the effect."""
    cluster = start_cluster(**{**SHORT, "lease_s": 2.0}, outbound_allow="127.0.0.1:*")
    effects: dict[str, bytes] = {}
    async with serving() as target:

        async def deduplicating(received: Received, writer: asyncio.StreamWriter) -> None:
            effects.setdefault(received.headers["idempotency-key"], received.body)
            if len(target.received) > 1:
                writer.write(answer(200, b'"done"', Content_Type="application/json"))
                return
            cluster.pause("first")  # it will never see the answer, though the target has sent it
            writer.write(answer(200))
            await writer.drain()
            cluster.kill("first")

        target.answering = deduplicating
        cluster.scheduler("scheduler")
        cluster.worker("first")
        await cluster.until_ready()
        submitted = await app.submit(HttpTarget(f"{target.url}/pay"), {"amount": 7})
        await cluster.until(lambda: cluster["first"].process.poll() is not None, "the worker to be killed")
        cluster.worker("second")
        result = await submitted.result(timeout="30s")
    first, second = (received.headers for received in target.received)
    assert result["body"] == "done"
    assert first["idempotency-key"] == second["idempotency-key"]
    assert first["sexton-run"] == second["sexton-run"]
    assert list(effects.values()) == [b'{"amount": 7}']


async def test_a_target_that_is_back_gets_all_missed_calls_long_before_their_retry_times(
    app: App, start_cluster: StartCluster, connection: Conn
) -> None:
    """C10: at 10 calls a second, the last of them had been postponed by a minute."""
    cluster = start_cluster(**SHORT, outbound_allow="127.0.0.1:*", http_host_rest_s=1.0)

    async def all_are_away() -> bool:
        return bool(await connection.fetchval("SELECT count(*) = 600 FROM sexton.runs WHERE state = 'waiting'"))

    async def only_those_who_failed_are_left() -> bool:
        return bool(await connection.fetchval("SELECT count(*) <= $1 FROM sexton.runs", FIRST_PERMITS))

    async with serving() as target:
        target.says(answer(503))
        cluster.scheduler("scheduler")
        cluster.worker("worker")
        await cluster.until_ready()
        await app.submit_many([app.request(HttpTarget(f"{target.url}/{n}")) for n in range(600)])
        await cluster.until(all_are_away, "all to be sent away")
        target.says(answer(200))
        took_s = await cluster.until(only_those_who_failed_are_left, "all to be served")
    assert took_s < 15
