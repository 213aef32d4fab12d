"""When a service refuses to start: one line that says what to do."""

from __future__ import annotations

import os
import secrets
import signal
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import asyncpg
import pytest

from sexton.cli.exit_codes import Exit

from .cluster import Cluster, StartCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


@pytest.fixture
async def clone_url(database_url: str, server_url: Callable[[str], str]) -> AsyncIterator[str]:
    """A copy of the test's database, as an operator would make it for staging."""
    original, clone = urlsplit(database_url).path.strip("/"), f"sexton_test_{secrets.token_hex(8)}"
    admin = await asyncpg.connect(server_url("postgres"))
    await admin.execute(f"CREATE DATABASE {clone} TEMPLATE {original}")
    yield server_url(clone)
    await admin.execute(f"DROP DATABASE {clone} WITH (FORCE)")
    await admin.close()


async def test_services_refuse_a_clone_until_it_is_adopted(clone_url: str, start_cluster: StartCluster) -> None:
    cluster = start_cluster(clone_url)
    cluster.worker("worker")
    cluster.scheduler("scheduler")
    cluster.api("api")
    for name in ("worker", "scheduler", "api"):
        line = await refusal(cluster, name, Exit.CONFLICT)
        assert "copied or restored from another server" in line
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
    cluster.api("api")
    for name in ("worker", "scheduler", "api"):
        assert (await refusal(cluster, name, Exit.CONFLICT)).endswith("run: sexton migrate")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("no_such_module:app", "module 'no_such_module' was not found"),
        ("tests.process.no_such_module:app", "module 'tests.process.no_such_module' was not found"),
        ("tests.process.apps:application", "has no 'application'"),
        ("tests.process.apps:nap", "not a sexton.App"),
        ("", "module:attribute"),
        (":app", "module:attribute"),
    ],
)
async def test_a_path_without_an_app_is_an_error_of_one_line(path: str, says: str, start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    cluster.worker("worker", app=path)
    assert says in await refusal(cluster, "worker", Exit.FAILED)


async def test_services_wait_for_an_unreachable_database_and_stop_on_a_signal(start_cluster: StartCluster) -> None:
    """C12, F5: they may be started before the database; a service that waits can be stopped, which is not a failure."""
    cluster = start_cluster("postgresql://sexton:hunter2@127.0.0.1:1/db")
    cluster.worker("worker")
    cluster.scheduler("scheduler")
    cluster.api("api")
    for name, number in (("worker", signal.SIGTERM), ("scheduler", signal.SIGINT), ("api", signal.SIGTERM)):
        await cluster.until(lambda name=name: "database awaited" in cluster[name].log, f"{name} to wait")  # type: ignore[misc]
        os.kill(cluster[name].pid, number)
        assert await cluster.exit_code(name) == 0
        assert "cannot connect with SEXTON_DATABASE_URL" in cluster[name].log
        assert "hunter2" not in cluster[name].log


async def refusal(cluster: Cluster, name: str, code: Exit) -> str:
    """The one line that a service prints before it ends."""
    assert await cluster.exit_code(name, within_s=15) == code, cluster[name].log
    (line,) = cluster[name].log.splitlines()
    assert line.startswith("sexton: ")
    return line
