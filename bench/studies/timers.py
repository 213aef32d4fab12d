"""Finds the run that is due next by the index of the database, a heap or a timing wheel in memory (docs/adr/016).

For each number of waiting runs: the cost of one more, of finding the earliest, of taking 10,000 that are due, the memory it
uses, and how long a scheduler that starts has to wait for it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import heapq
import statistics
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

import asyncpg
import psutil

from bench.server import Server
from sexton.domain import partition
from sexton.store.database import _SERVER_SETTINGS
from sexton.store.work import runs

from .testbed import Conn, say, study_server, tell

WEEK_S = 7 * 86_400.0
DUE = 10_000
ADDED = 10_000
PEEKS = 2_000
BATCH = 2_000  # SEXTON_PROMOTE_LIMIT

FILL = """
INSERT INTO sexton.runs (id, job_id, fire_at, due_at, lane, partition, at_most_once, state, origin, queue, tenant, task)
SELECT s.id, s.id, s.due_at, s.due_at, 2, s.n % 64, false, 'waiting', 'now', 'default', 'default', 'note'
FROM (SELECT n, sexton.uuid7($1::bigint + n) AS id, $2::timestamptz + random() * interval '7 days' AS due_at
      FROM generate_series(1, $3::int) n) s
"""

Entry = tuple[float, int]  # due, id


class Timer(Protocol):
    def add(self, entry: Entry) -> None: ...

    def next_at(self) -> float | None: ...

    def take(self, now: float, limit: int) -> list[Entry]: ...


class Heap:
    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = list(entries)
        heapq.heapify(self._entries)

    def add(self, entry: Entry) -> None:
        heapq.heappush(self._entries, entry)

    def next_at(self) -> float | None:
        return self._entries[0][0] if self._entries else None

    def take(self, now: float, limit: int) -> list[Entry]:
        taken: list[Entry] = []
        while self._entries and self._entries[0][0] <= now and len(taken) < limit:
            taken.append(heapq.heappop(self._entries))
        return taken


class Wheel:
    """Four wheels of 256 slots, ticks of 10 ms: 2.56 s, 11 min, 46 h, 497 days. A slot of an outer wheel is moved to the inner
    wheels when its time comes."""

    TICK_S = 0.01
    BITS = 8
    LEVELS = 4

    def __init__(self, entries: Sequence[Entry], now: float) -> None:
        self._tick = int(now / self.TICK_S)
        self._slots: list[list[list[Entry]]] = [[[] for _ in range(1 << self.BITS)] for _ in range(self.LEVELS)]
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        tick = max(int(entry[0] / self.TICK_S), self._tick)
        away = (tick ^ self._tick).bit_length()
        level = min(max(away - 1, 0) // self.BITS, self.LEVELS - 1)
        self._slots[level][(tick >> (level * self.BITS)) & 255].append(entry)

    def next_at(self) -> float | None:
        """Exact: the earliest entry in the first non-empty slot."""
        for level, slots in enumerate(self._slots):
            first = (self._tick >> (level * self.BITS)) & 255
            for number in range(first, 256):
                if slots[number]:
                    return min(slots[number])[0]
        return None

    def take(self, now: float, limit: int) -> list[Entry]:
        taken: list[Entry] = []
        last = int(now / self.TICK_S)
        while self._tick <= last and len(taken) < limit:
            slot = self._slots[0][self._tick & 255]
            if slot and self._tick == last:
                taken.extend(entry for entry in slot if entry[0] <= now)
                slot[:] = [entry for entry in slot if entry[0] > now]
            elif slot:
                taken.extend(slot)
                slot.clear()
            if self._tick == last:
                break
            self._turn()
        return taken

    def _turn(self) -> None:
        self._tick += 1
        for level in range(1, self.LEVELS):
            if self._tick & ((1 << (level * self.BITS)) - 1):
                return
            number = (self._tick >> (level * self.BITS)) & 255
            slot, self._slots[level][number] = self._slots[level][number], []
            for entry in slot:
                self.add(entry)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.studies.timers", description=__doc__)
    parser.add_argument("--runs", type=int, nargs="+", default=[1_000_000, 10_000_000], help="how many wait")
    asyncio.run(_study(parser.parse_args().runs))


async def _study(sizes: Sequence[int]) -> None:
    for size in sizes:
        async with study_server() as server:
            connection = await asyncpg.connect(server.url, server_settings={**_SERVER_SETTINGS, "statement_timeout": "0"})
            say(f"{size:,} waiting runs")
            await _fill(connection, size)
            await _index(server, connection, size)
            await _in_memory(connection, "heap", size, lambda entries, _now: Heap(entries))
            await _in_memory(connection, "wheel", size, Wheel)
            await connection.close()


async def _fill(connection: Conn, size: int) -> None:
    started = time.perf_counter()
    step = 250_000
    for done in range(0, size, step):
        await connection.execute(
            FILL.replace("$1::bigint", str(1_790_000_000_000_000 + done))
            .replace("$2::timestamptz", "clock_timestamp() + interval '1 hour'")
            .replace("$3::int", str(min(step, size - done)))
        )
    await connection.execute("VACUUM ANALYZE sexton.runs")
    say(f"written in {time.perf_counter() - started:.0f} s")


async def _index(server: Server, connection: Conn, size: int) -> None:
    index_bytes = await connection.fetchval("SELECT pg_relation_size('sexton.runs_due')")
    backend = psutil.Process(connection.get_server_pid())
    # With and without the index that is the timer; the other columns are written with any structure.
    insert_us = {}
    for name in ("with", "without"):
        if name == "without":
            await connection.execute("BEGIN; DROP INDEX sexton.runs_due, sexton.runs_due_beside")
        before = _cpu_s(backend)
        for part in range(10):
            await connection.execute(
                FILL.replace("$1::bigint", str(1_800_000_000_000_000 + part * ADDED + (name == "with")))
                .replace("$2::timestamptz", "clock_timestamp() + interval '1 hour'")
                .replace("$3::int", str(ADDED))
            )
        insert_us[name] = (_cpu_s(backend) - before) / (10 * ADDED) * 1e6
        if name == "without":
            await connection.execute("ROLLBACK")
    everywhere = partition.Scan(partition.ALL, BATCH)

    async def peek() -> None:
        await runs.promote(connection, everywhere)

    opened = time.perf_counter()
    fresh = await asyncpg.connect(server.url, server_settings=_SERVER_SETTINGS)
    await runs.promote(fresh, everywhere)
    ready_s = time.perf_counter() - opened
    await fresh.close()

    await peek()
    peeks_us = []
    for _ in range(PEEKS):
        started = time.perf_counter()
        await peek()
        peeks_us.append((time.perf_counter() - started) * 1e6)
    await connection.execute(
        "UPDATE sexton.runs SET due_at = clock_timestamp() - interval '1 s' "
        f"WHERE id IN (SELECT id FROM sexton.runs WHERE state = 'waiting' ORDER BY due_at LIMIT {DUE})"
    )
    started, before, popped = time.perf_counter(), _cpu_s(backend), 0
    while popped < DUE:
        popped += (await runs.promote(connection, everywhere)).promoted_count
    pop_s, pop_cpu_s = time.perf_counter() - started, _cpu_s(backend) - before
    ids = [row["id"] for row in await connection.fetch(f"SELECT id FROM sexton.runs WHERE state = 'waiting' LIMIT {DUE}")]
    started = time.perf_counter()
    for done in range(0, DUE, BATCH):
        await connection.execute("UPDATE sexton.runs SET state = 'ready' WHERE id = ANY ($1)", ids[done : done + BATCH])
    mark_s = time.perf_counter() - started
    tell(
        structure="index",
        runs=size,
        insert_us=insert_us["with"] - insert_us["without"],
        row_insert_us=insert_us["without"],
        next_us=statistics.median(peeks_us),
        next_p99_us=sorted(peeks_us)[int(PEEKS * 0.99)],
        pop_10000_ms=pop_s * 1e3,
        pop_10000_cpu_ms=pop_cpu_s * 1e3,
        only_marking_10000_ms=mark_s * 1e3,  # a structure in memory does not save this: the rows become ready in any case
        memory_mib=0.0,
        disk_mib=index_bytes / 2**20,
        rebuild_s=ready_s,
    )


async def _in_memory(connection: Conn, name: str, size: int, build: Callable[[Sequence[Entry], float], Timer]) -> None:
    gc.collect()
    own = psutil.Process()
    rss = own.memory_info().rss
    started = time.perf_counter()
    entries = await _read(connection)
    read_s = time.perf_counter() - started
    gc.disable()  # otherwise the collector scans every large list again and again
    now = time.time()
    timer = build(entries, now)
    del entries
    rebuild_s = time.perf_counter() - started
    gc.collect()
    memory = own.memory_info().rss - rss
    gc.enable()
    gc.freeze()

    rng = Random(1)
    more = [(now + 3600 + rng.random() * WEEK_S, n) for n in range(100_000)]
    started = time.perf_counter()
    for entry in more:
        timer.add(entry)
    insert_us = (time.perf_counter() - started) / len(more) * 1e6

    peeks_us = []
    for _ in range(PEEKS):
        started = time.perf_counter()
        timer.next_at()
        peeks_us.append((time.perf_counter() - started) * 1e6)
    for n in range(DUE):
        timer.add((now + 0.5 + n / DUE / 10, n))
    started, popped = time.perf_counter(), 0
    while popped < DUE:
        popped += len(timer.take(now + 0.7, BATCH))
    pop_ms = (time.perf_counter() - started) * 1e3
    gc.unfreeze()
    tell(
        structure=name,
        runs=size,
        insert_us=insert_us,
        next_us=statistics.median(peeks_us),
        next_p99_us=sorted(peeks_us)[int(PEEKS * 0.99)],
        pop_10000_ms=pop_ms,
        memory_mib=memory / 2**20,
        disk_mib=0.0,
        rebuild_s=rebuild_s,
        rebuild_reading_s=read_s,
    )


async def _read(connection: Conn) -> list[Entry]:
    """As small as possible: 16 bytes of id as one number, the due time as a float."""
    entries: list[Entry] = []
    async with connection.transaction():
        cursor = await connection.cursor(
            "SELECT extract(epoch FROM due_at)::float8, id FROM sexton.runs WHERE state = 'waiting'"
        )
        while rows := await cursor.fetch(20_000):
            entries.extend((due, run_id.int) for due, run_id in rows)
    return entries


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
