"""`python -m tests.simulation URL SEED` lives one life in a freshly migrated database and prints its history."""

from __future__ import annotations

import asyncio
import sys

from .world import World


async def main(url: str, seed: int) -> None:
    async with World(url, seed) as world:
        try:
            await world.run()
        finally:
            sys.stdout.write("".join(f"{line}\n" for line in world.history))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
