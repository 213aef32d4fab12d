"""`python -m bench SCENARIO… [--json]`. `all` measures every scenario; several scenarios print one table at the end. With
`--judge` the exit code is 1 if a figure misses its *must*. `python -m bench peers` compares Sexton with other job queues,
`python -m bench compare` with another commit of Sexton."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from sexton.settings import Settings

from . import machine
from .arguments import positive
from .scenario import Figures, Options, Scenario
from .scenarios import ALL
from .tables import Outcome, missed, summary, table
from .testbed import fresh_testbed, machine_to_ourselves

REPORTED_SETTINGS = (
    "worker_concurrency",
    "pool_size",
    "notify",
    "lease_s",
    "beat_s",
    "sweep_s",
    "poll_s",
    "promote_limit",
)


def main() -> None:
    if sys.argv[1:2] in (["peers"], ["compare"]):
        return import_module(f"bench.{sys.argv[1]}.command").main(sys.argv[2:])  # type: ignore[no-any-return]
    arguments = _parser().parse_args()
    names = list(ALL) if "all" in arguments.scenarios else list(dict.fromkeys(arguments.scenarios))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that SIGTERM also ends the server and the processes
    progress = Console(stderr=True)
    console = Console()
    outcomes: dict[str, dict[str, Any] | None] = {}
    for name in names:
        scenario = ALL[name]
        with progress.status(name) if progress.is_terminal else nullcontext() as status:

            def say(what: str, prefix: str = name, status: Any = status) -> None:
                if status is not None:
                    status.update(f"{prefix}: {what}")

            try:
                outcomes[name] = outcome = asyncio.run(_measure(scenario, arguments, say))
            except Exception as error:
                if len(names) == 1:
                    raise
                outcomes[name] = None
                progress.print_exception()
                progress.print(f"{name} failed: {error}; continuing with the others", markup=False)
                if arguments.json:
                    print(json.dumps({"scenario": name, "failed": str(error)}), flush=True)
                continue
        if arguments.json:
            print(json.dumps(outcome), flush=True)
        else:
            console.print(table(scenario, outcome))
    sys.exit(_close([(ALL[name], outcome) for name, outcome in outcomes.items()], arguments, progress, console))


def _close(outcomes: Sequence[Outcome], arguments: argparse.Namespace, progress: Console, console: Console) -> bool:
    """Prints the summary. Returns whether a scenario failed or, if asked, missed what a release needs."""
    if len(outcomes) > 1:
        (progress if arguments.json else console).print(summary(outcomes))
    misses = missed(outcomes) if arguments.judge else []
    for miss in misses:
        progress.print(miss, markup=False)
    return bool(misses) or any(outcome is None for _, outcome in outcomes)


async def _measure(scenario: Scenario, arguments: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    jobs = arguments.jobs or (scenario.quick_jobs if arguments.quick else None)
    options = Options(jobs=jobs, workers=arguments.workers, waiting=arguments.waiting, quick=arguments.quick)
    repetitions: list[Figures] = []
    postgres: dict[str, Any] = {}
    for number in range(1, arguments.repeat + 1):

        def say_which(what: str, number: int = number) -> None:
            say(what if arguments.repeat == 1 else f"{number} of {arguments.repeat}: {what}")

        with nullcontext() if arguments.shared else machine_to_ourselves(say_which):
            say_which("starting PostgreSQL")
            async with fresh_testbed(
                external_url=os.environ.get("SEXTON_DATABASE_URL"),
                bin_dir=arguments.postgres_bin,
                concurrency=arguments.concurrency,
                say=say_which,
            ) as testbed:
                postgres = await testbed.server.description()
                figures = await scenario.run(testbed, options)
                repetitions.append(_rounded({**testbed.conditions(), **figures}))
    settings = Settings().model_dump(include=set(REPORTED_SETTINGS))
    if arguments.concurrency is not None:
        settings["worker_concurrency"] = arguments.concurrency
    return {
        "scenario": scenario.name,
        **scenario.best(repetitions),
        "spread": _spread(repetitions),
        "repetitions": len(repetitions),
        "options": {"jobs": jobs, "workers": arguments.workers, "waiting": arguments.waiting, "quick": arguments.quick},
        "targets": {key: target._asdict() for key, target in scenario.targets.items()},
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine.description(),
        "postgres": postgres,
        "sexton": {"version": version("sexton"), "settings": settings},
    }


def _spread(repetitions: Sequence[Figures]) -> dict[str, dict[str, float]]:
    """Lowest, median and highest value of each figure. The figures themselves are those of the best repetition."""
    spread = {}
    for key in repetitions[0]:
        values = [figures[key] for figures in repetitions]
        if all(isinstance(value, int | float) for value in values):
            spread[key] = {"min": min(values), "median": statistics.median(values), "max": max(values)}
    return spread


def _rounded(value: Any) -> Any:
    """Rounds to six digits; no figure is more precise."""
    match value:
        case float():
            return float(f"{value:.6g}")
        case dict():
            return {key: _rounded(part) for key, part in value.items()}
        case list():
            return [_rounded(part) for part in value]
        case _:
            return value


class _Parser(argparse.ArgumentParser):
    def format_help(self) -> str:
        """Imports every scenario only for the help."""
        self.epilog = "Scenarios: " + "; ".join(f"{scenario.name}: {scenario.about}" for scenario in ALL.values())
        return super().format_help()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m bench", description="Measures Sexton: the scenarios of docs/performance.md.")
    parser.add_argument(
        "scenarios", nargs="+", choices=[*ALL, "all"], help="see below; `all` measures every scenario", metavar="SCENARIO"
    )
    parser.add_argument("--judge", action="store_true", help="exit with 1 if a figure misses what a release needs (*must*)")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--jobs", type=positive, help="number of jobs, instead of the scenario's own")
    parser.add_argument("--workers", type=positive, default=1, help="worker processes, in scenarios that start one by default")
    parser.add_argument("--waiting", type=positive, help="number of runs that are due in a year (depth, memory)")
    parser.add_argument("--concurrency", type=positive, help="SEXTON_WORKER_CONCURRENCY of each worker")
    parser.add_argument(
        "--quick", action="store_true", help="a few seconds each, to check that it runs; the figures mean nothing"
    )
    parser.add_argument("--repeat", type=positive, default=1, help="repetitions, each on a database of its own")
    parser.add_argument(
        "--postgres-bin",
        type=Path,
        help="folder with the programs of another PostgreSQL; pg_stat_statements is used if it is there",
    )
    parser.add_argument("--shared", action="store_true", help="do not wait for other benchmarks on this machine")
    return parser


if __name__ == "__main__":
    main()
