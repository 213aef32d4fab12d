"""Imports gRPC with the first job that needs it: it is large, and an extra. Without it, the worker does not claim gRPC jobs."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from sexton.clock import Clock
from sexton.ids import Rng
from sexton.settings import Settings

from .breaker import Patience
from .context import Call, Context
from .handle import Elsewhere, Handle, nowhere
from .secrets import Secrets

if TYPE_CHECKING:
    from .grpc import GrpcCalls
    from .outbound import Outbound

NEEDED = ("grpc", "grpc_reflection", "google.protobuf")


class LazyGrpcCalls:
    def __init__(
        self,
        settings: Settings,
        outbound: Outbound,
        secrets: Secrets,
        *,
        clock: Clock,
        rng: Rng,
        elsewhere: Elsewhere = nowhere,
    ) -> None:
        self._elsewhere = elsewhere
        self._settings, self._outbound, self._secrets, self._clock, self._rng = settings, outbound, secrets, clock, rng
        self._calls: GrpcCalls | None = None

    @property
    def is_installed(self) -> bool:
        try:
            return all(find_spec(name) is not None for name in NEEDED)
        except ModuleNotFoundError:  # a parent package is missing
            return False

    def start(self, call: Call, context: Context) -> Handle:
        if self._calls is None:
            self._calls = self._loaded()
        return self._calls.start(call, context)

    async def close(self) -> None:
        if self._calls is not None:
            await self._calls.close()

    def _loaded(self) -> GrpcCalls:
        from .grpc import GrpcCalls

        settings = self._settings
        return GrpcCalls(
            self._outbound,
            self._secrets,
            clock=self._clock,
            rng=self._rng,
            patience=Patience(settings.http_host_failures, settings.http_host_rest_s, settings.http_host_rest_max_s),
            descriptors=settings.grpc_descriptors,
            roots=settings.grpc_roots,
            elsewhere=self._elsewhere,
        )
