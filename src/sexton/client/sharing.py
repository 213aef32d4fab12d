"""What an operator's script sets: the share and the limits of tenants, the pace and the pauses of queues, limits by key."""

from __future__ import annotations

from datetime import datetime

from sexton.clock import SwitchableClock
from sexton.domain.duration import Duration
from sexton.domain.limit import standing_limit
from sexton.domain.retry import Retry
from sexton.domain.sharing import plain_name, queue_settings, tenant_settings
from sexton.errors import NotFound
from sexton.store.sharing import limits, queues, tenants
from sexton.store.sharing.limits import Standing
from sexton.store.sharing.queues import Queue
from sexton.store.sharing.tenants import Tenant

from .faults import submission_faults
from .pools import Pools

BY = "app"


class Sharing:
    """The part of `App` that says who gets how much. `None` as an answer: nothing is set, the defaults hold."""

    clock: SwitchableClock
    _pools: Pools

    async def set_tenant(
        self,
        name: str,
        *,
        weight: int = 1,
        running_max: int | None = None,
        waiting_max: int | None = None,
        submit_rate: float | None = None,
        submit_burst: int | None = None,
        jitter: Duration | None = None,
    ) -> None:
        """Replaces what was set. `weight` is its share against others; `running_max` runs at once; beyond `waiting_max` runs
        that have not started, and `submit_rate` jobs per second, submissions are refused (`LimitExceeded`)."""
        with submission_faults():
            plain_name(name)
            settings = tenant_settings(
                weight=weight,
                running_max=running_max,
                waiting_max=waiting_max,
                submit_rate=submit_rate,
                submit_burst=submit_burst,
                jitter=jitter,
            )
        async with (await self._pools.here()).transaction() as connection:
            await tenants.put(connection, name, settings, now=self._now())

    async def tenant(self, name: str) -> Tenant | None:
        async with (await self._pools.here()).connection() as connection:
            return await tenants.get(connection, name)

    async def pause_tenant(self, name: str, *, note: str | None = None) -> None:
        """None of its runs starts before it is resumed; what runs goes on."""
        with submission_faults():
            plain_name(name)
        async with (await self._pools.here()).transaction() as connection:
            await tenants.pause(connection, name, by=BY, note=note, now=self._now())

    async def resume_tenant(self, name: str) -> None:
        async with (await self._pools.here()).transaction() as connection:
            await tenants.resume(connection, name)

    async def remove_tenant(self, name: str) -> None:
        """It has the defaults again; its jobs stay. `NotFound` if nothing was set."""
        async with (await self._pools.here()).transaction() as connection:
            if not await tenants.remove(connection, name):
                raise NotFound(f"nothing is set for a tenant {name!r}")

    async def set_queue(
        self,
        name: str,
        *,
        release_rate: float | None = None,
        release_burst: int | None = None,
        ageing: Duration | None = None,
        timeout: Duration | None = None,  # noqa: ASYNC109  (of the jobs in it)
        jitter: Duration | None = None,
        retry: Retry | None = None,
    ) -> None:
        """Replaces what was set. `release_rate` is how many runs per second may start; after `ageing` a run rises one lane; the
        rest are defaults of jobs whose task and submission say nothing themselves."""
        with submission_faults():
            plain_name(name)
            settings = queue_settings(
                release_rate=release_rate,
                release_burst=release_burst,
                ageing=ageing,
                timeout=timeout,
                jitter=jitter,
                retry=retry,
            )
        async with (await self._pools.here()).transaction() as connection:
            await queues.put(connection, name, settings, now=self._now())

    async def queue(self, name: str) -> Queue | None:
        async with (await self._pools.here()).connection() as connection:
            return await queues.get(connection, name)

    async def pause_queue(self, name: str, *, note: str | None = None) -> None:
        """Nothing in it starts before it is resumed; what runs goes on, and jobs may be submitted."""
        with submission_faults():
            plain_name(name)
        async with (await self._pools.here()).transaction() as connection:
            await queues.pause(connection, name, by=BY, note=note, now=self._now())

    async def resume_queue(self, name: str) -> None:
        async with (await self._pools.here()).transaction() as connection:
            await queues.resume(connection, name)

    async def remove_queue(self, name: str) -> None:
        """It has the defaults again; the runs in it stay. `NotFound` if nothing was set."""
        async with (await self._pools.here()).transaction() as connection:
            if not await queues.remove(connection, name):
                raise NotFound(f"nothing is set for a queue {name!r}")

    async def set_limit(
        self,
        key: str,
        *,
        running: int | None = None,
        count: int | None = None,
        per: Duration | None = None,
        burst: int | None = None,
        ordered: bool = False,
    ) -> None:
        """Makes the limit or replaces its numbers: `running` at once, or `count` starts `per` span, or both."""
        with submission_faults():
            limit = standing_limit(key, running=running, count=count, per=per, burst=burst, ordered=ordered)
        async with (await self._pools.here()).transaction() as connection:
            await limits.put(connection, limit, by=BY, now=self._now())

    async def limit(self, key: str) -> Standing | None:
        """With who holds it, and how many wait."""
        async with (await self._pools.here()).connection() as connection:
            return await limits.get(connection, key, now=self._now())

    async def remove_limit(self, key: str) -> None:
        """`NotAllowedIn` while runs wait for it, `NotFound` if there is none."""
        async with (await self._pools.here()).transaction() as connection:
            if not await limits.remove(connection, key):
                raise NotFound(f"there is no limit {key!r}")

    def _now(self) -> datetime | None:
        return self.clock.database_now()
