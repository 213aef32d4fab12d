"""The effect of each setting on a drain: `python -m bench.studies.knobs`. It changes one setting at a time and measures it and
the default in alternating runs on one server, so that a slow minute of the machine affects both."""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench import overrides
from bench.draining import Drained, drain
from bench.testbed import Testbed, fresh_testbed, machine_to_ourselves

from .testbed import say, tell

JOBS = 50_000
PASSES = 3

USUAL = {"fillfactor": "90"}  # as the migrations set it
INTAKE, REPORTER = "sexton.worker.intake", "sexton.worker.reporter"


@dataclass(frozen=True)
class Turn:
    knob: str
    setting: str
    overrides: dict[str, float] = field(default_factory=dict)  # constants of the worker
    server: dict[str, str] = field(default_factory=dict)  # of PostgreSQL
    runs: dict[str, str] = field(default_factory=dict)  # storage parameters of the table
    slots: int | None = None


TURNS = [
    Turn("slots of a worker", "10", slots=10),
    Turn("slots of a worker", "1,000", slots=1_000),
    Turn("taken ahead (prefetch)", "nothing", overrides={f"{INTAKE}.AHEAD_LIMIT": 0}),
    Turn("taken ahead (prefetch)", "what starts within 10 ms", overrides={f"{INTAKE}.AHEAD_S": 0.01}),
    Turn(
        "taken ahead (prefetch)",
        "what starts within 200 ms",
        overrides={f"{INTAKE}.AHEAD_S": 0.2, f"{INTAKE}.AHEAD_LIMIT": 10_000},
    ),
    Turn("size of a claim", "at most 100", overrides={f"{INTAKE}.CLAIM_LIMIT": 100, f"{INTAKE}.GATHER_LIMIT": 25}),
    Turn("reports sent at once", "at most 100", overrides={f"{REPORTER}.BATCH": 100}),
    Turn("`commit_delay`", "100 µs", server={"commit_delay": "100", "commit_siblings": "1"}),
    Turn("`commit_delay`", "1 ms", server={"commit_delay": "1000", "commit_siblings": "1"}),
    Turn("`wal_compression`", "on", server={"wal_compression": "on"}),
    Turn("`synchronous_commit`", "off (may lose work in a crash)", server={"synchronous_commit": "off"}),
    Turn("`autovacuum`", "off", server={"autovacuum": "off"}),
    Turn("`fillfactor` of `runs`", "100", runs={"fillfactor": "100"}),
    Turn("`fillfactor` of `runs`", "50", runs={"fillfactor": "50"}),
]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.studies.knobs", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--passes", type=int, default=PASSES)
    arguments = parser.parse_args()
    asyncio.run(_study(arguments.jobs, arguments.passes))


async def _study(jobs: int, passes: int) -> None:
    for turn in TURNS:
        with machine_to_ourselves(say):
            say(f"{turn.knob}: {turn.setting}")
            async with fresh_testbed(external_url=None, bin_dir=None, concurrency=None, say=lambda _: None) as testbed:
                await _compare(testbed, turn, jobs, passes)


async def _compare(testbed: Testbed, turn: Turn, jobs: int, passes: int) -> None:
    usual: list[Drained] = []
    turned: list[Drained] = []
    first = 0
    for _ in range(passes):
        for into, is_turned in ((usual, False), (turned, True)):
            await _set(testbed, turn, is_turned=is_turned)
            into.append(await drain(testbed, range(first, first + jobs), environment=_environment(turn) if is_turned else None))
            first += jobs
    tell(
        knob=turn.knob,
        setting=turn.setting,
        rate=_ratio([one.jobs_per_s for one in turned], [one.jobs_per_s for one in usual]),
        cpu=_ratio([one.cpu_us for one in turned], [one.cpu_us for one in usual]),
        wal=_ratio([one.figures["wal_bytes_per_job"] for one in turned], [one.figures["wal_bytes_per_job"] for one in usual]),
        jobs=jobs,
        passes=passes,
    )


def _environment(turn: Turn) -> dict[str, str]:
    slots = {} if turn.slots is None else {"SEXTON_WORKER_CONCURRENCY": str(turn.slots)}
    return {**overrides.environment(turn.overrides), **slots}


async def _set(testbed: Testbed, turn: Turn, *, is_turned: bool) -> None:
    """The names and values in `KNOBS`."""
    for name, value in turn.server.items():
        await testbed.server.monitor.execute(
            f"ALTER SYSTEM SET {name} = {value}" if is_turned else f"ALTER SYSTEM RESET {name}"
        )
    if turn.server:
        await testbed.server.monitor.execute("SELECT pg_reload_conf()")
    for name, value in turn.runs.items():
        await testbed.server.monitor.execute(f"ALTER TABLE sexton.runs SET ({name} = {value if is_turned else USUAL[name]})")
    await testbed.server.monitor.execute("VACUUM sexton.runs")


def _ratio(turned: Sequence[float | None], usual: Sequence[float | None]) -> float | None:
    """The mean of the middle values."""
    if any(value is None for value in (*turned, *usual)):
        return None
    return statistics.median(filter(None, turned)) / statistics.median(filter(None, usual))


if __name__ == "__main__":
    main()
