"""Controls the proxy: at which port each member finds the database, and what happens to its connections."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
ANSWER_S = 10.0


class Network:
    def __init__(self, process: asyncio.subprocess.Process, ports: dict[str, int], user: str) -> None:
        self._process, self._ports, self._user = process, ports, user
        self._turn = asyncio.Lock()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._ports)

    def url(self, name: str) -> str:
        return f"postgresql://{self._user}@127.0.0.1:{self._ports[name]}/sexton?sslmode=disable"

    async def cut(self, names: Sequence[str]) -> int:
        """Returns the number of connections that it cut."""
        count: int = (await self._tell(do="cut", names=names))["count"]
        return count

    async def drop(self, names: Sequence[str]) -> int:
        """As `cut`, but without an error for the members: they wait for answers that will not come."""
        count: int = (await self._tell(do="drop", names=names))["count"]
        return count

    async def delay(self, names: Sequence[str], *, up_s: float, down_s: float) -> None:
        await self._tell(do="delay", names=names, up_s=up_s, down_s=down_s)

    async def hold(self, names: Sequence[str], *, up: bool, down: bool) -> None:
        await self._tell(do="hold", names=names, up=up, down=down)

    async def heal(self, names: Sequence[str]) -> None:
        await self._tell(do="heal", names=names)

    async def _tell(self, **order: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        async with self._turn:
            self._process.stdin.write(json.dumps({key: _plain(value) for key, value in order.items()}).encode() + b"\n")
            return await _answer(self._process)


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


async def _answer(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    text = await asyncio.wait_for(process.stdout.readline(), ANSWER_S)
    if not text:
        raise RuntimeError("the proxy has ended; its last output is above")
    answer: dict[str, Any] = json.loads(text)
    return answer


@asynccontextmanager
async def proxied(socket_path: Path, names: Sequence[str], user: str = "postgres") -> AsyncIterator[Network]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "chaos.proxy",
        str(socket_path),
        *names,
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # only the harness handles Ctrl-C
    )
    try:
        yield Network(process, await _answer(process), user)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        if process.returncode is None:
            try:
                await asyncio.wait_for(process.wait(), 3)
            except TimeoutError:
                process.kill()
                await process.wait()
