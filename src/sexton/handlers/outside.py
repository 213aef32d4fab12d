"""What a worker can call besides Python: which tasks it therefore knows, and who runs each."""

from __future__ import annotations

from collections.abc import Mapping

from sexton.clock import Clock
from sexton.ids import Rng
from sexton.settings import Settings

from .handle import Handler


class Outside:
    def __init__(self, settings: Settings, *, clock: Clock, dice: Rng) -> None:
        self.handlers: Mapping[str, Handler] = {}

    async def close(self) -> None:
        """Lets go of connections; nothing is under way any more."""
