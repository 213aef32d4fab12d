"""The file that handlers append to: (number, time) in one write(2), about 2 µs per job and no load on the store.

The peers use the same record, so the figures are comparable.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from pathlib import Path

VARIABLE = "BENCH_RECORD"
ROW = struct.Struct("<qd")
POLL_S = 0.004

_descriptor: int | None = None


def append(number: int) -> None:
    """Called in a worker. O_APPEND keeps the rows of many processes intact."""
    global _descriptor  # one file per process, opened with the first job
    if _descriptor is None:
        _descriptor = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(_descriptor, ROW.pack(number, time.time()))


class Record:
    """The same file, read by the measuring process: it watches the size and reads the rows once at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    @property
    def count(self) -> int:
        return self.path.stat().st_size // ROW.size

    async def until(self, count: int, within_s: float) -> None:
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + within_s
        while self.count < count:
            if loop.time() > ends_at:
                raise TimeoutError(f"{self.count:,} of {count:,} jobs started within {within_s:.0f} s")
            await asyncio.sleep(POLL_S)

    def rows(self) -> list[tuple[int, float]]:
        data = self.path.read_bytes()
        return list(ROW.iter_unpack(data[: len(data) // ROW.size * ROW.size]))

    def tally(self) -> dict[str, int]:
        """The number of jobs that started, and of starts that were not the first of their job."""
        numbers = [number for number, _ in self.rows() if number >= 0]
        seen = len(set(numbers))
        return {"jobs_seen": seen, "jobs_repeated": len(numbers) - seen}

    def first_starts(self) -> dict[int, float]:
        """When each job first started. Negative numbers are warm-up jobs, and left out."""
        starts: dict[int, float] = {}
        for number, at in self.rows():
            if number >= 0:
                starts.setdefault(number, at)
        return starts
