"""What a `set` command was told: only that is changed."""

from __future__ import annotations

from typing import Any

from .exits import NotUnderstood


def said(**given: Any) -> dict[str, Any]:
    """What was named on the command line, at least one of it."""
    named = {name: value for name, value in given.items() if value is not None}
    if not named:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise NotUnderstood(f"say what to set: {options}")
    return named
