"""The replicated PostgreSQL: Patroni nodes with PostgreSQL, etcd, and a port of HAProxy that leads to the primary. Also
everything that the drill does to a node."""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import httpx

from . import configuration
from .configuration import Mode, Place, Secrets, Way
from .delayed_link import DelayedLink
from .processes import Process, family, free_ports, own_folder, private_file, signal_all
from .programs import Programs

START_S = 90.0
POLL_S = 0.1
UNREACHABLE = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, httpx.HTTPError)


class Node:
    """Patroni, and the PostgreSQL that it runs."""

    def __init__(self, place: Place, process: Process) -> None:
        self.place, self.process = place, process

    @property
    def name(self) -> str:
        return self.place.name

    def postmaster_pid(self) -> int:
        return int((self.place.data / "postmaster.pid").read_text().split("\n", 1)[0])

    def kill_postmaster(self) -> None:
        """Kills the postmaster. PostgreSQL's other processes end when they notice it; Patroni keeps running."""
        signal_all(family(self.postmaster_pid())[:1], signal.SIGKILL)

    def kill(self) -> None:
        """Kills all processes of the node at once, as when the machine dies."""
        postgres = family(self.postmaster_pid())
        self.process.kill()
        signal_all(postgres, signal.SIGKILL)

    def freeze(self) -> None:
        """Stops all processes of the node. All connections stay open, so no client gets an error."""
        signal_all(self._all(), signal.SIGSTOP)

    def thaw(self) -> None:
        """Continues the processes, which still believe that the node is the primary."""
        signal_all(self._all(), signal.SIGCONT)

    def restart(self) -> None:
        self.process.start()

    def _all(self) -> list[Any]:
        return [*family(self.process.pid), *family(self.postmaster_pid())]


class View(NamedTuple):
    """The state as Patroni reports it."""

    leader: str | None
    synchronous: frozenset[str]
    states: dict[str, str]


class Servers:
    def __init__(self, mode: Mode, nodes: Sequence[Node], others: dict[str, Process], port: int, keys: Secrets) -> None:
        self.mode = mode
        self.nodes = {node.name: node for node in nodes}
        self._others, self._port, self._keys = others, port, keys
        self._http = httpx.AsyncClient(timeout=2.0, trust_env=False)

    @property
    def sexton_password(self) -> str:
        return self._keys.sexton

    def url(self, way: Way) -> str:
        """The URL for Sexton, as a role without privileges: through HAProxy's port, or with the names of all nodes."""
        ports = [self._port] if way == "haproxy" else [node.place.sql_port for node in self.nodes.values()]
        return f"postgresql://sexton:{self._keys.sexton}@{','.join(f'127.0.0.1:{port}' for port in ports)}/sexton"

    async def connect(self, database: str = "sexton") -> asyncpg.Connection[asyncpg.Record]:
        """A superuser's connection through the same port."""
        url = f"postgresql://postgres:{self._keys.superuser}@127.0.0.1:{self._port}/{database}"
        return await asyncpg.connect(url, timeout=5, command_timeout=60, statement_cache_size=0)

    async def close(self) -> None:
        await self._http.aclose()
        for process in [*(node.process for node in self.nodes.values()), *self._others.values()]:
            process.kill()

    async def view(self) -> View | None:
        """The cluster as any live node reports it."""
        for node in self.nodes.values():
            try:
                answer = await self._http.get(f"http://127.0.0.1:{node.place.rest_port}/cluster")
                members = answer.raise_for_status().json()["members"]
            except httpx.HTTPError:
                continue
            return View(
                next((member["name"] for member in members if member["role"] == "leader"), None),
                frozenset(member["name"] for member in members if member["role"] == "sync_standby"),
                {member["name"]: member["state"] for member in members},
            )
        return None

    async def is_whole(self) -> bool:
        """One node leads, all others stream from it, and in sync mode Patroni has confirmed a synchronous standby."""
        view = await self.view()
        if view is None or view.leader is None or set(view.states) != set(self.nodes):
            return False
        if not all(state in ("running", "streaming") for state in view.states.values()):
            return False
        if self.mode == "sync" and not view.synchronous:
            return False
        try:
            connection = await self.connect("postgres")
        except UNREACHABLE:
            return False
        try:
            rows = await connection.fetch(
                "SELECT application_name, sync_state FROM pg_stat_replication WHERE state = 'streaming'"
            )
        except UNREACHABLE:
            return False
        finally:
            connection.terminate()
        streaming = {row["application_name"]: row["sync_state"] for row in rows}
        confirmed = all(streaming.get(name) == "sync" for name in view.synchronous)
        return set(streaming) >= set(self.nodes) - {view.leader} and confirmed

    async def until_whole(self, within_s: float = START_S) -> float:
        return await until(self.is_whole, "a complete cluster", within_s, lambda: self.logs())

    async def primary(self) -> Node:
        view = await self.view()
        assert view is not None, "callers wait until the cluster is complete"
        assert view.leader is not None, "callers wait until the cluster is whole"
        return self.nodes[view.leader]

    def logs(self) -> str:
        """The last log lines of every process."""
        processes = {**self._others, **{node.name: node.process for node in self.nodes.values()}}
        return "\n".join(f"--- {name}\n{process.log[-2000:]}" for name, process in processes.items())


@asynccontextmanager
async def servers(programs: Programs, folder: Path, mode: Mode, *, standbys: int, lag_s: float = 0.0) -> AsyncIterator[Servers]:
    """One primary and its standbys, all streaming. With a lag, nodes reach each other over a slow link."""
    keys = Secrets(*(secrets.token_hex(16) for _ in Secrets._fields))
    logs = folder / "log"
    logs.mkdir()
    etcd_port, etcd_peer_port, port, *node_ports = free_ports(3 + 2 * (standbys + 1))
    async with AsyncExitStack() as stack:
        places = []
        for index in range(standbys + 1):
            sql_port, rest_port = node_ports[2 * index : 2 * index + 2]
            peer_port = sql_port
            if lag_s:
                link = DelayedLink(sql_port, lag_s)
                peer_port = await link.start()
                stack.push_async_callback(link.close)
            name = f"node{index + 1}"
            places.append(Place(name, own_folder(folder / name), sql_port, rest_port, peer_port))
        etcd_folder, proxy_folder = own_folder(folder / "etcd"), own_folder(folder / "haproxy")
        etcd = Process(
            configuration.etcd(programs.etcd, etcd_folder, etcd_port, etcd_peer_port), etcd_folder, logs / "etcd.log"
        )
        haproxy = Process(
            [programs.haproxy, "-db", "-f", private_file(folder / "haproxy.cfg", configuration.haproxy(port, places))],
            proxy_folder,
            logs / "haproxy.log",
        )
        nodes = []
        for place in places:
            told = configuration.patroni(place, mode, etcd_port, programs.postgres_bin, keys)
            command = [programs.patroni, private_file(place.folder / "patroni.yml", told)]
            nodes.append(Node(place, Process(command, place.folder, logs / f"{place.name}.log")))
        made = Servers(mode, nodes, {"etcd": etcd, "haproxy": haproxy}, port, keys)
        stack.push_async_callback(made.close)
        await _start(made, etcd, haproxy, etcd_port)
        yield made


async def _start(made: Servers, etcd: Process, haproxy: Process, etcd_port: int) -> None:
    etcd.start()
    async with httpx.AsyncClient(timeout=2.0, trust_env=False) as client:

        async def is_healthy() -> bool:
            try:
                return (await client.get(f"http://127.0.0.1:{etcd_port}/health")).is_success
            except httpx.HTTPError:
                return False

        await until(is_healthy, "etcd", START_S, made.logs)
    first, *others = made.nodes.values()
    first.restart()

    async def is_led() -> bool:
        view = await made.view()
        return view is not None and view.leader is not None and view.states[view.leader] == "running"

    await until(is_led, "the first primary", START_S, made.logs)
    haproxy.start()
    for node in others:
        node.restart()
    await made.until_whole()


async def until(
    holds: Callable[[], Awaitable[object]], what: str, within_s: float, logs: Callable[[], str] = lambda: ""
) -> float:
    """Waits until the condition holds. Returns how long that took."""
    began = time.monotonic()
    while not await holds():
        if time.monotonic() - began > within_s:
            raise TimeoutError(f"waited {within_s:g} s in vain for {what}\n{logs()}")
        await asyncio.sleep(POLL_S)
    return time.monotonic() - began
