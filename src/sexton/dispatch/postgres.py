"""The default transport: workers pull from the `runs` table."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sexton.clock import Clock
from sexton.domain.claim_cursors import ClaimCursors, Look, Looking, WholeLooks
from sexton.domain.fairness import QueueTurns, Turns
from sexton.domain.queue_order import QueueOrder
from sexton.domain.run import Claimed
from sexton.store.database import Database
from sexton.store.work import runs


class PostgresTransport:
    def __init__(
        self,
        database: Database,
        queues: QueueOrder,
        *,
        grace_s: float,
        clock: Clock,
        beside: PostgresTransport | None = None,
    ) -> None:
        """`grace_s` is how long past its timeout a run may take to stop before a sweeper ends it. For one set of tasks: it
        remembers whose turn is next. `beside` is another for the same tasks."""
        self._database, self._grace_s, self._clock = database, grace_s, clock
        self._queues = QueueTurns(queues.names, queues.weights, strict=queues.strict)
        self._turns = Turns()
        # What is not taken ahead stays behind the cursors of what is.
        self._cursors = {True: ClaimCursors(), False: ClaimCursors()}
        self._whole_looks: dict[bool, WholeLooks] = {} if beside is None else beside._whole_looks
        if beside is None:
            self._whole_looks |= {True: WholeLooks(), False: WholeLooks()}
        self._looking = {ahead: Looking(whole_looks) for ahead, whole_looks in self._whole_looks.items()}

    async def take(self, worker_id: UUID, tasks: Sequence[str], limit: int, *, ahead: bool) -> list[Claimed]:
        cursors, looking, began_s = self._cursors[ahead], self._looking[ahead], self._clock.monotonic()
        look = looking.next(began_s)
        async with self._database.connection() as connection:
            claimed = await runs.claim(
                connection,
                worker_id=worker_id,
                queues=self._queues.following(),
                tasks=tasks,
                limit=limit,
                grace_s=self._grace_s,
                ahead=ahead,
                turns=self._turns.as_json(cursors=None if look is Look.WHOLE else cursors, only_ahead=look is Look.AHEAD),
                now=self._clock.database_now(),
            )
        self._turns.note(claimed)
        was_behind = cursors.note(claimed)
        looking.note(look, began_s, self._clock.monotonic(), is_full=len(claimed) >= limit, was_behind=was_behind)
        return claimed
