"""A real PostgreSQL for every test that needs one: one server per pytest process, one database per test."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import asyncpg
import psutil
import psycopg
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings

from sexton.store import migrations
from sexton.store.database import Postgres
from sexton.store.embedded.server import EmbeddedPostgres
from sexton.store.fleet import cluster
from tests import transitions
from tests.pgbouncer import find_pgbouncer, pgbouncer
from tests.rig import NOW, Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager

# The result of make test must not depend on chance. SEXTON_TEST_RANDOM=1 draws new examples, to find what these do not.
settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
if not os.environ.get("SEXTON_TEST_RANDOM"):
    settings.load_profile("steady")

DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")
HOW_TO_GET = {
    "PostgreSQL 15": "apt-get install postgresql-15 (as root, `make test` does it)",
    "PgBouncer": "apt-get install pgbouncer (as root, `make test` does it)",
    "The previous release": "install git, and fetch the commit in tests/migration/previous: git fetch --unshallow",
}

# Speed over durability: after a crash of this machine only the test run is lost.
FAST_SETTINGS: Mapping[str, str] = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "128MB",
    "max_connections": "200",
    "max_wal_size": "256MB",
    "autovacuum": "on",
}

# A migrated database has partitions for two weeks, which no test needs: a statement makes those that it misses. Without them
# the template has fewer files to copy, and plans have fewer tables to look at.
KEEP_PARTITIONS_OF_TODAY = """
SELECT sexton.drop_partition(parent.relname, child.relname)
FROM pg_inherits i JOIN pg_class child ON child.oid = i.inhrelid JOIN pg_class parent ON parent.oid = i.inhparent
CROSS JOIN LATERAL (SELECT CASE parent.relname WHEN 'executions' THEN 'YYYYMMDD' ELSE 'IYYY"w"IW' END AS form) f
CROSS JOIN LATERAL (SELECT substr(child.relname, length(parent.relname) + 2) AS suffix) s
WHERE parent.relname IN ('jobs', 'endings', 'executions') AND s.suffix ~ '^[0-9]'
  AND s.suffix NOT BETWEEN to_char(timezone('UTC', now()) - interval '1 day', f.form)
    AND to_char(timezone('UTC', now()) + interval '1 day', f.form)
"""

# Waits for the end of its standard input, which is the end of pytest even after kill -9; then ends the server and removes its
# files.
GUARD = """
cat >/dev/null
if pid=$(head -n 1 "$1/postmaster.pid" 2>/dev/null) && kill -QUIT "$pid" 2>/dev/null; then
    for _ in $(seq 200); do [ -e "$1/postmaster.pid" ] || break; sleep 0.05; done
fi
rm -rf "$1"
"""


# By URL; closed at the end of the session.
_ADMINISTRATORS: dict[str, psycopg.Connection[Any]] = {}


class StartServer(Protocol):
    def __call__(self, *, settings: Mapping[str, str] = ..., port: int | None = None) -> EmbeddedPostgres: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sexton")
    group.addoption(
        "--postgres",
        type=int,
        choices=(15, 16, 18),
        help="PostgreSQL to test on (default: the server of SEXTON_DATABASE_URL if that is set, else 18)",
    )
    group.addoption("--nightly", action="store_true", help="also run tests marked nightly, and ablations without pinned seeds")
    group.addoption("--seeds", default="0-2", help="seeds of the simulation: one, or first-last (default: %(default)s)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `simulation_seed` runs once for each of --seeds."""
    if "simulation_seed" in metafunc.fixturenames:
        first, _, last = metafunc.config.getoption("seeds").partition("-")
        metafunc.parametrize("simulation_seed", range(int(first), int(last or first) + 1))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("nightly"):
        left_out = [item for item in items if item.get_closest_marker("nightly") is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = " ".join(str(report.longrepr) for report in terminalreporter.stats.get("skipped", []))
    for name, way in HOW_TO_GET.items():
        if f"{name} is missing" in reasons:
            terminalreporter.write_line(f"NOT TESTED: {name} is missing. Get it: {way}", red=True, bold=True)


def pytest_sessionfinish() -> None:
    for connection in _ADMINISTRATORS.values():
        connection.close()


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("SEXTON_"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> Iterator[EmbeddedPostgres]:
    """The server shared by all tests of this process: not to be stopped."""
    with _throwaway_server(_version(pytestconfig), FAST_SETTINGS, port=None) as server:
        yield server


@pytest.fixture
def own_postgres_server(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> StartServer:
    """Starts servers that the test may stop, restart and kill."""

    def start(*, settings: Mapping[str, str] = FAST_SETTINGS, port: int | None = None) -> EmbeddedPostgres:
        context = _throwaway_server(_version(pytestconfig), settings, port)
        server = context.__enter__()
        request.addfinalizer(lambda: context.__exit__(None, None, None))
        return server

    return start


@pytest.fixture(scope="session")
def server_url(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """The URL of a database on the server under test, which is the user's own if SEXTON_DATABASE_URL names one."""
    external = os.environ.get("SEXTON_DATABASE_URL")
    if external is None or request.config.getoption("postgres") is not None:
        server: EmbeddedPostgres = request.getfixturevalue("postgres_server")
        return server.url
    state = urlsplit(external)
    return lambda database: state._replace(path=f"/{database}").geturl()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def template(server_url: Callable[[str], str]) -> AsyncIterator[str]:
    """The name of a migrated database, for cloning: no connection to it may stay open."""
    async with _database(server_url) as name:
        database = await Postgres.open(server_url(name))
        await migrations.migrate(database)
        await database.close()
        async with _connected(server_url(name)) as connection:
            await connection.execute(KEEP_PARTITIONS_OF_TODAY)
        yield name


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def watched_template(server_url: Callable[[str], str], template: str) -> AsyncIterator[str]:
    """The same with the trigger that rejects illegal changes of runs."""
    async with _database(server_url, template) as name:
        async with _connected(server_url(name)) as connection:
            await transitions.install(connection)
        yield name


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def rig_template(server_url: Callable[[str], str], watched_template: str) -> AsyncIterator[str]:
    """The same with partitions around the tests' own `NOW`."""
    async with _database(server_url, watched_template) as name:
        async with _connected(server_url(name)) as connection:
            await connection.execute("SELECT sexton.make_partitions($1, $1)", NOW)
        yield name


@pytest.fixture
def template_of_test(request: pytest.FixtureRequest) -> str:
    """Which template `database_url` clones: a test that uses `rig` or `api` gets a database that is already prepared for it."""
    chosen = {"rig": "rig_template", "api": "watched_template"}
    name = next((chosen[each] for each in request.fixturenames if each in chosen), "template")
    prepared: str = request.getfixturevalue(name)
    return prepared


@pytest.fixture
async def empty_database_url(server_url: Callable[[str], str]) -> AsyncIterator[str]:
    async with _database(server_url) as name:
        yield server_url(name)


@pytest.fixture
async def database_url(server_url: Callable[[str], str], template_of_test: str) -> AsyncIterator[str]:
    async with _database(server_url, template_of_test) as name:
        # To the product a clone looks like a copy of production, and it refuses to run on one: rule "a clone does not fire".
        async with _connected(server_url(name)) as connection:
            await cluster.adopt(connection)
        yield server_url(name)


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    async with _connected(database_url) as connection:
        yield connection


@pytest.fixture
def fresh_databases(server_url: Callable[[str], str], template: str) -> Callable[[], AbstractAsyncContextManager[str]]:
    """Creates any number of migrated databases, one after the other."""

    @asynccontextmanager
    async def fresh() -> AsyncIterator[str]:
        async with _database(server_url, template) as name:
            yield server_url(name)

    return fresh


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Postgres]:
    opened = await Postgres.open(database_url, direct=True)  # the proof costs a connection; test_database.py has it
    yield opened
    await opened.close()


@pytest.fixture
def pooled_url(database_url: str) -> Iterator[str]:
    """The test's database through PgBouncer: transaction mode, two server connections."""
    if find_pgbouncer() is None:
        pytest.skip("PgBouncer is missing")
    with pgbouncer(database_url) as url:
        yield url


def _version(config: pytest.Config) -> int:
    version: int = config.getoption("postgres") or 18
    return version


@contextmanager
def _throwaway_server(version: int, settings: Mapping[str, str], port: int | None) -> Iterator[EmbeddedPostgres]:
    if version == 15 and not DEBIAN_15.exists():
        pytest.skip("PostgreSQL 15 is missing")
    # Not below pytest's tmp_path, which the server's own user cannot enter when the tests run as root.
    data_dir = Path(tempfile.mkdtemp(prefix="sexton-test-", dir=memory_folder()))
    command = ["sh", "-c", GUARD, "guard", str(data_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True):
        yield EmbeddedPostgres.start(
            data_dir,
            version=version,
            settings=settings,
            port=port,
            bin_dir=DEBIAN_15 if version == 15 else None,
        )


def memory_folder() -> str | None:
    """In memory if there is room: there a database is cloned ten times as fast, and nearly every test has its own."""
    try:
        room = shutil.disk_usage("/dev/shm").free
    except OSError:
        return None
    return "/dev/shm" if min(room, psutil.virtual_memory().available) > 6 * 2**30 else None


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def _database(server_url: Callable[[str], str], template: str = "template1") -> AsyncIterator[str]:
    name = f"sexton_test_{secrets.token_hex(8)}"
    _administer(server_url, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
    try:
        yield name
    finally:
        _administer(server_url, f"DROP DATABASE {name} WITH (FORCE)")


def _administer(server_url: Callable[[str], str], statement: str) -> None:
    """Over one connection per process, without an event loop: each new connection costs 10 ms of CPU."""
    url = server_url("postgres")
    if url not in _ADMINISTRATORS:
        _ADMINISTRATORS[url] = psycopg.connect(url, autocommit=True)
    _ADMINISTRATORS[url].execute(statement.encode())


@pytest.fixture
async def rig(database: Postgres, connection: asyncpg.Connection[Any]) -> AsyncIterator[Rig]:
    """Services over one database, which rejects every illegal change of a run and is checked at the end."""
    yield Rig(database)
    assert await transitions.violations(connection) == {}
