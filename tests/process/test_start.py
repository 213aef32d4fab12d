"""What a service refuses to start on, in one line that says what to do."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import asyncpg
import pytest

from .cluster import Cluster, StartCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


@pytest.fixture
async def clone_url(database_url: str, server_url: Callable[[str], str]) -> AsyncIterator[str]:
    """A copy of the test's database, as somebody would make it for staging."""
    original, clone = urlsplit(database_url).path.strip("/"), f"sexton_test_{secrets.token_hex(8)}"
    admin = await asyncpg.connect(server_url("postgres"))
    await admin.execute(f"CREATE DATABASE {clone} TEMPLATE {original}")
    yield server_url(clone)
    await admin.execute(f"DROP DATABASE {clone} WITH (FORCE)")
    await admin.close()


async def test_a_worker_and_a_scheduler_refuse_a_clone_until_it_is_adopted(clone_url: str, start_cluster: StartCluster) -> None:
    cluster = start_cluster(clone_url)
    cluster.worker("worker")
    cluster.scheduler("scheduler")
    for name in ("worker", "scheduler"):
        line = await refusal(cluster, name)
        assert "copied or restored from elsewhere" in line
        assert "--adopt" in line
    cluster.worker("adopting", "--adopt")
    await cluster.until_ready("adopting")
    cluster.scheduler("following")
    await cluster.until_ready("following")


async def test_services_refuse_an_empty_database_and_name_the_command(
    empty_database_url: str, start_cluster: StartCluster
) -> None:
    cluster = start_cluster(empty_database_url)
    cluster.worker("worker")
    cluster.scheduler("scheduler")
    for name in ("worker", "scheduler"):
        assert (await refusal(cluster, name)).endswith("run: sexton migrate")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("no_such_module:app", "there is no module 'no_such_module'"),
        ("tests.process.no_such_module:app", "there is no module 'tests.process.no_such_module'"),
        ("tests.process.apps:application", "has no 'application'"),
        ("tests.process.apps:nap", "not a sexton.App"),
        ("", "module:attribute"),
        (":app", "module:attribute"),
    ],
)
async def test_a_path_without_an_app_is_an_error_of_one_line(path: str, says: str, start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    cluster.worker("worker", app=path)
    assert says in await refusal(cluster, "worker")


async def refusal(cluster: Cluster, name: str) -> str:
    """The one line a service says before it ends with code 1."""
    assert await cluster.exit_code(name, within_s=15) == 1, cluster[name].log
    (line,) = cluster[name].log.splitlines()
    assert line.startswith("sexton: ")
    return line
