"""Loads the named statements of the `.sql` file next to each module: `-- name: claim` starts one, the next name ends it."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def statements(module: str) -> dict[str, str]:
    """All statements of a module's `.sql` file, by name. Pass `__name__`."""
    package, _, noun = module.rpartition(".")
    text = resources.files(package).joinpath(f"{noun}.sql").read_text(encoding="utf-8")
    parts = _NAME.split(text)[1:]
    named = dict(zip(parts[::2], (body.strip() for body in parts[1::2]), strict=True))
    if len(named) != len(parts) // 2:
        raise ValueError(f"{noun}.sql contains two statements with the same name")
    return named
