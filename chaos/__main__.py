"""`python -m chaos --minutes 10 --seed 1 [--report DIR]`. The last line of the output is the summary. The exit code is 1 if a
job was lost, leased twice or has no explanation."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from pathlib import Path

from . import report
from .faults import KINDS
from .plan import Plan
from .run import run

REPORT = Path(__file__).parent / "report"


def main() -> None:
    arguments = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that SIGTERM also ends the server and the members
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {what}", file=sys.stderr, flush=True)

    plan = Plan(
        seed=arguments.seed,
        seconds=60 * arguments.minutes,
        rate=arguments.rate,
        faults=tuple(arguments.fault) if arguments.fault else None,
    )
    outcome = asyncio.run(run(plan, arguments.report, say))
    print((arguments.report / "report.md").read_text())
    if not outcome.verdict.is_sound:
        print(f"NOT SOUND: {outcome.verdict}\n{outcome.logs}", file=sys.stderr)
    print(report.line(outcome.facts), flush=True)
    sys.exit(not outcome.verdict.is_sound)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m chaos", description="Inject faults into real processes and check every job."
    )
    parser.add_argument("--minutes", type=_positive, default=10.0, help="minutes of load and faults (default: %(default)g)")
    parser.add_argument(
        "--seed", type=int, default=1, help="seed that chooses the faults, their times and their targets (default: %(default)s)"
    )
    parser.add_argument("--report", type=Path, default=REPORT, help="folder for the report (default: chaos/report)")
    parser.add_argument("--rate", type=_positive, default=120.0, help="one-time jobs per second (default: %(default)g)")
    parser.add_argument("--fault", action="append", choices=list(KINDS), help="inject only this kind of fault; may be repeated")
    return parser


def _positive(text: str) -> float:
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError("give a number above 0")
    return number


if __name__ == "__main__":
    main()
