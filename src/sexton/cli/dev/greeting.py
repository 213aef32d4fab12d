"""What `sexton dev` prints: addresses, one command to try, and then one line per finished job."""

from __future__ import annotations

import inspect
import json
import shlex
import time
from importlib.metadata import version
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import typer

from sexton.clock import SystemClock
from sexton.registry import Definition, Registry
from sexton.telemetry.events import Ended, Event

_REASON_LIMIT = 120
_SHOWN_TASKS = 12
_COLOURS = {"completed": "green", "failed": "red"}
_EXAMPLES: dict[str, Any] = {"int": 1, "float": 1.5, "str": "text", "bool": True, "list": [], "tuple": [], "dict": {}}
_FAVOURITE = "demo.echo"


class Greeting:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._clock = SystemClock()
        self._began = self._clock.monotonic()

    def first(self, address: str, database_url: str) -> None:
        names = self._registry.names
        more = f" and {len(names) - _SHOWN_TASKS} more" if len(names) > _SHOWN_TASKS else ""
        print(
            f"Sexton {version('sexton')} is ready in {self._took_s:.1f} s. Ctrl-C stops it.\n\n"
            f"  API       {address}, documentation at {address}/schema\n"
            f"  database  psql {shlex.quote(without_password(database_url))}\n"
            f"  tasks     {', '.join(names[:_SHOWN_TASKS]) or 'none'}{more}\n\n"
            f"{self._invitation(address)}",
            flush=True,
        )

    def again(self, address: str, _database_url: str) -> None:
        print(f"ready again at {address} in {self._took_s:.1f} s", flush=True)

    def _invitation(self, address: str) -> str:
        task = self._registry.get(_FAVOURITE) or next(iter(self._registry), None)
        if task is None:
            return "The app has no tasks yet; decorate a function with @app.task.\n"
        return f"Submit a job:\n\n  {curl(address, task)}\n"

    @property
    def _took_s(self) -> float:
        return self._clock.monotonic() - self._began


def curl(address: str, task: Definition) -> str:
    """A command that works without changes."""
    body = json.dumps({"handler": task.name, "payload": _example(task)})
    return f"curl -s {address}/v1/jobs -H 'content-type: application/json' -d {shlex.quote(body)}"


def _example(task: Definition) -> dict[str, Any]:
    if task.name == _FAVOURITE:
        return {"hello": "world"}
    _, *parameters = inspect.signature(task.fn).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    return {parameter.name: _EXAMPLES.get(_kind(parameter.annotation)) for parameter in needed}


def _kind(annotation: Any) -> str:
    """`int` for int, "int" and `list` for list[str]."""
    return str(getattr(annotation, "__name__", annotation)).partition("[")[0]


def without_password(url: str) -> str:
    parts = urlsplit(url)
    user, at, place = parts.netloc.rpartition("@")
    kept = [(name, value) for name, value in parse_qsl(parts.query) if "pass" not in name]
    query = urlencode(kept, quote_via=quote, safe="/")
    return f"{parts.scheme}://{user.partition(':')[0]}{at}{place}{parts.path}{'?' if query else ''}{query}"


def tell_ended(event: Event) -> None:
    if isinstance(event, Ended) and event.ending is not None:
        typer.echo(_line(event))  # without colours if the output is not a terminal


def _line(event: Ended) -> str:
    ending = typer.style(f"{event.ending:<9}", fg=_COLOURS.get(event.ending or ""))
    took = f"{event.took_s:.2f} s"
    first_line = (event.reason or "").strip().partition("\n")[0]
    reason = (
        f"  {first_line if len(first_line) <= _REASON_LIMIT else first_line[: _REASON_LIMIT - 1] + '…'}" if first_line else ""
    )
    # The wall clock is only shown; nothing is decided by it.
    return f"{time.strftime('%H:%M:%S')}  {ending}  {event.task:<16} {took:>8}  {event.job_id}{reason}"
