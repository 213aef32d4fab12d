"""What a `set` command was told: only that is changed."""

from __future__ import annotations

from typing import Any

import typer

from sexton.cli.exits import NotUnderstood

_OF_EVERY_COMMAND = ("name", "key", "url", "as_json")


def said(context: typer.Context) -> dict[str, Any]:
    """The settings that were named on the command line, at least one of them."""
    given = {name: value for name, value in context.params.items() if name not in _OF_EVERY_COMMAND}
    named = {name: value for name, value in given.items() if value is not None and value is not False}
    if not named:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise NotUnderstood(f"say what to set: {options}")
    return named


def merged(before: dict[str, Any], given: dict[str, Any], *, rate: str, keeps_zero: str) -> dict[str, Any]:
    """What was set, with what was named now. Zero is none, except of `keeps_zero`; another rate has another burst, unless
    that is named as well, and no rate has none."""
    after = {**before, **given}
    if given.get(f"{rate}_rate") is not None and f"{rate}_burst" not in given:
        after[f"{rate}_burst"] = None
    zero = {field for field, value in after.items() if value in (0, "0")}
    if f"{rate}_rate" in zero:
        after[f"{rate}_burst"] = None
    return {field: value if field not in zero else 0 if field == keeps_zero else None for field, value in after.items()}
