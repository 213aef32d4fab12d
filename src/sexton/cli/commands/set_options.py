"""The options of a `set` command: only given options are changed."""

from __future__ import annotations

from typing import Any

import typer

from sexton.cli.exits import NotUnderstood

_OF_EVERY_COMMAND = ("name", "key", "url", "as_json")


def said(context: typer.Context) -> dict[str, Any]:
    """The settings given on the command line, at least one of them."""
    given = {name: value for name, value in context.params.items() if name not in _OF_EVERY_COMMAND}
    named = {name: value for name, value in given.items() if value is not None and value is not False}
    if not named:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise NotUnderstood(f"give at least one setting: {options}")
    return named


def merged(before: dict[str, Any], given: dict[str, Any], *, rate: str, keeps_zero: str) -> dict[str, Any]:
    """The current settings with the given ones. Zero removes a setting, except those of `keeps_zero`. A new rate resets its
    burst, unless that is given as well, and without a rate there is no burst."""
    after = {**before, **given}
    if given.get(f"{rate}_rate") is not None and f"{rate}_burst" not in given:
        after[f"{rate}_burst"] = None
    zero = {field for field, value in after.items() if value in (0, "0")}
    if f"{rate}_rate" in zero:
        after[f"{rate}_burst"] = None
    return {field: value if field not in zero else 0 if field == keeps_zero else None for field, value in after.items()}
