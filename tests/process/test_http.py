"""Issue 8, point 5: a worker that is killed between a call and its report. The call is made again under the same key, and a
target that knows the key applies the effect once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sexton.domain.targets import HttpTarget
from tests.services.http_target import Received, answer, serving

from .cluster import SHORT, StartCluster

if TYPE_CHECKING:
    from sexton import App


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
            cluster.pause("first")  # it will never see the answer, though it has been given
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
