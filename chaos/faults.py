"""The faults that the nemesis can inject, one function each. A function starts the fault, waits as long as it lasts, and
returns after it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import NamedTuple

import asyncpg

from . import neighbours, poison, refusals, skew
from .database_server import OURS, Conn
from .fault_context import Applied, FaultContext

CLIENT = "client"  # the harness's own connection to the database, as a member of the network

Do = Callable[[FaultContext, float], Awaitable[Applied]]
Lacks = Callable[[FaultContext], str | None]  # why this machine cannot inject the fault, and how it could


class Kind(NamedTuple):
    do: Do
    hold_s: tuple[float, float] = (0.0, 0.0)
    counts_from: str = "end"  # from when recovery counts: `begin` if the other processes must carry on without the target
    explains: bool = True  # whether it may cost a run its lease
    lacks: Lacks = lambda _: None


async def kill_worker(context: FaultContext, hold_s: float) -> Applied:
    return _kill(context, [context.rng.choice(context.plan.worker_names)])


async def kill_scheduler(context: FaultContext, hold_s: float) -> Applied:
    return _kill(context, [context.rng.choice(context.plan.scheduler_names)])


async def kill_api(context: FaultContext, hold_s: float) -> Applied:
    return _kill(context, ["api"])


async def kill_several(context: FaultContext, hold_s: float) -> Applied:
    return _kill(context, context.rng.sample(context.plan.members, k=min(4, len(context.plan.members) - 1)))


def _kill(context: FaultContext, names: Sequence[str]) -> Applied:
    return Applied(tuple(names), ", ".join(name for name in names if context.members.kill(name)) or "had already ended")


async def pause_worker(context: FaultContext, hold_s: float) -> Applied:
    return await _pause(context, context.rng.choice(context.plan.worker_names), hold_s)


async def pause_scheduler(context: FaultContext, hold_s: float) -> Applied:
    return await _pause(context, context.rng.choice(context.plan.scheduler_names), hold_s)


async def _pause(context: FaultContext, name: str, hold_s: float) -> Applied:
    """Stops the process for longer than its lease, then continues it."""
    cluster = context.members.cluster
    hold_s += context.plan.lease_s
    cluster.pause(name)
    try:
        await asyncio.sleep(hold_s)
    finally:
        cluster.resume(name)
    return Applied((name,), f"{name} was stopped for {hold_s:.1f} s")


async def restart_server(context: FaultContext, hold_s: float) -> Applied:
    await context.database_server.restart(crash=False)
    return Applied((), "PostgreSQL stopped fast and started again")


async def crash_server(context: FaultContext, hold_s: float) -> Applied:
    await context.database_server.restart(crash=True)
    return Applied((), "PostgreSQL stopped at once, without a checkpoint, and started again")


async def cut_connections(context: FaultContext, hold_s: float) -> Applied:
    names = context.rng.sample(context.network.names, k=context.rng.randint(2, len(context.network.names)))
    count = await context.network.cut(names)
    return Applied(tuple(names), f"{count} connections cut")


async def drop_connections(context: FaultContext, hold_s: float) -> Applied:
    """As a firewall that drops its connection table: the packets of one member are discarded, and the member gets no error."""
    name = context.rng.choice((*context.plan.worker_names, *context.plan.scheduler_names))
    count = await context.network.drop([name])
    return Applied((name,), f"{count} connections of {name} lead nowhere")


async def delay_connections(context: FaultContext, hold_s: float) -> Applied:
    names = context.network.names
    up_s, down_s = (round(context.rng.uniform(0.02, 0.25), 3) for _ in range(2))
    await context.network.delay(names, up_s=up_s, down_s=down_s)
    try:
        await asyncio.sleep(hold_s)
    finally:
        await context.network.heal(names)
    return Applied((), f"{1000 * up_s:.0f} ms to the server and {1000 * down_s:.0f} ms back, for {hold_s:.1f} s")


async def hold_member(context: FaultContext, hold_s: float) -> Applied:
    """A partition: nothing arrives in one direction or in both, neither side gets an error, and later everything arrives."""
    name = context.rng.choice((*context.plan.worker_names, *context.plan.scheduler_names))
    up, down = context.rng.choice(((True, True), (True, False), (False, True)))
    hold_s += context.plan.lease_s
    await context.network.hold([name], up=up, down=down)
    try:
        await asyncio.sleep(hold_s)
    finally:
        await context.network.heal([name])
    ways = "both ways" if up and down else "to the server" if up else "from the server"
    return Applied((name,), f"nothing passed {ways} of {name} for {hold_s:.1f} s")


async def exhaust_connections(context: FaultContext, hold_s: float) -> Applied:
    """Takes every connection that the server allows, also those that the members had."""
    async with AsyncExitStack() as taken:
        count = await _take_all(context, taken)
        await context.network.cut(context.network.names)
        count += await _take_all(context, taken)
        await asyncio.sleep(hold_s)
    return Applied((), f"{count} of {context.database_server.connections} connections taken for {hold_s:.1f} s")


async def _take_all(context: FaultContext, taken: AsyncExitStack) -> int:
    count = 0
    with suppress(asyncpg.TooManyConnectionsError, OSError, TimeoutError):
        while count < 2 * context.database_server.connections:
            connection = await context.database_server.connect()
            taken.callback(connection.terminate)
            count += 1
    return count


async def kill_backends(context: FaultContext, hold_s: float) -> Applied:
    connection = await context.database_server.connect()
    try:
        count = await connection.fetchval(
            """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE backend_type = 'client backend' AND application_name <> $1""",
            OURS,
        )
    finally:
        await connection.close()
    return Applied((), f"{count} server processes terminated")


async def fill_disk(context: FaultContext, hold_s: float) -> Applied:
    """First statements fail because the disk is full. Then the WAL cannot grow, and the server stops."""
    database_server = context.database_server
    room = database_server.fill()
    try:
        await asyncio.sleep(hold_s / 2)
        with suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            connection = await database_server.connect()
            try:
                await _use_up_the_log(connection)
            finally:
                connection.terminate()
        database_server.fill()
        await asyncio.sleep(hold_s / 2)
    finally:
        database_server.free()
    how = "kept running" if await database_server.is_up() else "had stopped and was started again"
    await database_server.until_up()
    return Applied((), f"disk full for {hold_s:.1f} s ({room / 2**20:.0f} MiB taken); the server {how}")


async def _use_up_the_log(connection: Conn) -> None:
    for _ in range(12):
        await connection.execute("SELECT pg_switch_wal(), pg_logical_emit_message(true, 'chaos', 'more')")


async def skew_clock(context: FaultContext, hold_s: float) -> Applied:
    name = context.rng.choice(sorted(context.members.skewed))
    seconds = context.rng.choice((-3600, -60, 90, 7200))
    skew.move(context.members.skewed[name], seconds)
    try:
        await asyncio.sleep(hold_s)
    finally:
        skew.move(context.members.skewed[name], 0)
    return Applied((name,), f"the wall clock of {name} was {seconds:+d} s off for {hold_s:.1f} s")


def _no_small_disk(context: FaultContext) -> str | None:
    return None if context.database_server.has_small_disk else "a small disk cannot be mounted here: run as root on Linux"


def _no_library(context: FaultContext) -> str | None:
    return None if context.members.skewed else f"libfaketime is not installed: {skew.HOW_TO_GET}"


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
    "lock schedule": Kind(neighbours.lock_schedule, neighbours.SCHEDULE_HELD_S, explains=False),
    "lock run": Kind(neighbours.lock_run, (8.0, 15.0), explains=False),
    "hold key": Kind(neighbours.hold_key, (8.0, 15.0), explains=False),
    "poison": Kind(poison.poison),
    "lock table": Kind(refusals.lock_table, (3.0, 8.0)),
    "rename table": Kind(refusals.rename_table, (3.0, 8.0)),
    "rewrite tables": Kind(refusals.rewrite_tables, (3.0, 8.0)),
    "refuse writes": Kind(refusals.refuse_writes, (3.0, 8.0)),
    "revoke rights": Kind(refusals.revoke_rights, (3.0, 8.0)),
    "lock out role": Kind(refusals.lock_out_role, (3.0, 8.0)),
    "limit statements": Kind(refusals.limit_statements, (3.0, 8.0)),
}
# Faults that must not affect other jobs, and whose effect must be over soon after their end.
OF_A_NEIGHBOUR = frozenset({"lock schedule", "lock run", "hold key"})
REFUSALS = frozenset(
    {
        "lock table",
        "rename table",
        "rewrite tables",
        "refuse writes",
        "revoke rights",
        "lock out role",
        "limit statements",
    }
)
