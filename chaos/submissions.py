"""The harness's own list of what it submitted and what was acknowledged. It is kept outside the database, and each line is
written as soon as the answer arrives, so the checker can compare the database with it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Literal, NamedTuple
from uuid import UUID

Way = Literal["sdk", "http"]


class Acknowledged(NamedTuple):
    job_id: UUID
    kind: str
    way: Way
    at: float  # monotonic, when the answer arrived


class Cancelled(NamedTuple):
    at: float  # when the answer arrived
    never_starts: bool  # according to the answer


class Submissions:
    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self.acknowledged: list[Acknowledged] = []
        self.asked_count: Counter[str] = Counter()  # jobs, by kind
        self.failed: Counter[str] = Counter()  # calls without an answer or with a refusal, by message
        self.unforeseen: Counter[str] = Counter()  # of these, answers that no caller should ever get
        self.cancel_asked: set[UUID] = set()
        self.cancelled: dict[UUID, Cancelled] = {}

    def close(self) -> None:
        self._file.close()

    def asked(self, kind: str, count: int) -> None:
        self.asked_count[kind] += count

    def acknowledge(self, kind: str, way: Way, job_ids: Collection[UUID]) -> None:
        now = time.monotonic()
        for job_id in job_ids:
            self._file.write(json.dumps([str(job_id), kind, way, now]) + "\n")
            self.acknowledged.append(Acknowledged(job_id, kind, way, now))

    def cancel_acknowledged(self, job_id: UUID, *, never_starts: bool) -> None:
        now = time.monotonic()
        self._file.write(json.dumps([str(job_id), "cancel", never_starts, now]) + "\n")
        self.cancelled[job_id] = Cancelled(now, never_starts)

    def ids(self, *kinds: str) -> set[UUID]:
        """Of all kinds, if no kind is given."""
        return {each.job_id for each in self.acknowledged if not kinds or each.kind in kinds}
