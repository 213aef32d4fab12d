"""Cleans up: creates partitions ahead, drops old ones, expires keys and dead letters, replays letters of temporary failures,
frees slots that no run holds."""

from __future__ import annotations

from sexton.clock import Clock
from sexton.errors import Contention
from sexton.operations.caller import SCHEDULER
from sexton.operations.replay import replay_due
from sexton.store.database import Database
from sexton.store.fleet import workers
from sexton.store.sharing import parked_runs
from sexton.store.work import dead_letters, failures, retention, run_payloads, runs, subscriptions
from sexton.telemetry.events import Emit, SlotsRepaired

REST_S = 60.0
SELDOM_S = 600.0  # between two passes over work that is not urgent
DAY_S = 86_400.0
KEY_PASSES = 200  # at most this many batches of expired keys in one pass: a million keys, or half a minute
HELD_LIMIT = 1_000  # deliveries per pass that could not be submitted when their run ended
REPLAY_LIMIT = 200  # letters per pass, so that runs that failed together do not all return at once


class Janitor:
    name = "janitor"

    def __init__(self, database: Database, *, history_days: int, dead_letter_days: int, clock: Clock, emit: Emit) -> None:
        self._database, self._clock, self._emit = database, clock, emit
        self._history_s = history_days * DAY_S
        self._dead_letter_s = dead_letter_days * DAY_S
        self._tidied_at: float | None = None
        self._looked_at_keys = retention.FIRST

    async def run_once(self) -> float:
        contention = None
        for part in (self._tidy_seldom, self._expire_keys, self._expire_letters, self._replay_transient, self._submit_held):
            try:
                await part()
            except Contention as error:  # the other parts do not depend on it
                contention = error
        if contention is not None:
            raise contention
        return REST_S

    async def _tidy_seldom(self) -> None:
        began_at = self._clock.monotonic()
        if (self._tidied_at is None or began_at - self._tidied_at >= SELDOM_S) and await self._tidy():
            self._tidied_at = began_at

    async def _expire_keys(self) -> None:
        async with self._database.connection() as connection:
            for _ in range(KEY_PASSES):
                expired = await retention.expire_keys(connection, after=self._looked_at_keys, now=self._clock.database_now())
                self._looked_at_keys = expired.looked
                if not expired.has_more:
                    break

    async def _expire_letters(self) -> None:
        async with self._database.connection() as connection:
            await dead_letters.expire(connection, keep_s=self._dead_letter_s, now=self._clock.database_now())

    async def _submit_held(self) -> None:
        async with self._database.connection() as connection:
            await subscriptions.submit_held(connection, limit=HELD_LIMIT, now=self._clock.database_now())

    async def _tidy(self) -> bool:
        """False if a long query on an old partition was in the way: the rest continues, and the next pass tries again."""
        tidied = True
        now = self._clock.database_now()
        async with self._database.connection() as connection:
            await retention.make_partitions(connection, now=now)
        for parent in ("executions", "endings", "jobs"):
            try:
                await retention.drop_partitions(self._database, parent, keep_s=self._history_s, now=now)
            except Contention:
                tidied = False
        async with self._database.connection() as connection:
            await runs.forget_output(connection, now=now)
            await run_payloads.forget(connection, keep_s=self._history_s, now=now)
            await failures.forget(connection)
            await workers.forget_workers(connection, now=now)
            await workers.forget_nodes(connection, now=now)
            mended_count = await parked_runs.mend(connection)
        if mended_count:
            self._emit(SlotsRepaired(mended_count))
        return tidied

    async def _replay_transient(self) -> None:
        now = self._clock.database_now()
        async with self._database.connection() as connection:
            due = await dead_letters.due_for_replay(connection, limit=1, now=now)
        if due:
            async with self._database.transaction() as connection:
                await replay_due(connection, SCHEDULER, limit=REPLAY_LIMIT, now=now)
