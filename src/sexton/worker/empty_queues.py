"""Sits between an idle intake and its transport: a queue that the last heartbeat found empty is not queried again.

Every heartbeat checks whether runs are ready in the worker's queues, so an intake without a hint needs no statement of its own.
It must never answer for the transport after a newer hint, after a claim that returned runs, or while heartbeats fail."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sexton.clock import Clock
from sexton.dispatch.transport import Transport
from sexton.domain.run import Claimed

# After a hint, every claim goes to the database for this long, including the second one (`intake.LAST_LOOK_S` later): one
# hint stands for all jobs submitted within the window in which submitters suppress further notifications.
HINT_S = 0.1


class EmptyQueueFilter:
    def __init__(self, transport: Transport, *, trust_s: float, clock: Clock) -> None:
        """The result of a heartbeat is trusted for `trust_s`, a little longer than until the next one. 0: never."""
        self._transport, self._trust_s, self._clock = transport, trust_s, clock
        self._hinted_at = clock.monotonic()
        self._nothing_ready_at = self._nothing_overdue_at = float("-inf")

    def hear(self) -> None:
        """Something may be ready."""
        self._hinted_at = self._clock.monotonic()

    def look(self, *, is_ready: bool, is_overdue: bool, sent_at: float) -> None:
        """What a heartbeat sent at `sent_at` has seen."""
        self._nothing_ready_at = float("-inf") if is_ready else sent_at
        self._nothing_overdue_at = float("-inf") if is_overdue else sent_at

    async def take(self, worker_id: UUID, tasks: Sequence[str], limit: int, *, ahead: bool) -> list[Claimed]:
        hinted_s = self._clock.monotonic() - self._hinted_at
        if hinted_s > HINT_S and self._nothing_ready_at > self._hinted_at and self._is_fresh(self._nothing_ready_at):
            return []
        claimed = await self._transport.take(worker_id, tasks, limit, ahead=ahead)
        if claimed:
            self.hear()  # if one run was ready, more may be ready
        return claimed

    @property
    def knows_nothing_is_overdue(self) -> bool:
        return self._is_fresh(self._nothing_overdue_at)

    def _is_fresh(self, seen_at: float) -> bool:
        return self._clock.monotonic() - seen_at < self._trust_s
