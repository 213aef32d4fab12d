"""Every test of an operation runs with the transition trigger, and ends with a check of the invariants."""

from __future__ import annotations

import pytest

from tests.watched_database import database_url, rival, template_of_test

__all__ = ["database_url", "rival", "template_of_test"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "made_up_rows: writes rows by hand; the invariants between tables do not hold")
