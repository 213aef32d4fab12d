"""What the nemesis can do, one function each: it begins, waits as long as it is to last, and has ended when it returns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import NamedTuple

import asyncpg

from . import skew
from .ground import OURS, Conn
from .stage import Deed, Stage

CLIENT = "client"  # the harness's own way to the database, as a member of the network

Do = Callable[[Stage, float], Awaitable[Deed]]
Lacks = Callable[[Stage], str | None]  # why this machine cannot do it, and how it could


class Kind(NamedTuple):
    do: Do
    hold_s: tuple[float, float] = (0.0, 0.0)
    counts_from: str = "end"  # of the recovery: `begin` where the others should carry on without the one who suffers
    explains: bool = True  # whether it may cost a lease
    lacks: Lacks = lambda _: None


async def kill_worker(stage: Stage, hold_s: float) -> Deed:
    return _kill(stage, [stage.dice.choice(stage.plan.worker_names)])


async def kill_scheduler(stage: Stage, hold_s: float) -> Deed:
    return _kill(stage, [stage.dice.choice(stage.plan.scheduler_names)])


async def kill_api(stage: Stage, hold_s: float) -> Deed:
    return _kill(stage, ["api"])


async def kill_several(stage: Stage, hold_s: float) -> Deed:
    return _kill(stage, stage.dice.sample(stage.plan.members, k=min(4, len(stage.plan.members) - 1)))


def _kill(stage: Stage, names: Sequence[str]) -> Deed:
    return Deed(tuple(names), ", ".join(name for name in names if stage.cast.kill(name)) or "was dead already")


async def pause_worker(stage: Stage, hold_s: float) -> Deed:
    return await _pause(stage, stage.dice.choice(stage.plan.worker_names), hold_s)


async def pause_scheduler(stage: Stage, hold_s: float) -> Deed:
    return await _pause(stage, stage.dice.choice(stage.plan.scheduler_names), hold_s)


async def _pause(stage: Stage, name: str, hold_s: float) -> Deed:
    """Past the lease, then it goes on as if nothing had been."""
    cluster = stage.cast.cluster
    hold_s += stage.plan.lease_s
    cluster.pause(name)
    try:
        await asyncio.sleep(hold_s)
    finally:
        cluster.resume(name)
    return Deed((name,), f"{name} stood still for {hold_s:.1f} s")


async def restart_server(stage: Stage, hold_s: float) -> Deed:
    await stage.ground.restart(crash=False)
    return Deed((), "PostgreSQL stopped fast and started again")


async def crash_server(stage: Stage, hold_s: float) -> Deed:
    await stage.ground.restart(crash=True)
    return Deed((), "PostgreSQL stopped at once, without a checkpoint, and started again")


async def cut_connections(stage: Stage, hold_s: float) -> Deed:
    names = stage.dice.sample(stage.network.names, k=stage.dice.randint(2, len(stage.network.names)))
    count = await stage.network.cut(names)
    return Deed(tuple(names), f"{count} connections cut")


async def drop_connections(stage: Stage, hold_s: float) -> Deed:
    """What a firewall does that forgets: the connections of one member lead nowhere, and nobody tells it."""
    name = stage.dice.choice((*stage.plan.worker_names, *stage.plan.scheduler_names))
    count = await stage.network.drop([name])
    return Deed((name,), f"{count} connections of {name} lead nowhere")


async def delay_connections(stage: Stage, hold_s: float) -> Deed:
    names = stage.network.names
    up_s, down_s = (round(stage.dice.uniform(0.02, 0.25), 3) for _ in range(2))
    await stage.network.delay(names, up_s=up_s, down_s=down_s)
    try:
        await asyncio.sleep(hold_s)
    finally:
        await stage.network.heal(names)
    return Deed((), f"{1000 * up_s:.0f} ms to the server and {1000 * down_s:.0f} ms back, for {hold_s:.1f} s")


async def hold_member(stage: Stage, hold_s: float) -> Deed:
    """A partition: nothing arrives in one direction or in both, nobody is told, and then all of it arrives."""
    name = stage.dice.choice((*stage.plan.worker_names, *stage.plan.scheduler_names))
    up, down = stage.dice.choice(((True, True), (True, False), (False, True)))
    hold_s += stage.plan.lease_s
    await stage.network.hold([name], up=up, down=down)
    try:
        await asyncio.sleep(hold_s)
    finally:
        await stage.network.heal([name])
    ways = "both ways" if up and down else "to the server" if up else "from the server"
    return Deed((name,), f"nothing passed {ways} of {name} for {hold_s:.1f} s")


async def exhaust_connections(stage: Stage, hold_s: float) -> Deed:
    """Every connection that the server allows is taken, those that the members had included."""
    async with AsyncExitStack() as taken:
        count = await _take_all(stage, taken)
        await stage.network.cut(stage.network.names)
        count += await _take_all(stage, taken)
        await asyncio.sleep(hold_s)
    return Deed((), f"{count} of {stage.ground.connections} connections taken for {hold_s:.1f} s")


async def _take_all(stage: Stage, taken: AsyncExitStack) -> int:
    count = 0
    with suppress(asyncpg.TooManyConnectionsError, OSError, TimeoutError):
        while count < 2 * stage.ground.connections:
            connection = await stage.ground.connect()
            taken.callback(connection.terminate)
            count += 1
    return count


async def kill_backends(stage: Stage, hold_s: float) -> Deed:
    connection = await stage.ground.connect()
    try:
        count = await connection.fetchval(
            """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE backend_type = 'client backend' AND application_name <> $1""",
            OURS,
        )
    finally:
        await connection.close()
    return Deed((), f"{count} server processes terminated")


async def fill_disk(stage: Stage, hold_s: float) -> Deed:
    """First statements fail for want of room; then the log cannot grow, and the server stops."""
    ground = stage.ground
    room = ground.fill()
    try:
        await asyncio.sleep(hold_s / 2)
        with suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            connection = await ground.connect()
            try:
                await _use_up_the_log(connection)
            finally:
                connection.terminate()
        ground.fill()
        await asyncio.sleep(hold_s / 2)
    finally:
        ground.free()
    how = "had held out" if await ground.is_up() else "had stopped and was started again"
    await ground.until_up()
    return Deed((), f"no room for {hold_s:.1f} s ({room / 2**20:.0f} MiB taken); the server {how}")


async def _use_up_the_log(connection: Conn) -> None:
    for _ in range(12):
        await connection.execute("SELECT pg_switch_wal(), pg_logical_emit_message(true, 'chaos', 'more')")


async def skew_clock(stage: Stage, hold_s: float) -> Deed:
    name = stage.dice.choice(sorted(stage.cast.skewed))
    seconds = stage.dice.choice((-3600, -60, 90, 7200))
    skew.move(stage.cast.skewed[name], seconds)
    try:
        await asyncio.sleep(hold_s)
    finally:
        skew.move(stage.cast.skewed[name], 0)
    return Deed((name,), f"the wall clock of {name} was {seconds:+d} s off for {hold_s:.1f} s")


def _no_small_disk(stage: Stage) -> str | None:
    return None if stage.ground.has_small_disk else "a small disk cannot be mounted here: run as root on Linux"


def _no_library(stage: Stage) -> str | None:
    return None if stage.cast.skewed else f"libfaketime is not installed: {skew.HOW_TO_GET}"


KINDS = {
    "kill worker": Kind(kill_worker, counts_from="begin"),
    "kill scheduler": Kind(kill_scheduler, counts_from="begin"),
    "kill API": Kind(kill_api, counts_from="begin"),
    "kill several": Kind(kill_several, counts_from="begin"),
    "pause worker": Kind(pause_worker, (1.5, 4.0), counts_from="begin"),
    "pause scheduler": Kind(pause_scheduler, (1.5, 4.0), counts_from="begin"),
    "restart PostgreSQL": Kind(restart_server),
    "crash PostgreSQL": Kind(crash_server),
    "cut connections": Kind(cut_connections),
    "drop connections": Kind(drop_connections, counts_from="begin"),
    "delay connections": Kind(delay_connections, (4.0, 8.0)),
    "hold connections": Kind(hold_member, (1.0, 4.0), counts_from="begin"),
    "exhaust connections": Kind(exhaust_connections, (3.0, 6.0)),
    "kill backends": Kind(kill_backends),
    "fill disk": Kind(fill_disk, (4.0, 7.0), lacks=_no_small_disk),
    "skew clock": Kind(skew_clock, (4.0, 8.0), explains=False, lacks=_no_library),
}
