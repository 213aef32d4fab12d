"""`python -m tests.simulation URL SEED` runs one simulation in a freshly migrated database and prints its history; the last
line, on stderr, is the summary. `make simulate SEEDS=17-17` also creates the database."""

from __future__ import annotations

import asyncio
import sys

from .summary import Summary
from .world import World


async def main(url: str, seed: int) -> None:
    saw = Summary(seeds=[seed], violation_count=1)
    async with World(url, seed) as world:
        try:
            await world.run()
            saw.violation_count = 0
        finally:
            saw.step_count = world.step_count
            sys.stdout.write("".join(f"{line}\n" for line in world.history))
            sys.stderr.write(f"{saw.line()}\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
