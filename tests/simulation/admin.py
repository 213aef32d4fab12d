"""An administrator who sets limits, pauses queues and changes tenants during everything else, and ends every pause in time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, Any

from sexton.domain.limit import Limit, standing_limit
from sexton.domain.sharing import TenantSettings
from sexton.errors import NotAllowedIn
from sexton.operations import limits, queues, tenants
from sexton.operations.caller import Caller

from .actors import NEVER_S, QUEUES, Action, Actor

if TYPE_CHECKING:
    from sexton.store.database import Connection

    from .world import World

SHARED, ORDERED, RATED, BOTH, PACED = "stripe", "ledger", "mail", "bank", "till"  # keys, each with another kind of limit
OWNED, PLAIN_TENANT = "acme", "zeta"  # the first has a limit from the beginning
ADMIN = Caller("admin")
HOLD_S = (1.0, 15.0)  # every pause ends, so that the simulation can end

Change = Callable[["Connection"], Awaitable[Any]]


def limit_named_by(key: str, rng: Random) -> dict[str, Any]:
    """As a job names it: its numbers count if it is the first."""
    match key:
        case "ledger":
            return {"key": ORDERED, "ordered": True}
        case "till":
            return {"key": PACED, "ordered": True, "count": 2, "per": 4, "burst": 1}
        case "mail":
            return {"key": RATED, "count": rng.choice([2, 4]), "per": 4, "burst": rng.choice([1, 2])}
        case "bank":
            return {"key": BOTH, "running": rng.choice([1, 2]), "count": 3, "per": 3, "burst": 2}
        case _:
            return {"key": key, "running": rng.choice([1, 2, 3])}


class AdminActor(Actor):
    def __init__(self, world: World) -> None:
        super().__init__("admin")
        self._world, self._database = world, world.database_for(self)
        self.keys = [SHARED, SHARED, RATED, BOTH]  # keys whose numbers it changes
        self.is_hasty = False  # changes something all the time
        self._held: set[str] = set()  # names of queues and tenants that are, or may be, paused
        self.actions = [
            Action("set limit", lambda: self._change(0.5, self._set_limit), weight=lambda: 6 if self.is_hasty else 1),
            Action("remove limit", lambda: self._change(0.15, self._remove_limit)),
            Action("set tenant", lambda: self._change(0.4, self._set_tenant)),
            Action("hold", lambda: self._change(0.3, self._hold)),
            Action("let go", self._let_go, due_s=NEVER_S),
        ]

    @property
    def is_done(self) -> bool:
        return not self._held

    async def _change(self, chance: float, change: Callable[[Connection], Awaitable[str]]) -> float:
        world, rng = self._world, self._world.rng
        if not world.faults_on:
            return NEVER_S
        if rng.random() > chance and not self.is_hasty:
            return rng.uniform(1.0, 5.0)
        try:
            async with self._database.transaction() as connection:
                what = await change(connection)
        except NotAllowedIn:
            what = "limit kept, for runs wait for it"
        world.journal.seen[what] += 1
        return rng.uniform(0.2, 1.0) if self.is_hasty else rng.uniform(2.0, 8.0)

    async def _set_limit(self, connection: Connection) -> str:
        await limits.put(connection, ADMIN, self._numbers(self._world.rng), now=self._world.clock.database_now())
        return "limit set"

    def _numbers(self, rng: Random) -> Limit:
        """Changes the numbers, never the kind."""
        match rng.choice(self.keys):
            case "mail":
                return standing_limit(RATED, count=rng.choice([1, 2, 6]), per=4, burst=rng.choice([1, 3]))
            case "bank":
                return standing_limit(BOTH, running=rng.choice([1, 3]), count=rng.choice([2, 6]), per=3, burst=2)
            case _:
                return standing_limit(SHARED, running=rng.choice([1, 1, 2, 3]))

    async def _remove_limit(self, connection: Connection) -> str:
        await limits.remove(connection, ADMIN, self._world.rng.choice([SHARED, ORDERED, RATED, BOTH]))
        return "limit asked to go"

    async def _set_tenant(self, connection: Connection) -> str:
        """A tenant without a limit gets none: its running runs would not be counted."""
        rng, now = self._world.rng, self._world.clock.database_now()
        name = rng.choice([OWNED, PLAIN_TENANT])
        running_max = rng.choice([1, 2, 4]) if name == OWNED else None
        await tenants.put(connection, ADMIN, name, TenantSettings(weight=rng.randint(1, 3), running_max=running_max), now=now)
        return "tenant set"

    async def _hold(self, connection: Connection) -> str:
        world, rng = self._world, self._world.rng
        operations, name = rng.choice([(queues, rng.choice(QUEUES)), (tenants, rng.choice([OWNED, PLAIN_TENANT]))])
        self._held.add(name)  # also if the reply is lost
        self.actions[-1].due_s = world.clock.monotonic() + rng.uniform(*HOLD_S)
        await operations.pause(connection, ADMIN, name, now=world.clock.database_now())
        return "queue paused" if operations is queues else "tenant paused"

    async def _let_go(self) -> float:
        async with self._database.transaction() as connection:
            for name in sorted(self._held):
                await (queues if name in QUEUES else tenants).resume(connection, ADMIN, name)
        self._held.clear()
        self._world.journal.seen["let go on"] += 1
        return NEVER_S
