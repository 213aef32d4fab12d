"""The PostgreSQL under chaos: durable, on a small disk of its own if this machine can mount one, with a table that logs every
claim by the database's clock. A guard process removes the server and the disk even if the harness is killed."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg

from sexton.errors import EmbeddedUnavailable
from sexton.store import migrations
from sexton.store.database import Postgres
from sexton.store.embedded.server import EmbeddedPostgres
from sexton.store.fleet import cluster

from .app import EFFECTS

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"  # only a type checker may subscript Connection

ROLE = "sexton_member"  # as which the members connect; it owns Sexton's tables, and has no other rights
OURS = "sexton chaos"  # application_name of the harness's own connections, which the nemesis does not terminate
CONNECT_S = 5.0
START_S = 60.0
FILL_STEPS = (2**26, 2**20, 2**12)  # bytes

# The guard: waits for the end of its standard input, which is the end of the harness even after kill -9, then cleans up.
GUARD = """
cat >/dev/null
if pid=$(head -n 1 "$1/disk/data/postmaster.pid" 2>/dev/null) && kill -QUIT "$pid" 2>/dev/null; then
    for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.05; done
fi
for _ in $(seq 50); do
    grep -q " $1/disk " /proc/mounts 2>/dev/null || break
    umount "$1/disk" 2>/dev/null && break
    sleep 0.1
done
rm -rf "$1"
"""

# The time at which the row of each claim was written. The worker's time in the history is late if a packet was delayed. The
# run's own `claimed_at` is early: a claim reads the clock before it looks for runs, and may find one that was released since.
LOG_CLAIMS = """
CREATE TABLE public.claims (
  run_id uuid NOT NULL, token bigint NOT NULL, worker_id uuid NOT NULL, claimed_at timestamptz NOT NULL
);
CREATE FUNCTION public.log_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.claims VALUES (NEW.id, NEW.token, NEW.worker_id, clock_timestamp());
  RETURN NULL;
END
$$;
CREATE TRIGGER log_claim AFTER UPDATE OF state ON sexton.runs FOR EACH ROW
WHEN (NEW.state = 'running') EXECUTE FUNCTION public.log_claim();
"""
MAKE_ROLE = f"CREATE ROLE {ROLE} LOGIN; GRANT CREATE ON DATABASE sexton TO {ROLE}"


class DatabaseServer:
    def __init__(self, server: EmbeddedPostgres, disk: Path, *, is_small: bool, connections: int) -> None:
        self.server = server
        self.connections = connections  # max_connections
        self.has_small_disk = is_small
        self._disk = disk

    @property
    def socket_path(self) -> Path:
        place = parse_qs(urlsplit(self.url).query)
        return Path(place["host"][0]) / f".s.PGSQL.{place['port'][0]}"

    @property
    def url(self) -> str:
        """A direct connection to the server, not through the proxy."""
        return self.server.url()

    @property
    def member_url(self) -> str:
        """As `url`, with the role of the members."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=f"{ROLE}@{parts.netloc.rpartition('@')[2]}"))

    async def connect(self) -> Conn:
        return await asyncpg.connect(
            self.url, timeout=CONNECT_S, command_timeout=60.0, server_settings={"application_name": OURS}
        )

    async def is_up(self) -> bool:
        return await asyncio.to_thread(lambda: self.server.pid) is not None

    async def restart(self, *, crash: bool) -> None:
        """`crash`: stop without a checkpoint, so that the start does recovery. Otherwise a fast shutdown."""
        await asyncio.to_thread(self.server.kill if crash else self.server.stop)
        await self.start()

    async def start(self) -> None:
        """Starts the server, whatever state it is in."""
        for tries_left in reversed(range(20)):
            try:
                await asyncio.to_thread(self.server.restart)
            except EmbeddedUnavailable:
                if not tries_left:
                    raise
                await asyncio.sleep(0.5)
            else:
                return

    async def until_up(self) -> None:
        """Waits until the server answers, and starts it if it has stopped."""
        ends_at = time.monotonic() + START_S
        while time.monotonic() < ends_at:
            try:
                await (await self.connect()).close()
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                if not await self.is_up():
                    await self.start()
                await asyncio.sleep(0.1)
            else:
                return
        raise TimeoutError(f"PostgreSQL does not answer {START_S:g} s after the fault")

    def fill(self) -> int:
        """Fills the disk. Returns the number of bytes it took."""
        taken = 0
        with (self._disk / "filler").open("ab") as filler:
            for step in FILL_STEPS:
                with suppress(OSError):  # no space for another block of this size
                    while True:
                        os.posix_fallocate(filler.fileno(), filler.seek(0, os.SEEK_END), step)
                        taken += step
        return taken

    def free(self) -> None:
        (self._disk / "filler").unlink(missing_ok=True)


@asynccontextmanager
async def fresh_server(*, disk_mib: int, connections: int) -> AsyncIterator[DatabaseServer]:
    """A migrated, empty Sexton database for this run only."""
    with _folder() as folder:
        disk = folder / "disk"
        disk.mkdir()
        is_small = sys.platform == "linux" and _mount(disk, disk_mib)
        settings = {"max_connections": str(connections), "max_wal_size": "128MB", "min_wal_size": "32MB"}
        server = await asyncio.to_thread(EmbeddedPostgres.start, disk / "data", settings=settings)
        database_server = DatabaseServer(server, disk, is_small=is_small, connections=connections)
        try:
            await _furnish(database_server)
            yield database_server
        finally:
            database_server.free()
            await asyncio.to_thread(_stop, server)


async def _furnish(database_server: DatabaseServer) -> None:
    async with session(database_server) as connection:
        await connection.execute(MAKE_ROLE)
    database = await Postgres.open(database_server.member_url)
    await migrations.migrate(database)
    await cluster.require_home(database)
    await database.close()
    async with session(database_server) as connection:
        await connection.execute(LOG_CLAIMS)
        await connection.execute(EFFECTS)
        await connection.execute(f"GRANT ALL ON public.claims, public.effects TO {ROLE}")


@asynccontextmanager
async def session(database_server: DatabaseServer) -> AsyncIterator[Conn]:
    """A connection that ends with the block, and with it a transaction that is still open."""
    connection = await database_server.connect()
    try:
        yield connection
    finally:
        connection.terminate()


@contextmanager
def _folder() -> Iterator[Path]:
    """Removes the server and the disk at the end, also after an error."""
    folder = Path(tempfile.mkdtemp(prefix="sexton-chaos-"))
    command = ["sh", "-c", GUARD, "guard", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True):
        yield folder


def _mount(disk: Path, mib: int) -> bool:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=0755", "sexton-chaos", str(disk)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _stop(server: EmbeddedPostgres) -> None:
    try:
        server.stop()
    except EmbeddedUnavailable:
        server.kill()
