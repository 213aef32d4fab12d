"""`python -m tools.nightly [PART…]`: everything that takes too long for `make test`, part by part.

tests/nightly.toml records when, at which commit and how long each part last passed. A part that has passed on the current code
is not run again, so an interrupted run continues where it stopped. Commit the file after a run."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sexton.clock import host_now

ROOT = Path(__file__).parents[1]
RECORD = Path("tests/nightly.toml")
LOGS = Path(".cache/nightly")
_ONCE = "--ignore=tests/store/test_connections.py --ignore=tests/store/test_embedded.py"
STORE = f"tests/store tests/operations tests/migration {_ONCE}"
_FOLDERS = ("unit", "worker", "handlers", "client", "scheduler", "api", "cli", "process")
ON_OTHER_PYTHONS = f"-n 2 --dist=worksteal {' '.join(f'tests/{name}' for name in _FOLDERS)}"
# Each does on a large scale, at the promised size, what a part of `make test` does on a small scale.
PROCESS_SIZES = {
    "JOBS": "20000",
    "SPREAD_S": "12",
    "COUNTER_JOBS": "2000",
    "SCHEDULES": "500",
    "SCHEDULES_S": "60",
    "RATE_S": "60",
    "SERIAL_RUNS": "1000",
}
STORE_SIZES = {"SEXTON_TEST_BACKLOG": "100000"}
ABUSE_SIZES = {"EXAMPLES": "2000", "SEQUENCES": "100", "FLOOD_S": "20", "CONNECTIONS": "5000"}


@dataclass(frozen=True)
class Part:
    name: str
    about: str
    command: str  # after `python -m`
    environment: Mapping[str, str] = field(default_factory=dict)


def _sizes(sizes: Mapping[str, str]) -> dict[str, str]:
    return {f"SEXTON_TEST_{name}": value for name, value in sizes.items()}


PARTS = {
    part.name: part
    for part in (
        Part("marked", "tests that are marked nightly", "pytest -n 2 --dist=worksteal tests -m nightly --nightly"),
        Part("store-15", "the store on PostgreSQL 15", f"pytest -n 2 --dist=worksteal {STORE} --postgres=15", STORE_SIZES),
        Part("store-16", "the store on PostgreSQL 16", f"pytest -n 2 --dist=worksteal {STORE} --postgres=16", STORE_SIZES),
        Part("store-18", "the store on PostgreSQL 18", f"pytest -n 2 --dist=worksteal {STORE} --postgres=18", STORE_SIZES),
        *(
            Part(f"python-{version}", f"all services on Python {version}", f"tools.other_python {version} {ON_OTHER_PYTHONS}")
            for version in ("3.12", "3.13")
        ),
        Part(
            "zones",
            "every change of every time zone",
            "pytest tests/unit/schedule/test_zones.py --timeout=3600",
            {"SEXTON_TEST_ZONES": "all"},
        ),
        Part(
            "random",
            "property tests with new random examples",
            "pytest -n 2 --dist=worksteal tests/unit tests/api tests/abuse/test_parsers.py tests/abuse/test_stateful.py",
            {"SEXTON_TEST_RANDOM": "1"},
        ),
        Part(
            "ablations",
            "each safeguard removed, without pinned seeds",
            "pytest -n 2 --dist=worksteal tests/simulation -k ablations --nightly --timeout=3600",
        ),
        Part(
            "simulation",
            "500 seeds of the simulation",
            "pytest -n 2 --dist=worksteal tests/simulation/test_simulation.py --seeds=0-499 --nightly --timeout=400",
        ),
        Part(
            "process",
            "real processes, at the sizes that the product promises",
            "pytest tests/process --nightly --timeout=900",
            _sizes(PROCESS_SIZES),
        ),
        Part("abuse", "hostile callers, for longer", "pytest tests/abuse --nightly --timeout=900", _sizes(ABUSE_SIZES)),
        Part(
            "fuzz",
            "the HTTP API from its document, with many examples",
            "pytest tests/api/test_openapi.py --timeout=7200",
            {"SEXTON_TEST_EXAMPLES": "100"},
        ),
        Part(
            "releases",
            "the upgrade of an older database, and two releases side by side under load",
            "pytest tests/process/test_two_releases.py tests/migration --timeout=900",
        ),
        Part("mutants", "hand-written mutants, each against the tests that must catch it", "tools.mutants"),
        # A new seed with each release: the draw can be repeated, and each release sees mutants that none saw before.
        Part("generated", "100 generated mutants of the core", "tools.mutants --generated 100 --seed 20261119"),
        Part("upgrade", "two releases side by side for two minutes", "chaos.upgrade --seconds 120"),
        Part("chaos", "ten minutes of chaos", "chaos --minutes 10 --seed 11"),
        Part("failover", "kills of a replicated primary", "chaos.failover"),
        Part(
            "depth",
            "pinned plans at ten million rows",
            "pytest tests/store/test_plans_at_depth.py --timeout=7200",
            {"SEXTON_TEST_DEPTH": "10000000"},
        ),
        Part("neighbours", "the targets beside poison and other bad neighbours", "bench poison neighbours --judge"),
        Part("compare", "speed against the last release", "bench compare --base {previous} drain herd latency submit"),
        Part("soak", "an hour of steady load", "chaos.soak --hours 1"),
    )
}


@dataclass(frozen=True)
class Green:
    """The last time a part passed."""

    at: str
    commit: str
    took_s: int


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.nightly", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--again", action="store_true", help="also run parts that have passed on this code")
    parser.add_argument("--list", action="store_true", help="only show which parts have passed")
    given = parser.parse_args()
    if unknown := [name for name in given.parts if name not in PARTS]:
        parser.error(f"unknown part {', '.join(unknown)}; known parts: {', '.join(PARTS)}")
    chosen = [PARTS[name] for name in given.parts or PARTS]
    if given.list:
        for part in chosen:
            print(f"{part.name:11} {_state(part)}")
        return
    if changed := _git("status", "--porcelain", "--", ".", f":!{RECORD}"):
        parser.exit(2, f"Commit first: a part is recorded with the commit on which it passed.\n{changed}\n")
    failed = [part.name for part in chosen if not _passes(part, again=given.again)]
    sys.exit(f"nightly: failed: {', '.join(failed)}; logs in {LOGS}" if failed else 0)


def _state(part: Part) -> str:
    green = recorded().get(part.name)
    if green is None:
        return "has never passed"
    here = "on this code" if _is_this_code(green.commit) else "on other code"
    return f"passed {here}: {green.commit} at {green.at}, {green.took_s} s"


def _passes(part: Part, *, again: bool) -> bool:
    green = recorded().get(part.name)
    if green is not None and not again and _is_this_code(green.commit):
        print(f"nightly: {part.name} has passed on this code ({green.commit} at {green.at})", flush=True)
        return True
    log = ROOT / LOGS / f"{part.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    print(f"nightly: {part.name}: {part.about}; {LOGS}/{part.name}.log", flush=True)
    command = part.command.format(previous=(ROOT / "tests/migration/previous").read_text().strip())
    began = time.monotonic()
    with log.open("wb") as output:
        code = subprocess.run(
            [sys.executable, "-m", *shlex.split(command)],
            cwd=ROOT,
            env={**os.environ, **part.environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    took_s = round(time.monotonic() - began)
    last = (log.read_text(errors="replace").strip().splitlines() or ["no output"])[-1]
    print(f"nightly: {part.name} {'passed' if code == 0 else f'FAILED with code {code}'} after {took_s} s: {last}", flush=True)
    if code == 0:
        at = f"{host_now():%Y-%m-%dT%H:%M:%SZ}"
        write({**recorded(), part.name: Green(at, _git("rev-parse", "--short=10", "HEAD"), took_s)})
    return code == 0


def recorded() -> dict[str, Green]:
    path = ROOT / RECORD
    return {name: Green(**green) for name, green in tomllib.loads(path.read_text()).items()} if path.exists() else {}


def write(greens: Mapping[str, Green]) -> None:
    sections = [
        f'[{name}]\nat = "{green.at}"\ncommit = "{green.commit}"\ntook_s = {green.took_s}\n'
        for name, green in sorted(greens.items())
    ]
    (ROOT / RECORD).write_text(
        "\n".join(["# Written by `make nightly`: when each part last passed, and on which commit.", *sections])
    )


def _is_this_code(commit: str) -> bool:
    """Whether only the record itself has changed since then."""
    command = ["git", "diff", "--quiet", commit, "--", ".", f":!{RECORD}"]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True).returncode == 0


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
