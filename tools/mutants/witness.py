"""A pytest plugin that records which test failed first, and in which phase: setup, call or teardown."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

PATH = "MUTANTS_WITNESS"  # the environment variable with the path of the output file


class Testimony(msgspec.Struct):
    failed: list[str] = []  # tests, in the order of their failures
    when: str = ""  # phase of the first failure: collect, setup, call or teardown
    error: str = ""
    passed_count: int = 0

    def add(self, test: str, when: str, error: str) -> None:
        if not self.failed:
            self.when, self.error = when, error
        if test not in self.failed:
            self.failed.append(test)


class Witness:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._testimony = Testimony()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._testimony.add(report.nodeid, "collect", _last_line(report.longreprtext))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._testimony.add(report.nodeid, report.when or "", _last_line(report.longreprtext))
        elif report.passed and report.when == "call":
            self._testimony.passed_count += 1

    def pytest_sessionfinish(self) -> None:
        self._path.write_bytes(msgspec.json.encode(self._testimony))


def pytest_configure(config: pytest.Config) -> None:
    if path := os.environ.get(PATH):
        config.pluginmanager.register(Witness(Path(path)), "mutants-witness")


def _last_line(text: str) -> str:
    """The line of the error itself, if there is one."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("E ")]
    return (errors[:1] or lines[-1:] or [""])[0][:300]
