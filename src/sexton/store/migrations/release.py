"""The release of this code, for the ledger: a schema says which releases can run on it."""

from __future__ import annotations

import re

RELEASE = "0.1.0"  # as in pyproject.toml; a test compares them


def order(release: str) -> tuple[int, ...]:
    """Sorts releases: `0.10.0` comes after `0.9.1`. What follows the numbers (`.dev3`, `rc1`) does not count."""
    found = re.match(r"\d+(?:\.\d+)*", release)
    if found is None:
        raise ValueError(f'"{release}" is not a release; write it as 0.2.0')
    return tuple(int(part) for part in found[0].split("."))
