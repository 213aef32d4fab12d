"""The output of commands: tables on a terminal, plain columns in a pipe, JSON for programs.

Data goes to standard output, messages to standard error. Output of jobs must never be interpreted as markup or as control
characters of the terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

import typer

_COLOURS = {
    "running": "cyan",
    "completed": "green",
    "succeeded": "green",
    "live": "green",
    "ok": "green",
    "failed": "red",
    "fail": "red",
    "lost": "red",
    "timed_out": "red",
    "missed": "red",
    "cancelled": "yellow",
    "paused": "yellow",
    "silent": "yellow",
    "draining": "yellow",
    "warn": "yellow",
}


GAP = 2
ELASTIC = frozenset({"why"})  # sentences: shortened on a narrow terminal
ELASTIC_WIDTH = 20


class Warned(Protocol):
    """An answer of the API that may carry warnings."""

    @property
    def warnings(self) -> Sequence[str]: ...


class Progress(Protocol):
    def __call__(self, done: int) -> None: ...


def print_json(document: Any) -> None:
    import msgspec

    encoded = msgspec.json.encode(document)
    typer.echo(msgspec.json.format(encoded, indent=2 if sys.stdout.isatty() else 0).decode())


def print_as_json(answered: Warned, *, as_json: bool) -> bool:
    """Prints the answer as JSON if that was asked for; otherwise only its warnings, to standard error. Returns whether it
    printed JSON."""
    if as_json:
        print_json(answered)
        return True
    for warning in answered.warnings:
        warn(warning)
    return False


def as_json_text(value: Any) -> str:
    import msgspec

    return safe(msgspec.json.encode(value).decode())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, none: str) -> None:
    """One line per row. Ids are never shortened, so that they can be copied. `none` is printed if there is no row."""
    cells = [[shown(cell) for cell in row] for row in rows]
    if not cells:
        say(none)
    elif sys.stdout.isatty():
        _print_rich(columns, cells)
    else:
        _print_plain(columns, cells)


def print_fields(fields: Iterable[tuple[str, Any]]) -> None:
    """One object, one field per line; empty fields are left out."""
    there = [(name, shown(value)) for name, value in fields if value is not None and value != () and value != []]
    width = max(len(name) for name, _ in there)
    for name, value in there:
        first, *more = value.splitlines() or [""]
        typer.echo(f"{name:<{width}}  {coloured(first)}")
        for line in more:
            typer.echo(f"{'':<{width}}  {line}")


def print_one(document: Any, fields: Iterable[tuple[str, Any]], *, as_json: bool) -> None:
    print_json(document) if as_json else print_fields(fields)


def print_list(
    documents: Sequence[Any], columns: Sequence[str], rows: Iterable[Sequence[Any]], *, none: str, as_json: bool
) -> None:
    print_json(documents) if as_json else print_table(columns, rows, none=none)


def up_to(count: int, most: int = 10_000) -> str:
    """A count, marked if it stopped at its limit."""
    return f"{count:,}+" if count >= most else f"{count:,}"


def say(message: str) -> None:
    typer.echo(safe(message), err=True)


def warn(message: str) -> None:
    typer.secho(safe(f"sexton: {message}"), fg=None if is_colourless() else "yellow", err=True)


def shown(value: Any) -> str:
    """A value as text for a table."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
        case float():
            return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
        case int():
            return f"{value:,}"
        case list() | tuple():
            return ",".join(shown(item) for item in value) or "-"
        case bytes():
            return safe(value.decode(errors="replace"))
        case _:
            return safe(str(value))


def safe(text: str) -> str:
    """Escapes characters that would move the cursor or change the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def coloured(text: str) -> str:
    colour = _COLOURS.get(text)
    if colour is None or is_colourless() or not sys.stdout.isatty():
        return text
    return typer.style(text, fg=colour)


def is_colourless() -> bool:
    """https://no-color.org"""
    return bool(os.environ.get("NO_COLOR"))


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Progress]:
    """A progress bar on standard error; nothing without a terminal."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)


def rich_table(columns: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    fits = fitting(columns, cells, width)
    for place, column_width in fits.items():
        table.add_column(columns[place], no_wrap=True, width=column_width)
    for row in cells:
        table.add_row(*(Text(row[place].replace("\n", " "), style=_COLOURS.get(row[place], "")) for place in fits))
    return table


def fitting(columns: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> dict[int, int]:
    """The columns that fit the terminal, by position, with their widths. Empty columns are left out first, then the last ones.
    A pipe gets all columns."""
    places = [place for place in range(len(columns)) if any(row[place] != "-" for row in cells)]
    full = {place: max(len(columns[place]), *(len(row[place]) for row in cells)) for place in places}
    least = {place: min(full[place], ELASTIC_WIDTH) if columns[place] in ELASTIC else full[place] for place in places}
    while len(places) > 2 and sum(least[place] + GAP for place in places) - GAP > width:
        places.pop()
    spare = max(0, width - sum(least[place] + GAP for place in places) + GAP)
    return {place: min(full[place], least[place] + spare) for place in places}


def _print_rich(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    from rich.console import Console

    console = Console()
    console.print(rich_table(columns, cells, console.width))


def _print_plain(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    lines = [[column.upper() for column in columns], *([cell.replace("\n", " ") for cell in row] for row in cells)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
