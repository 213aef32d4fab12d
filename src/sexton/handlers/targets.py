"""The handlers of a worker other than Python functions: the tasks it therefore knows, and the handler of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sexton.clock import Clock
from sexton.domain.targets import GRPC_TASK, HTTP_TASK
from sexton.ids import Rng
from sexton.settings import Settings

from .breaker import Patience
from .context import Call
from .grpc_loader import LazyGrpcCalls
from .handle import Elsewhere, Handler, MakeDue, nowhere
from .script import scripts
from .secrets import Secrets

if TYPE_CHECKING:
    from .http import HttpCalls


class TargetHandlers:
    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock,
        rng: Rng,
        callback_token: Callable[[Call], str] | None = None,
        make_due: MakeDue = lambda _: None,
        elsewhere: Elsewhere = nowhere,
    ) -> None:
        """`callback_token` signs the lease with which a target that answers 202 calls back. `make_due` makes postponed runs due
        when their host is up again. `elsewhere` tells whether another worker may allow a call that this one refuses."""
        from .outbound import Outbound  # importing aiohttp takes 0.3 s, which other commands do not need

        self._outbound = Outbound(settings.outbound_rules)
        self._secrets = Secrets.from_environment(settings.secrets_dir, clock=clock)
        self._http = self._http_calls(settings, clock, rng, callback_token, make_due, elsewhere)
        self._grpc = LazyGrpcCalls(settings, self._outbound, self._secrets, clock=clock, rng=rng, elsewhere=elsewhere)
        self.handlers: Mapping[str, Handler] = {
            HTTP_TASK: self._http,
            **({GRPC_TASK: self._grpc} if self._grpc.is_installed else {}),
            **scripts(settings.scripts, self._secrets.reveal),
        }

    async def close(self) -> None:
        """Closes connections. No call may be in progress."""
        await self._http.close()
        await self._grpc.close()
        self._outbound.close()

    def _http_calls(
        self,
        settings: Settings,
        clock: Clock,
        rng: Rng,
        token: Callable[[Call], str] | None,
        make_due: MakeDue,
        elsewhere: Elsewhere,
    ) -> HttpCalls:
        from .http import HttpCalls

        return HttpCalls(
            self._outbound,
            self._secrets,
            clock=clock,
            rng=rng,
            permit_limit=settings.http_host_limit or max(1, settings.worker_concurrency // 3),
            patience=Patience(settings.http_host_failures, settings.http_host_rest_s, settings.http_host_rest_max_s),
            proxy=None if settings.outbound_proxy is None else settings.outbound_proxy.get_secret_value(),
            ca_file=settings.http_ca_file,
            public_url=settings.public_url,
            token=token,
            make_due=make_due,
            elsewhere=elsewhere,
        )
