"""All runs that this worker has a lease on. The event loop writes it; the heartbeat's thread reads copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from uuid import UUID

from sexton.domain.run import Claimed

from .execution import Execution


class HeldRuns:
    def __init__(self) -> None:
        self._executions: dict[UUID, Execution] = {}
        self._claims: set[int] = set()
        self._serial = count()
        self.refused_count = 0  # results that came after their lease was lost
        self.returned: set[tuple[UUID, int]] = set()  # leases given back before the event loop knew of them: run and token
        self.cut_short_count = 0  # claims without a reply: the database may have leases that this worker does not know

    def add(self, execution: Execution) -> None:
        self._executions[execution.claimed.lease.run_id] = execution

    def remove(self, execution: Execution) -> None:
        # A run that was returned and claimed again by this worker has a new execution under the same id.
        run_id = execution.claimed.lease.run_id
        if self._executions.get(run_id) is execution:
            del self._executions[run_id]

    def get(self, run_id: UUID, token: int) -> Execution | None:
        execution = self._executions.get(run_id)
        return execution if execution is not None and execution.claimed.lease.token == token else None

    def all(self) -> list[Execution]:
        return list(self._executions.values())

    def __len__(self) -> int:
        return len(self._executions)

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """Marks a claim as in progress: until its reply comes, the database may have leases that this worker does not know."""
        serial = next(self._serial)
        self._claims.add(serial)
        try:
            yield
        except BaseException:
            self.cut_short_count += 1
            raise
        finally:
            self._claims.discard(serial)
            if not self._claims:
                self.returned.clear()  # no reply can bring them any more

    def still_leased(self, claimed: Sequence[Claimed]) -> Sequence[Claimed]:
        """The claimed runs, without those whose leases were given back before the reply arrived."""
        if not self.returned:
            return claimed
        kept = [run for run in claimed if run.lease.fence not in self.returned]
        self.returned.difference_update(run.lease.fence for run in claimed)
        return kept

    @property
    def claims_under_way(self) -> frozenset[int]:
        return frozenset(self._claims)
