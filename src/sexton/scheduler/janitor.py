"""Keeps the house: makes partitions ahead, drops old ones, expires keys and letters, replays what failed in passing."""

from __future__ import annotations

from contextlib import suppress

from sexton.clock import Clock
from sexton.errors import Contention
from sexton.store import dead_letters, failures, fleet, retention, run_payloads, runs
from sexton.store.database import Database
from sexton.telemetry.events import Emit

REST_S = 60.0
DAY_S = 86_400.0
REPLAY_LIMIT = 200  # letters per pass, so that what failed together does not come back as one wave


class Janitor:
    name = "janitor"

    def __init__(self, database: Database, *, history_days: int, dead_letter_days: int, clock: Clock, emit: Emit) -> None:
        self._database, self._clock, self._emit = database, clock, emit
        self._history_s = history_days * DAY_S
        self._dead_letter_s = dead_letter_days * DAY_S

    async def run_once(self) -> float:
        now = self._clock.database_now()
        async with self._database.connection() as connection:
            await retention.make_partitions(connection, now=now)
        for parent in ("executions", "endings", "jobs"):
            with suppress(Contention):  # a long reader holds it: all else goes on, and the next pass tries again
                await retention.drop_partitions(self._database, parent, keep_s=self._history_s, now=now)
        async with self._database.connection() as connection:
            await retention.expire_keys(connection, now=now)
            await dead_letters.expire(connection, keep_s=self._dead_letter_s, now=now)
            await runs.forget_output(connection, now=now)
            await run_payloads.forget(connection, keep_s=self._history_s, now=now)
            await failures.forget(connection)
            await fleet.forget_workers(connection, now=now)
            await fleet.forget_nodes(connection, now=now)
        await self._replay_transient()
        return REST_S

    async def _replay_transient(self) -> None:
        async with self._database.transaction() as connection:
            now = self._clock.database_now()
            due = await dead_letters.due_for_replay(connection, limit=REPLAY_LIMIT, now=now)
            if due:
                await dead_letters.replay(connection, due, now=now)
