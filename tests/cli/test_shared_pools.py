"""Rule "a waiting caller leaves the group": pools whose connections many callers share have short lock timeouts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sexton.cli.commands import services
from sexton.service import AskedToStop
from sexton.store.database import PATIENT, SHARED


@pytest.mark.parametrize(("service", "timeouts"), [("api", SHARED), ("worker", SHARED), ("scheduler", PATIENT)])
def test_the_pool_of_each_service_has_its_lock_timeouts(
    service: str, timeouts: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C19: a scheduler drops partitions, and waits for their locks."""
    asked: list[object] = []

    @asynccontextmanager
    async def ground(*_: Any, timeouts: object = PATIENT, **__: Any) -> AsyncIterator[None]:
        asked.append(timeouts)
        raise AskedToStop
        yield

    def serve(run: Callable[[asyncio.Event], Awaitable[None]], **_options: object) -> None:
        async def main() -> None:
            with pytest.raises(AskedToStop):
                await run(asyncio.Event())

        asyncio.run(main())

    monkeypatch.setattr(services, "ground", ground)
    monkeypatch.setattr(services, "serve", serve)
    monkeypatch.setattr("sexton.telemetry.logs.configure", lambda **_: None)
    getattr(services, service)()
    assert asked == [timeouts]
