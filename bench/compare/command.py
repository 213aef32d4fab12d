"""`python -m bench compare --base COMMIT SCENARIO…`: the exit code is 1 if a figure is worse than the limit, 2 if it cannot
compare."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from bench import machine
from bench.arguments import positive
from bench.scenarios import NAMES
from bench.testbed import machine_to_ourselves

from . import journal, judgement, plan, report, trees
from .plan import Step
from .trees import CannotCompare, Tree

Say = Callable[[str], None]
WIDTH = 150  # of a table that is written to a file
STOP_S = 30.0


def main(words: Sequence[str]) -> NoReturn:
    arguments = _parser().parse_args(words)
    arguments.scenarios = list(dict.fromkeys(arguments.scenarios))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that SIGTERM also ends the measuring process
    try:
        sys.exit(_compare(arguments))
    except CannotCompare as error:
        say(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        say("interrupted; continue with --resume")
        sys.exit(130)


def say(what: str) -> None:
    print(f"compare: {what}", file=sys.stderr, flush=True)


def _compare(arguments: argparse.Namespace) -> int:
    base = trees.build(arguments.base, say)
    head = trees.working_tree(Path(sys.executable))
    harness, why = trees.choose_harness(base, head, arguments.scenarios, arguments.harness)
    say(f"{head} against {base}; harness: {'of the working tree, for both' if harness == 'head' else f'each its own ({why})'}")
    kept = journal.Journal(journal.path(trees.FOLDER, base, head, harness), resume=arguments.resume)
    steps = plan.steps(arguments.scenarios, arguments.pairs, arguments.jobs)
    roots = {"base": base.root if harness == "own" else head.root, "head": head.root}
    Run(arguments, {"base": base, "head": head}, roots, kept).all(steps)

    found = []
    for scenario in arguments.scenarios:
        pairs = kept.pairs([step for step in steps if step.scenario == scenario])
        found += judgement.compare(scenario, pairs, arguments.limit)
        if absent := judgement.left_out(pairs):
            say(f"{scenario}: not compared, because not every run reports them: {', '.join(absent)}")
    if arguments.json:
        for document in report.documents(base, head, harness, found, arguments.limit):
            print(json.dumps(document), flush=True)
    console = Console(stderr=arguments.json)
    if not console.is_terminal:
        console = Console(stderr=arguments.json, width=WIDTH)
    caption = f"{_machine()}; {arguments.pairs} pair{'s' if arguments.pairs > 1 else ''}; runs are in {kept.path.name}"
    console.print(report.table(base, head, found, limit=arguments.limit, caption=caption, everything=arguments.all))
    say(report.conclusion(found, arguments.limit))
    return int(any(one.verdict == "worse" for one in found))


class Run:
    """Runs both trees in turn."""

    def __init__(
        self, arguments: argparse.Namespace, both: dict[str, Tree], roots: dict[str, Path], kept: journal.Journal
    ) -> None:
        self._arguments, self._trees, self._roots, self._kept = arguments, both, roots, kept
        self._seconds: dict[str, list[float]] = defaultdict(list)  # seconds per run, by scenario

    def all(self, steps: Sequence[Step]) -> None:
        left = [step for step in steps if not self._kept.has_pair(step)]
        if len(left) < len(steps):
            say(f"{len(steps) - len(left)} of {len(steps)} runs are in {self._kept.path.name}")
        say(f"{len(left)} runs, about {_span(plan.seconds(left))}")
        for (_, pair), halves in groupby(list(left), key=lambda step: (step.scenario, step.pair)):
            with nullcontext() if self._arguments.shared else machine_to_ourselves(say):
                for step in halves:
                    trees.require_unchanged(self._trees["head"])
                    run = self._measured(step)
                    self._kept.append(step, run)
                    left = left[1:]
                    say(
                        f"{step.scenario}, pair {pair} of {self._arguments.pairs}, {step.tree}: {run['seconds']:.0f} s, "
                        f"{run['elsewhere_pct']:.0f} % of the machine elsewhere; "
                        f"about {_span(plan.seconds(left, self._seconds))} left"
                    )

    def _measured(self, step: Step) -> dict[str, Any]:
        """A busy machine may spoil one run, so only a second failure counts."""
        try:
            return self._run(step)
        except CannotCompare as error:
            say(f"{error}\ncompare: trying again")
        try:
            return self._run(step)
        except CannotCompare as error:
            raise CannotCompare(f"{error}\nEarlier runs are kept; continue with --resume.") from error

    def _run(self, step: Step) -> dict[str, Any]:
        began = time.monotonic()
        line = measure(self._command(step), self._roots[step.tree], f"{step.scenario} of the {step.tree}")
        run: dict[str, Any] = json.loads(line)
        run.pop("series", None)  # only plots need it, and it is large
        run["seconds"] = round(time.monotonic() - began, 1)
        self._seconds[step.scenario].append(run["seconds"])
        return run

    def _command(self, step: Step) -> list[str]:
        command = [str(self._trees[step.tree].python), "-m", "bench", step.scenario, "--json", "--shared"]
        if step.jobs is not None:
            command += ["--jobs", str(step.jobs)]
        if self._arguments.postgres_bin is not None:
            command += ["--postgres-bin", str(self._arguments.postgres_bin)]
        return command


def measure(command: Sequence[str], root: Path, what: str) -> str:
    """Runs the command and returns the one line that it prints."""
    process = subprocess.Popen(
        command, cwd=root, env=trees.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        output, complaint = process.communicate()
    except BaseException:
        process.terminate()  # on SIGTERM it stops its server and its services
        process.wait(STOP_S)
        raise
    if process.returncode != 0:
        tail = "\n".join(complaint.strip().splitlines()[-8:])
        raise CannotCompare(f"{what} ended with code {process.returncode}:\n{tail}")
    return output.strip().splitlines()[-1]


def _machine() -> str:
    under = machine.description()
    return f"{under['cores']} x {under['cpu']}"


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench compare",
        description="Measures the working tree against a commit, in alternating runs, and judges whether it is slower.",
        epilog="The exit code is 1 if a figure is judged worse than the limit, 2 if it cannot compare.",
    )
    add = parser.add_argument
    add("scenarios", nargs="+", choices=NAMES, metavar="SCENARIO", help=", ".join(NAMES))
    add("--base", required=True, metavar="COMMIT", help="commit to compare the working tree with")
    add("--pairs", type=positive, default=plan.PAIRS, help="runs of each tree (default: %(default)s; 2 for a quick look)")
    add("--limit", type=_limit, default=judgement.LIMIT, help="how many times worse is allowed (default: %(default)s)")
    add("--jobs", type=positive, help="jobs in every run, instead of the scenario's number")
    add(
        "--harness",
        choices=("head", "own"),
        help="which tree's scenarios measure the base (default: the head's if they import)",
    )
    add("--resume", action="store_true", help="continue an interrupted comparison of the same trees")
    add("--json", action="store_true", help="one JSON object per figure; the table goes to stderr")
    add("--all", action="store_true", help="also show figures that are not judged")
    add("--postgres-bin", type=Path, help="folder with the programs of another PostgreSQL")
    add("--shared", action="store_true", help="do not wait for other benchmarks on this machine")
    return parser


def _limit(text: str) -> float:
    number = float(text)
    if not number >= 1:
        raise argparse.ArgumentTypeError("give 1 or more, such as 1.03")
    return number
