"""Follows the journals that handlers write outside the database: when each job first started, and how often."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from uuid import UUID


class JournalReader:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}  # bytes
        self.first_start_at: dict[UUID, float] = {}  # monotonic
        self.start_count: Counter[UUID] = Counter()
        self.ended: set[UUID] = set()

    def look(self) -> None:
        """Reads the lines that were written since the last call."""
        for path in self._directory.glob("*.journal"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            for line in whole.splitlines():
                self._take(line)

    def _take(self, line: bytes) -> None:
        what, job, _run, _attempt, _pid, at, *_ = json.loads(line)
        job_id = UUID(job)
        if what == "start":
            self.start_count[job_id] += 1
            self.first_start_at.setdefault(job_id, at)
        elif what == "end":
            self.ended.add(job_id)
