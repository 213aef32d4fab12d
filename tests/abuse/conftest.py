"""A real `sexton api` per test, a watch that polls its health all the time, and the measurements in the summary."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

import psutil
import pytest

from tests.process.cluster import Cluster
from tests.process.fork_server import ForkServer

from .watch import Victim

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

_ADDRESS = re.compile(r"address=http://127\.0\.0\.1:(\d+)")


class StartApi(Protocol):
    def __call__(self, **settings: object) -> Awaitable[Victim]: ...


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, [])]
    for text in (text for report in reports for name, text in report.user_properties if name == "abuse"):
        terminalreporter.write_line(f"abuse: {text}")


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Shows a measurement in the summary of the test run."""
    return lambda text: record_property("abuse", text)


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture
def cluster(tmp_path: Path, database_url: str, fork_server: ForkServer) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster", database_url, fork_server=fork_server)
    yield made
    made.close()


@pytest.fixture
def start_api(cluster: Cluster) -> StartApi:
    async def start(**settings: object) -> Victim:
        member = cluster.api("api", **settings)
        await cluster.until(lambda: _ADDRESS.search(member.log), "the API to listen")
        found = _ADDRESS.search(member.log)
        assert found is not None
        return Victim(int(found[1]), psutil.Process(member.pid), member)

    return start
