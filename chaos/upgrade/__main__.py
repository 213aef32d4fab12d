"""`python -m chaos.upgrade --seconds 120`: the exit code is 1 if a job was lost, leased twice or has no explanation, or a lock
was held for too long. Needs a clone that has the commit in tests/migration/previous."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import asyncpg

from sexton.store.embedded.server import EmbeddedPostgres
from tests.migration.previous_release import install
from tests.process.cluster import Cluster

from .course import Course, Plan, settings
from .verdict import Verdict

JOBS_PER_S = 40  # per second, of each release, in each of three phases: a load that two busy cores can handle


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m chaos.upgrade", description="Two releases side by side under load.")
    parser.add_argument("--seconds", type=int, default=120, help="seconds that schedules fire (default: %(default)s)")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that SIGTERM also ends the server and the processes
    with (
        tempfile.TemporaryDirectory(prefix="sexton-upgrade-") as folder,
        tempfile.TemporaryDirectory(prefix="sexton-upgrade-") as data,
        EmbeddedPostgres.start(Path(data)) as server,
    ):
        verdict, logs = asyncio.run(_run(server.url(), Path(folder), given.seconds))
    print(verdict)
    if verdict.faults:
        print(f"NOT SOUND: {verdict.faults}\n{verdict.findings}\n{verdict.fires}\n{logs}", file=sys.stderr)
    sys.exit(bool(verdict.faults))


async def _run(url: str, folder: Path, seconds: int) -> tuple[Verdict, str]:
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {what}", file=sys.stderr, flush=True)

    connection = await asyncpg.connect(url)
    plan = Plan(jobs=seconds * JOBS_PER_S // 2, seconds=seconds)
    with closing(Cluster(folder / "cluster", url, settings())) as cluster:
        verdict = await Course(install(), cluster, connection, url, plan, say).run()
        await connection.close()
        return verdict, cluster.logs()


if __name__ == "__main__":
    main()
