"""The size of a test: in the suite just enough to find a failure, by an environment variable (SEXTON_TEST_…) any size."""

from __future__ import annotations

import os


def size(name: str, default: int) -> int:
    return int(os.environ.get(f"SEXTON_TEST_{name}", default))
