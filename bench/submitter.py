"""`python -m bench.submitter ORDERS`: submits from a process of its own, at a fixed rate, or so that there are always waiting
jobs.

It writes the number and the due time of every job to a file in the form of the record; the measuring process reads it at the
end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from sexton import App

from . import record
from .app import PAD, note

if TYPE_CHECKING:
    from sexton.client.task import Task

TICK_S = 0.05
BATCH = 2_000


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """With a rate: at that rate for `seconds`. Without: as many as keep the backlog full."""

    first: int = 0
    count: int | None = None  # none: until it is stopped
    rate_per_s: float | None = None
    backlog: int = 0
    ahead_s: tuple[float, float] | None = None  # range of the due times from now; none: due now

    def written_to(self, folder: Path) -> str:
        path = folder / "orders"
        path.write_bytes(msgspec.json.encode(self))
        return str(path)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    count: int
    span_s: float
    cpu_s: float


class Ending(Protocol):
    def has_ended(self) -> bool: ...


class Submission:
    """The submitter, as the measuring process sees it."""

    def __init__(self, folder: Path, process: Ending) -> None:
        self._folder, self._process = folder, process

    async def done(self) -> Report:
        """Waits until it has submitted all jobs."""
        while True:
            if self._process.has_ended():
                break
            await asyncio.sleep(0.05)
        return msgspec.json.decode((self._folder / "report").read_bytes(), type=Report)

    def due(self) -> dict[int, float]:
        return dict(record.ROW.iter_unpack((self._folder / "due").read_bytes()))


async def _submit(orders: Orders, folder: Path) -> Report:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    app = App()
    task: Task[..., Any] = app.task(note)
    rng, own = Random(orders.first), record.Record(Path(os.environ[record.VARIABLE]))
    turns = _paced(orders, orders.rate_per_s) if orders.rate_per_s else _topped_up(orders, own)
    began_at, submitted = time.monotonic(), 0
    with (folder / "due").open("ab", buffering=0) as noted:
        for size in turns:
            if stopped.is_set():
                break
            if not size:
                await asyncio.sleep(TICK_S / 10)
                continue
            now = time.time()
            numbers = range(orders.first + submitted, orders.first + submitted + size)
            due = [now + rng.uniform(*orders.ahead_s) if orders.ahead_s else now for _ in numbers]
            instants = [datetime.fromtimestamp(at, UTC) if orders.ahead_s else None for at in due]
            noted.write(b"".join(map(record.ROW.pack, numbers, due)))
            await app.submit_many([task.request(n, PAD, run_at=at) for n, at in zip(numbers, instants, strict=True)])
            submitted += size
    span_s = time.monotonic() - began_at
    await app.close()
    own_cpu = os.times()
    return Report(count=submitted, span_s=span_s, cpu_s=own_cpu.user + own_cpu.system)


def _paced(orders: Orders, rate: float) -> Iterator[int]:
    """Sizes of batches, 0 to wait. The rate does not depend on the speed of the store."""
    began_at, given, count = time.monotonic(), 0, sys.maxsize if orders.count is None else orders.count
    while given < count:
        owed = min(count, int((time.monotonic() - began_at) * rate)) - given
        size = min(BATCH, owed) if owed >= min(rate * TICK_S, count - given) else 0
        given += size
        yield size


def _topped_up(orders: Orders, own: record.Record) -> Iterator[int]:
    """In whole batches, so that the load is not many small transactions."""
    before, given = own.count, 0
    batch = min(BATCH, orders.backlog)
    while orders.count is None or given < orders.count:
        room = orders.backlog - (given - (own.count - before))
        size = batch if orders.count is None else min(batch, orders.count - given)
        if size > room:
            size = 0
        given += size
        yield size


def main(path: Path) -> None:
    orders = msgspec.json.decode(path.read_bytes(), type=Orders)
    report = asyncio.run(_submit(orders, path.parent))
    (path.parent / "report").write_bytes(msgspec.json.encode(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
