"""The example workers in curl and Node, as a user would run them: they drain a real cluster and report failures, and when one
is killed during a job, the next one executes it (C6, F3)."""

from __future__ import annotations

import os
import re
import shutil
from typing import Any

import httpx
import pytest

from .cluster import ROOT, SHORT, Cluster, StartCluster

LEASE_S = 3
EXAMPLES = {
    "curl": (["bash", "examples/remote_worker.sh"], "curl", {"handler": "nap", "payload": {"seconds": "soon"}}, "exit 1"),
    "node": (["node", "examples/remote_worker.mjs"], "node", {"handler": "shout", "payload": {}}, "toUpperCase"),
}
SHOUTED = {"curl": '{"TEXT": "HEAR \\"ME\\""}', "node": 'HEAR "ME"'}


class Service:
    """The API of a cluster, as its users see it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.http = httpx.AsyncClient(base_url=address)

    async def submit(self, **job: Any) -> str:
        response = await self.http.post("/v1/jobs", json=job)
        assert response.status_code == 201, response.text
        return str(response.json()["id"])

    async def job(self, job_id: str) -> dict[str, Any]:
        shown: dict[str, Any] = (await self.http.get(f"/v1/jobs/{job_id}")).json()
        return shown

    async def is_in(self, job_id: str, status: str) -> bool:
        return bool((await self.job(job_id))["status"] == status)

    async def workers(self) -> list[str]:
        items = (await self.http.get("/v1/workers")).json()["items"]
        return [one["name"] for one in items if one["status"] == "live"]


async def served(cluster: Cluster) -> Service:
    cluster.scheduler("scheduler")
    api = cluster.api("api")
    await cluster.until(lambda: "api listening" in api.log, "the API to listen")
    found = re.search(r"http://127\.0\.0\.1:\d+", api.log)
    assert found is not None
    await cluster.until_ready("scheduler")
    return Service(found[0])


def start(cluster: Cluster, name: str, example: str, service: Service) -> None:
    environment = {**os.environ, "SEXTON_API_URL": service.address, "LEASE": str(LEASE_S)}
    cluster._launch(name, EXAMPLES[example][0], environment, cluster.journal_directory.parent / f"{name}.log")


@pytest.mark.parametrize("example", EXAMPLES)
async def test_an_example_worker_drains_fails_dies_and_leaves(example: str, start_cluster: StartCluster) -> None:
    """C6 (b), F3: real processes on both sides."""
    _, tool, failing, error = EXAMPLES[example]
    if shutil.which(tool) is None:
        pytest.skip(
            f"{tool} is missing, so examples/ is not tested; install it: apt-get install {tool}{'js' * (tool == 'node')}"
        )
    cluster = start_cluster(**SHORT)
    service = await served(cluster)
    start(cluster, "first", example, service)

    jobs = [await service.submit(handler="shout", payload={"text": 'hear "me"'}) for _ in range(5)]
    for job_id in jobs:
        await cluster.until(lambda job_id=job_id: service.is_in(job_id, "completed"), "a shout")  # type: ignore[misc]
        assert (await service.job(job_id))["last_execution"]["result"] == SHOUTED[example]
    broken = await service.submit(**failing)
    await cluster.until(lambda: service.is_in(broken, "failed"), "the failure")
    assert error in (await service.job(broken))["last_execution"]["error"]["message"]

    nap = await service.submit(handler="nap", payload={"seconds": 2}, timeout="60s")
    await cluster.until(lambda: service.is_in(nap, "running"), "the nap to begin")
    cluster.kill("first")
    start(cluster, "second", example, service)
    took_s = await cluster.until(lambda: service.is_in(nap, "completed"), "the nap, by another")
    executions = (await service.http.get(f"/v1/jobs/{nap}/executions")).json()["items"]
    assert [one["status"] for one in executions] == ["succeeded", "lost"], took_s
    assert len({one["worker_id"] for one in executions}) == 2

    cluster.terminate("second")
    assert await cluster.exit_code("second") == 0
    assert example not in await service.workers()
    await service.http.aclose()


def test_the_examples_are_short() -> None:
    """C6: the page shows the code that is run."""
    for command, *_ in EXAMPLES.values():
        lines = (ROOT / command[1]).read_text().splitlines()
        assert len(lines) <= 60
        assert max(map(len, lines)) <= 128


def test_the_page_shows_the_examples_as_they_are() -> None:
    """D8: a reader copies only code that is run here."""
    page = (ROOT / "docs/how-to/remote-workers.md").read_text()
    for command, *_ in EXAMPLES.values():
        assert (ROOT / command[1]).read_text().rstrip() in page
