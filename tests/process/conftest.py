"""A cluster of real processes per test, and the test's connection to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .apps import make
from .cluster import Cluster, StartCluster
from .fork_server import ForkServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from sexton import App


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Shows the measured values, also of failed tests."""
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, [])]
    for text in (text for report in reports for name, text in report.user_properties if name == "figure"):
        terminalreporter.write_line(f"measured: {text}")


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Shows a measurement in the summary of the test run."""
    return lambda text: record_property("figure", text)


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer | None]:
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture
def start_cluster(tmp_path: Path, database_url: str, fork_server: ForkServer | None) -> Iterator[StartCluster]:
    """Creates clusters on the test's database or on another one; their processes end with the test."""
    started: list[Cluster] = []

    def start(url: str = database_url, /, **settings: object) -> Cluster:
        cluster = Cluster(tmp_path / f"cluster{len(started)}", url, settings, fork_server=fork_server)
        started.append(cluster)
        return cluster

    yield start
    for cluster in started:
        cluster.close()


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[App]:
    async with make(database_url) as app:
        yield app
