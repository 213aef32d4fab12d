"""`python -m chaos.failover`: kills the primary of a replicated PostgreSQL under load. The exit code is 0 if all limits hold, 1
if one does not, and 2 if a program is missing."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from . import drill, programs
from .configuration import Mode, Way
from .report import Kind, as_text

FOLDER = Path(__file__).parents[1] / "report"
LAG_MS = 250.0  # of an asynchronous standby, as between two regions


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    try:
        found = programs.find()
    except programs.Missing as missing:
        print(missing, file=sys.stderr)
        return 2
    began_at = time.monotonic()
    options = drill.Options(
        mode=given.mode,
        way=given.way,
        kinds=given.kinds.split(","),
        kill_count=given.kills,
        rate_per_s=given.rate,
        standbys=given.standbys,
        lag_ms=0.0 if given.mode == "sync" else given.lag_ms,
        keep=given.keep,
        say=lambda text: print(f"{time.monotonic() - began_at:6.1f} s  {text}", file=sys.stderr, flush=True),
    )
    report = asyncio.run(drill.run(found, options))
    text = as_text(report)
    given.report.mkdir(parents=True, exist_ok=True)
    (given.report / f"failover-{given.mode}.json").write_text(json.dumps(report.as_json(), indent=1) + "\n")
    (given.report / f"failover-{given.mode}.txt").write_text(text + "\n")
    print(text)
    return 1 if report.shortfalls else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m chaos.failover", description=__doc__)
    parser.add_argument("--mode", choices=get_args(Mode), default="sync", help="mode of replication (default: %(default)s)")
    parser.add_argument(
        "--way", choices=get_args(Way), default="haproxy", help="how clients reach the primary (default: %(default)s)"
    )
    parser.add_argument("--kills", type=_positive, default=5, help="number of kills (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=500.0, help="jobs submitted per second (default: %(default)g)")
    parser.add_argument("--standbys", type=_positive, default=2, help="number of standbys (default: %(default)s)")
    parser.add_argument(
        "--kinds", type=_kinds, default="postmaster,node", help="kinds of kills, used in turn: postmaster, node, freeze"
    )
    parser.add_argument("--lag-ms", type=float, default=LAG_MS, help="lag of asynchronous replication (default: %(default)g)")
    parser.add_argument("--report", type=Path, default=FOLDER, help="folder for failover-MODE.json and .txt")
    parser.add_argument("--keep", action="store_true", help="keep the folder with data and logs")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 100:
        raise argparse.ArgumentTypeError(f"{number} is not between 1 and 100")
    return number


def _kinds(text: str) -> str:
    unknown = set(text.split(",")) - set(get_args(Kind))
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: the known kinds are {', '.join(get_args(Kind))}")
    return text


if __name__ == "__main__":
    sys.exit(main())
