"""Every operation of the API, for both clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sexton import wire
from sexton.domain.duration import Duration

from .cluster import ClusterCalls
from .dead_letters import DeadLetterCalls
from .jobs import JobCalls
from .sharing import SharingCalls
from .subscriptions import SubscriptionCalls
from .sync_and_async import Operation


class Operations(JobCalls, DeadLetterCalls, SharingCalls, SubscriptionCalls, ClusterCalls):
    pass


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """What `submit` returns."""

    job: wire.Submitted
    _client: Operations = field(repr=False, compare=False)

    @property
    def id(self) -> UUID:
        return self.job.id

    @Operation
    async def result(self, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109  (a wait that ends is not a cancelled one)
        """What the handler returned, as `Client.result`."""
        return await self._client._result(self.id, timeout)

    @property
    def created(self) -> bool:
        """False: a job with this idempotency key, or an equal unique job, already exists, and this is that job."""
        return self.job.created
