"""`python -m chaos.soak --hours 1`: runs a soak on a durable PostgreSQL of its own. The exit code is 1 if something grew that
may not, or a job was lost."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from sexton.store import migrations
from sexton.store.database import Postgres
from sexton.store.embedded.server import EmbeddedPostgres
from sexton.store.fleet import cluster

from . import report
from .run import SAMPLE_S, SoakPlan, soak


async def _prepared(url: str) -> None:
    database = await Postgres.open(url, size=1)
    await migrations.migrate(database)
    await cluster.require_home(database)
    await database.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m chaos.soak", description="Run a steady load for hours and report what grows."
    )
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--rate", type=float, default=500.0, help="jobs per second (default: %(default)s)")
    parser.add_argument("--sample-s", type=float, default=SAMPLE_S, help="seconds between samples (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--report", type=Path, default=Path("chaos/report"), help="folder for the report (default: %(default)s)"
    )
    given = parser.parse_args()
    plan = SoakPlan(given.hours * 3600, given.rate, given.sample_s, seed=given.seed)
    folder = Path(tempfile.mkdtemp(prefix="sexton-soak-"))
    try:
        with EmbeddedPostgres.start(folder / "postgres") as server:
            asyncio.run(_prepared(server.url()))
            outcome = asyncio.run(soak(plan, server.url(), folder, lambda line: print(line, file=sys.stderr, flush=True)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.write(given.report, outcome.about, outcome.verdicts, outcome.series)
    print(report.text(outcome.about, outcome.verdicts))
    sys.exit(0 if outcome.is_good else 1)


if __name__ == "__main__":
    main()
