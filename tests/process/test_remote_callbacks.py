"""A long HTTP job across real processes: its target answers 202 and calls back, even if processes die in between (F3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sexton.store.work import callbacks

from .cluster import SHORT, StartCluster
from .test_remote_examples import served


class Target:
    """Answers every call with 202 and keeps the requests."""

    def __init__(self) -> None:
        self.calls: list[dict[str, str]] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines = head.decode().split("\r\n")[1:-2]
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            await reader.readexactly(int(headers.get("content-length", 0)))
            self.calls.append(headers)
            writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()


@asynccontextmanager
async def listening() -> AsyncIterator[Target]:
    target = Target()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await target.serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    target.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/work"
    try:
        yield target
    finally:
        server.close()


async def test_the_death_of_the_worker_that_called_costs_a_long_job_nothing(start_cluster: StartCluster) -> None:
    """F3: the target was called once, and its callback ends the run."""
    cluster = start_cluster(**SHORT)
    service = await served(cluster)
    cluster._start("worker", ["worker"], {"public_url": service.address, "outbound_allow": "127.0.0.1:*"})
    async with listening() as target:
        job_id = await service.submit(handler={"type": "http", "url": target.url}, timeout="60s")

        async def is_handed_over() -> bool:
            last = (await service.job(job_id))["last_execution"]
            return last is not None and last["worker_id"] == str(callbacks.HOLDER)

        await cluster.until(is_handed_over, "the run to be handed over")
        cluster.kill("worker")

        async def is_lost() -> bool:
            return "lost" in [one["status"] for one in (await service.http.get("/v1/workers")).json()["items"]]

        await cluster.until(is_lost, "the worker to be declared dead")
        (call,) = target.calls
        assert call["sexton-callback"] == f"{service.address}/v1/runs/{job_id}"
        headers = {"Authorization": f"Bearer {call['sexton-callback-token']}"}

        async def post(verb: str, **body: Any) -> int:
            response = await service.http.post(f"{call['sexton-callback']}/{verb}", json=body, headers=headers)
            return response.status_code

        assert await post("heartbeat", progress={"fraction": 0.5}) == 200
        assert await post("complete", result={"rows": 3}) == 200
        assert await post("complete", result={"rows": 3}) == 200, "its first answer may have been lost"
        assert await post("fail", error="changed my mind") == 409
        shown = await service.job(job_id)
        assert (shown["status"], shown["last_execution"]["result"]) == ("completed", {"rows": 3})
        assert len((await service.http.get(f"/v1/jobs/{job_id}/executions")).json()["items"]) == 1
        assert len(target.calls) == 1
        assert call["sexton-callback-token"] not in cluster.logs()
    await service.http.aclose()
