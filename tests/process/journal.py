"""Records what handlers really did, outside the database: one append-only file per process. Every line is on disk before the
handler continues. Lines that wait at the same moment share one write and one fsync; no handler continues before its line is
written."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, Protocol
from uuid import UUID

DIRECTORY_VARIABLE = "JOURNAL_DIRECTORY"


class Attempt(Protocol):
    """What the journal needs from a handler's context."""

    @property
    def job_id(self) -> UUID: ...

    @property
    def run_id(self) -> UUID: ...

    @property
    def attempt(self) -> int: ...


class Line(NamedTuple):
    what: str  # start, end, or another event of a handler
    job_id: UUID
    run_id: UUID
    attempt: int
    pid: int
    at: float  # monotonic: the same clock for all processes of a machine
    wall: float
    context: int  # identifies a try among several of one run in one process
    note: str = ""


class Journal:
    def __init__(self, directory: Path) -> None:
        path = directory / f"{os.getpid()}.journal"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._waiting: SimpleQueue[tuple[bytes, Future[None]]] = SimpleQueue()
        threading.Thread(target=self._serve, name="journal", daemon=True).start()

    def write(self, what: str, ctx: Attempt, note: str = "") -> Future[None]:
        """Completes once the line is on disk. The times are those of the call, not of the write."""
        times = time.monotonic(), time.time()
        line = [what, str(ctx.job_id), str(ctx.run_id), ctx.attempt, os.getpid(), *times, id(ctx), note]
        written: Future[None] = Future()
        written.set_running_or_notify_cancel()  # a handler that is cancelled while it waits cannot take back its line
        self._waiting.put((json.dumps(line).encode() + b"\n", written))
        return written

    def _serve(self) -> None:
        while True:
            batch = [self._waiting.get()]
            while not self._waiting.empty():
                batch.append(self._waiting.get())
            data = b"".join(line for line, _ in batch)
            assert os.write(self._file, data) == len(data), "a short write would tear a line"
            os.fsync(self._file)
            for _, written in batch:
                written.set_result(None)


_journal: Journal | None = None
_opening = threading.Lock()


def _open() -> Journal:
    global _journal  # one per process
    with _opening:
        if _journal is None:
            _journal = Journal(Path(os.environ[DIRECTORY_VARIABLE]))
        return _journal


def jot(what: str, ctx: Attempt, text: str = "") -> None:
    """A line that the handler does not wait for: a kill may lose it."""
    _open().write(what, ctx, text)


async def note(what: str, ctx: Attempt, text: str = "") -> None:
    await asyncio.wrap_future(_open().write(what, ctx, text))


def note_sync(what: str, ctx: Attempt, text: str = "") -> None:
    _open().write(what, ctx, text).result()


def read(directory: Path) -> list[Line]:
    """All lines of all processes up to now, ordered by time. A line cut off by kill -9 does not count, because no handler
    continued after it. Lines written during the reading are left out: the files are read one after the other, so the last would
    have starts for which the first does not yet have the ends."""
    lines, now = [], time.monotonic()
    for path in directory.glob("*.journal"):
        for text in path.read_bytes().split(b"\n")[:-1]:
            what, job_id, run_id, *facts = json.loads(text)
            lines.append(Line(what, UUID(job_id), UUID(run_id), *facts))
    return sorted((line for line in lines if line.at <= now), key=lambda line: line.at)
