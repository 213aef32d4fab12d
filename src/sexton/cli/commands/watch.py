"""`sexton jobs watch`: a live view on a terminal, a line per change in a pipe. It polls instead of listening, so it works the
same over HTTP, in-process and through a pooler."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from sexton.cli.printing import as_json_text, print_json, rich_table, shown

from .jobs import COLUMNS, row

if TYPE_CHECKING:
    from sexton.client.remote.async_client import AsyncClient
    from sexton.wire import Job

LOOK_S = 0.5
NEWEST = 20


async def one(client: AsyncClient, job_id: str, within: str | None, *, as_json: bool) -> None:
    """Until it ends. `JobFailed` if it did not complete, `ResultTimeout` if it takes too long."""
    from sexton.client.remote.waiting import ENDED, Patience, result_of

    now = asyncio.get_running_loop().time
    patience = Patience(job_id, within, now())
    with _display(as_json=as_json) as show:
        while True:
            job = await client.job(job_id)
            show([job])
            if job.status in ENDED:
                break
            patience.check(now())
            await asyncio.sleep(min(LOOK_S, max(patience.wait_s(now()), 0.01)))
    if as_json:
        print_json(job)
    result_of(job)


async def newest(client: AsyncClient, within: str | None, *, as_json: bool) -> None:
    """Until Ctrl-C, or as long as requested."""
    from sexton.client.error_translation import submission_faults
    from sexton.domain.duration import seconds

    now = asyncio.get_running_loop().time
    with submission_faults():
        end_s = now() + (float("inf") if within is None else seconds(within, field="within"))
    with _display(as_json=False) as show:
        while True:
            show([job async for job in client.jobs(limit=NEWEST)])
            if now() >= end_s:
                return
            await asyncio.sleep(min(LOOK_S, end_s - now()))


@contextmanager
def _display(*, as_json: bool) -> Iterator[Callable[[list[Job]], None]]:
    if as_json:
        yield lambda jobs: None
    elif sys.stdout.isatty():
        from rich.live import Live

        with Live(auto_refresh=False) as live:

            def show(jobs: list[Job]) -> None:
                cells = [[shown(cell) for cell in row(job)] for job in jobs]
                live.update(rich_table(COLUMNS, cells, live.console.width), refresh=True)

            yield show
    else:
        yield _Lines()


class _Lines:
    """Prints what has changed since the last poll."""

    def __init__(self) -> None:
        self._printed: dict[Any, str] = {}

    def __call__(self, jobs: list[Job]) -> None:
        for job in reversed(jobs):
            line = _line(job)
            if self._printed.get(job.id) != line:
                typer.echo(line)
        self._printed = {job.id: _line(job) for job in jobs}


def _line(job: Job) -> str:
    from sexton.wire import words_of

    last = job.last_execution
    progress = None if last is None or last.progress is None or job.status != "running" else as_json_text(last.progress)
    parts = [job.id, job.status, words_of(job.handler), f"try {job.attempt}"]
    return " ".join(shown(part) for part in [*parts, progress] if part is not None)
