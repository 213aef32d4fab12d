"""Settings for operators' scripts: shares and limits of tenants, release rates and pauses of queues, limits by key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Unpack

from sexton.clock import SwitchableClock
from sexton.domain.limit import LimitOptions, standing_limit
from sexton.domain.sharing import QueueOptions, TenantOptions, plain_name, queue_settings, tenant_settings
from sexton.errors import NotFound
from sexton.operations import limits, queues, tenants
from sexton.operations.caller import Caller
from sexton.store.database import Connection
from sexton.store.sharing import limits as limit_rows
from sexton.store.sharing import queues as queue_rows
from sexton.store.sharing import tenants as tenant_rows
from sexton.store.sharing.limits import LimitUse
from sexton.store.sharing.queues import Queue
from sexton.store.sharing.tenants import Tenant

from .caller import APP
from .error_translation import submission_faults
from .pools import Pools


class Sharing:
    """The part of `App` that shares capacity. A result of `None` means that nothing is set and the defaults apply."""

    clock: SwitchableClock
    _pools: Pools

    async def set_tenant(self, name: str, **settings: Unpack[TenantOptions]) -> None:
        """Replaces its settings. `weight` is its share relative to others; `running_max` runs at once. Above `waiting_max` runs
        that have not started, or `submit_rate` jobs per second, submissions are rejected (`LimitExceeded`)."""
        await self._set(tenants.put, name, lambda: tenant_settings(**settings))

    async def set_queue(self, name: str, **settings: Unpack[QueueOptions]) -> None:
        """Replaces its settings. `release_rate` is how many runs per second may start; after `ageing` a run moves up one lane.
        The rest are defaults of jobs whose task and submission do not set them."""
        await self._set(queues.put, name, lambda: queue_settings(**settings))

    async def set_limit(self, key: str, **numbers: Unpack[LimitOptions]) -> None:
        """Creates the limit or replaces its numbers: `running` at once, or `count` starts `per` duration, or both."""
        with submission_faults():
            limit = standing_limit(key, **numbers)
        async with (await self._pools.here()).transaction() as connection:
            await limits.put(connection, APP, limit, now=self._now())

    async def tenant(self, name: str) -> Tenant | None:
        async with (await self._pools.here()).connection() as connection:
            return await tenant_rows.get(connection, name)

    async def queue(self, name: str) -> Queue | None:
        async with (await self._pools.here()).connection() as connection:
            return await queue_rows.get(connection, name)

    async def limit(self, key: str) -> LimitUse | None:
        """With the runs that hold it, and how many wait."""
        async with (await self._pools.here()).connection() as connection:
            return await limit_rows.get(connection, key, now=self._now())

    async def pause_tenant(self, name: str, *, note: str | None = None) -> None:
        """None of its runs starts until it is resumed; running ones continue."""
        await self._pause(tenants.pause, name, note)

    async def pause_queue(self, name: str, *, note: str | None = None) -> None:
        """No run in it starts until it is resumed. Running ones continue, and jobs may be submitted."""
        await self._pause(queues.pause, name, note)

    async def resume_tenant(self, name: str) -> None:
        async with (await self._pools.here()).transaction() as connection:
            await tenants.resume(connection, APP, name)

    async def resume_queue(self, name: str) -> None:
        async with (await self._pools.here()).transaction() as connection:
            await queues.resume(connection, APP, name)

    async def remove_tenant(self, name: str) -> None:
        """It has the defaults again; its jobs stay. `NotFound` if nothing was set."""
        await self._remove(tenants.remove, name, f"tenant {name!r} has no settings")

    async def remove_queue(self, name: str) -> None:
        """It has the defaults again; the runs in it stay. `NotFound` if nothing was set."""
        await self._remove(queues.remove, name, f"queue {name!r} has no settings")

    async def remove_limit(self, key: str) -> None:
        """`NotAllowedIn` while runs wait for it, `NotFound` if there is none."""
        await self._remove(limits.remove, key, f"limit {key!r} does not exist")

    async def _set(self, put: Callable[..., Awaitable[object]], name: str, check: Callable[[], object]) -> None:
        with submission_faults():
            plain_name(name)
            settings = check()
        async with (await self._pools.here()).transaction() as connection:
            await put(connection, APP, name, settings, now=self._now())

    async def _pause(self, pause: Callable[..., Awaitable[object]], name: str, note: str | None) -> None:
        with submission_faults():
            plain_name(name)
        async with (await self._pools.here()).transaction() as connection:
            await pause(connection, APP, name, note=note, now=self._now())

    async def _remove(self, remove: Callable[[Connection, Caller, str], Awaitable[bool]], name: str, missing: str) -> None:
        async with (await self._pools.here()).transaction() as connection:
            if not await remove(connection, APP, name):
                raise NotFound(missing)

    def _now(self) -> datetime | None:
        return self.clock.database_now()
