"""Waiting for the end of a job, for both clients: how often to ask, and what an ended job means to the caller."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sexton.client.error_translation import submission_faults
from sexton.domain.duration import Duration, seconds
from sexton.errors import JobFailed, ResultTimeout
from sexton.wire import Job

ENDED = frozenset({"completed", "failed", "cancelled"})
WAIT_S_MAX = 20.0  # of one call; the server answers when the job ends
PAUSE_S = 0.05  # between two calls: a stopping server answers at once, without waiting


class Patience:
    """How long a caller waits for one job, by its monotonic clock."""

    def __init__(self, job_id: UUID | str, within: Duration | None, now_s: float, *, patience_s: float = 40.0) -> None:
        """`patience_s` is the timeout of one call: the server must answer well before it."""
        self._job_id, self._wait_s_max = job_id, min(WAIT_S_MAX, patience_s / 2)
        with submission_faults():
            self._within_s = float("inf") if within is None else seconds(within, field="timeout")
        self._give_up_s = now_s + self._within_s

    def wait_s(self, now_s: float) -> float:
        """How long the next call may wait."""
        return max(0.0, min(self._give_up_s - now_s, self._wait_s_max))

    def check(self, now_s: float) -> None:
        """`ResultTimeout` when the time has passed."""
        if now_s >= self._give_up_s:
            raise ResultTimeout(f"job {self._job_id} has not ended after {self._within_s:g} s")


def result_of(job: Job) -> Any:
    """What the handler of an ended job returned; `JobFailed` if it ended otherwise."""
    last = job.last_execution
    if job.status != "completed":
        raise JobFailed(job.status, why(job))
    return None if last is None else last.result


def why(job: Job) -> str | None:
    last = job.last_execution
    if last is None:
        return None
    return last.reason if last.error is None else f"{last.error.type}: {last.error.message}"
