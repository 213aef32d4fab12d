"""The API seen from outside under abuse: how soon it answers health requests, how much memory and how many files it uses."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import psutil

    from tests.process.cluster import Member

EVERY_S = 0.05
HEALTH_S = 1.0
GET_HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@dataclass
class Watch:
    health_s: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    rss_mib: list[float] = field(default_factory=list)
    file_counts: list[int] = field(default_factory=list)

    @property
    def growth_mib(self) -> float:
        return max(self.rss_mib) - self.rss_mib[0]

    @property
    def slowest_s(self) -> float:
        return max(self.health_s)

    def is_well(self) -> bool:
        """Every request was answered in time. One of a hundred may be late, because this machine has other load."""
        late = sorted(self.health_s)[: max(1, int(len(self.health_s) * 0.99))]
        return bool(self.health_s) and not self.faults and late[-1] < HEALTH_S

    def __str__(self) -> str:
        return (
            f"{len(self.health_s)} health checks, the slowest {1000 * self.slowest_s:.0f} ms; memory {self.rss_mib[0]:.0f} "
            f"to {max(self.rss_mib):.0f} MiB; files up to {max(self.file_counts)}; {' '.join(self.faults[:3])}"
        )


@dataclass(frozen=True)
class Victim:
    port: int
    process: psutil.Process
    member: Member

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[Watch]:
        """Asks for its health on a new connection every 50 ms."""
        watch, is_over = Watch(), asyncio.Event()
        await self._look(watch)

        async def keep_looking() -> None:
            while not is_over.is_set():
                await asyncio.sleep(EVERY_S)
                await self._look(watch)

        looking = asyncio.create_task(keep_looking())
        try:
            yield watch
        finally:
            is_over.set()
            await looking

    async def _look(self, watch: Watch) -> None:
        watch.rss_mib.append(self.process.memory_info().rss / 2**20)
        watch.file_counts.append(self.process.num_fds())
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(10), connected(self.port) as (reader, writer):
                writer.write(GET_HEALTH)
                answer = await reader.readline()
        except (OSError, TimeoutError) as error:
            watch.faults.append(type(error).__name__)
        else:
            watch.health_s.append(time.monotonic() - began_s)
            if b" 200 " not in answer:
                watch.faults.append(answer.decode(errors="replace"))


async def attack(kind: str, port: int, **orders: Any) -> dict[str, Any]:
    """The output of an attacker process at its end."""
    command = [sys.executable, "-m", "tests.abuse.attackers", kind, json.dumps({"port": port, **orders})]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, f"the attacker ended with code {process.returncode}"
    report: dict[str, Any] = json.loads(output)
    return report


async def ask(port: int, request: bytes) -> tuple[int, bytes, bytes]:
    """Status, head and body of the answer to these raw bytes."""
    async with asyncio.timeout(20), connected(port) as (reader, writer):
        writer.write(request)
        return await answer(reader)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    body = await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
    return int(head.split()[1]), head, body


def is_problem(head: bytes, body: bytes, status: int, code: str) -> bool:
    document = json.loads(body)
    return b"application/problem+json" in head and (document["status"], document["code"]) == (status, code)
