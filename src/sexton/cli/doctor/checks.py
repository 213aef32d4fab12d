"""The checks of `sexton doctor`: one pure function per check, which returns ok, warn or fail and what to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from sexton.domain.schedule.zone import tzdata_order
from sexton.store.postgres.waiting_pool import WAITING_POOL_SIZE
from sexton.store.views.diagnosis import SchemaFacts, ServerFacts
from sexton.store.views.locked_tables import LockedTables

Level = Literal["ok", "warn", "fail"]

OLDEST_SERVER = 150_000
SKEW_S = 2.0
DAYS_AHEAD = 7.0
NAPTIME_S = 300
DEAD_ROWS = 50_000
TZDATA_YEARS = 2
SHORT_MS = 10_000


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    check: str
    level: Level
    detail: str
    fix: str | None = None


class Process(msgspec.Struct, frozen=True):
    """The settings and the environment of this machine: connections per process, clock, time zone data."""

    pool_size: int
    transaction_pool_size: int
    is_embedded: bool
    is_direct: bool
    has_direct_url: bool
    tzdata: str  # the release, such as 2025b
    direct_url_is_direct: bool | None = None
    hears: bool | None = None  # none: there is no direct connection for LISTEN
    skew_s: float = 0.0  # the database's clock minus this machine's
    skew_unsure_s: float = 0.0


class Facts(msgspec.Struct, frozen=True):
    process: Process
    server: ServerFacts
    schema_fault: str | None
    schema: SchemaFacts | None  # none: the schema is missing or of another version, or a table of it is locked
    tables: Sequence[LockedTables] = ()
    is_locked_out: bool = False  # a statement of the doctor met a lock on a table


def judge(facts: Facts) -> list[Finding]:
    findings = [check(facts) for check in _SERVER if not (facts.is_locked_out and check in _OF_TABLES)]
    if facts.schema is not None:
        findings += [check(facts, facts.schema) for check in _SCHEMA]
    return findings


def version(facts: Facts) -> Finding:
    number = facts.server.version
    detail = f"PostgreSQL {number // 10_000}.{number % 10_000}"
    if number < OLDEST_SERVER:
        return Finding("version", "fail", detail, "Sexton needs 15 or newer; upgrade the server")
    return Finding("version", "ok", detail)


def writable(facts: Facts) -> Finding:
    if facts.server.is_replica:
        return Finding("writable", "fail", "this is a standby, which is read-only", "point SEXTON_DATABASE_URL at the primary")
    if facts.server.settings.get("default_transaction_read_only") == "on":
        fix = "ALTER ROLE … or ALTER DATABASE … RESET default_transaction_read_only"
        return Finding("writable", "fail", "transactions are read-only by default for this role or database", fix)
    return Finding("writable", "ok", "the primary, writable")


def isolation(facts: Facts) -> Finding:
    level = facts.server.settings.get("default_transaction_isolation", "read committed")
    if level != "read committed":
        fix = "ALTER ROLE … or ALTER DATABASE … SET default_transaction_isolation = 'read committed'"
        return Finding(
            "isolation", "fail", f"transactions are {level} by default; claims and submissions would fail at random", fix
        )
    return Finding("isolation", "ok", level)


def migrations(facts: Facts) -> Finding:
    if facts.schema_fault is not None:
        return Finding("migrations", "fail", facts.schema_fault, "run: sexton migrate")
    return Finding("migrations", "ok", "the schema is current")


def connection(facts: Facts) -> Finding:
    """Pooler or direct: rule "session state only on direct connections"."""
    process = facts.process
    if process.is_direct:
        return Finding("connection", "ok", "direct: wake-ups by LISTEN, leadership by advisory locks")
    if not process.has_direct_url:
        return Finding(
            "connection",
            "warn",
            "through a pooler: wake-ups by polling every 0.25 s, leadership without advisory locks",
            "set SEXTON_DIRECT_URL to the URL of the PostgreSQL server itself",
        )
    if not process.direct_url_is_direct:
        fix = "set SEXTON_DIRECT_URL to the URL of the PostgreSQL server itself"
        return Finding("connection", "fail", "SEXTON_DIRECT_URL also leads through a pooler, or cannot be reached", fix)
    return Finding("connection", "ok", "through a pooler, with a direct connection for LISTEN and advisory locks")


def listening(facts: Facts) -> Finding:
    match facts.process.hears:
        case True:
            return Finding("listen", "ok", "notifications arrive")
        case False:
            fix = "check for a proxy or a pooler in between that drops LISTEN"
            return Finding("listen", "fail", "a test notification did not arrive", fix)
        case None:
            return Finding("listen", "ok", "not used without a direct connection; services poll")


def clock(facts: Facts) -> Finding:
    skew_s = facts.process.skew_s
    detail = f"this machine and the database differ by {abs(skew_s):.2f} s (± {facts.process.skew_unsure_s:.2f} s)"
    if abs(skew_s) - facts.process.skew_unsure_s > SKEW_S:
        fix = "run an NTP client on both; jobs follow the database's clock, logs do not"
        return Finding("clock", "warn", detail, fix)
    return Finding("clock", "ok", detail)


def connections(facts: Facts) -> Finding:
    """The most connections that the live processes may open, by the settings here, against the server's limit."""
    process, settings, schema = facts.process, facts.server.settings, facts.schema
    nodes = 0 if schema is None else sum(one.is_alive for one in schema.nodes)
    workers = 0 if schema is None else sum(one.is_alive for one in schema.workers)
    api = process.pool_size + WAITING_POOL_SIZE
    wanted = (
        workers * (process.pool_size + process.transaction_pool_size + 2)  # + heartbeat, listener
        + nodes * (process.pool_size + 2)  # + advisory locks, listener
        + api
    )
    limit = int(settings.get("max_connections", "100"))
    given = limit - sum(int(settings.get(name, "0")) for name in ("superuser_reserved_connections", "reserved_connections"))
    detail = (
        f"{workers} workers, {nodes} schedulers and an API may open {wanted} of {given} "
        f"(max_connections {limit}); {facts.server.connection_count} are in use"
    )
    if not process.is_direct:
        return Finding("connections", "ok", f"{detail}; behind a pooler, only the pool of the pooler counts")
    if wanted > given:
        fix = "raise max_connections, lower SEXTON_POOL_SIZE or SEXTON_TRANSACTION_POOL_SIZE, or put a pooler in between"
        return Finding("connections", "fail", detail, fix)
    if wanted > 0.8 * given or facts.server.connection_count > 0.9 * given:
        return Finding(
            "connections", "warn", detail, "few connections are left; raise max_connections, or lower SEXTON_POOL_SIZE"
        )
    return Finding("connections", "ok", detail)


def durability(facts: Facts) -> Finding:
    settings = facts.server.settings
    unsafe = [name for name in ("fsync", "full_page_writes") if settings.get(name) == "off"]
    if unsafe:
        detail = f"{' and '.join(unsafe)} off: a crash of the machine may corrupt the database"
        return Finding("durability", "fail", detail, f"set {unsafe[0]} = on, unless the data may be lost")
    if settings.get("synchronous_commit") == "off":
        detail = "synchronous_commit is off: acknowledged jobs may be lost after a crash"
        return Finding("durability", "warn", detail, "set synchronous_commit = on for this database")
    return Finding("durability", "ok", f"fsync on, synchronous_commit {settings.get('synchronous_commit', 'on')}")


def replication(facts: Facts) -> Finding:
    names = facts.server.settings.get("synchronous_standby_names", "")
    level = facts.server.settings.get("synchronous_commit", "on")
    if not names or level in ("off", "local"):
        return Finding("replication", "ok", "no commit waits for a standby")
    if facts.server.sync_standby_count == 0:
        detail = f"commits wait for a synchronous standby ({names}), but none is connected: every commit hangs"
        return Finding("replication", "fail", detail, "restart the standby, or empty synchronous_standby_names")
    if level == "remote_apply":
        detail = "synchronous_commit is remote_apply: every batch waits until a standby has replayed it"
        return Finding("replication", "warn", detail, "set it to on, which is enough to lose no job")
    return Finding("replication", "ok", f"{facts.server.sync_standby_count} synchronous standby")


def autovacuum(facts: Facts) -> Finding:
    settings = facts.server.settings
    if settings.get("autovacuum") == "off" or settings.get("track_counts") == "off":
        detail = "autovacuum is off: the table of live runs grows with every job and claims slow down"
        return Finding("autovacuum", "fail", detail, "set autovacuum = on and track_counts = on")
    never = [table.name for table in (facts.schema.tables if facts.schema else ()) if table.is_never_vacuumed]
    if never:
        fix = f"ALTER TABLE sexton.{never[0]} RESET (autovacuum_enabled)"
        return Finding("autovacuum", "fail", f"off for {', '.join(never)}", fix)
    naptime_s = int(settings.get("autovacuum_naptime", "60"))
    if naptime_s > NAPTIME_S:
        detail = f"autovacuum runs only every {naptime_s} s"
        return Finding("autovacuum", "warn", detail, "set autovacuum_naptime to 1min or less")
    return Finding("autovacuum", "ok", f"on, every {naptime_s} s")


def transactions(facts: Facts) -> Finding:
    """A session with an old snapshot keeps all rows that died since then."""
    held = [f"pid {t.pid} ({t.application or 'unnamed'}, {t.state}) for {t.age_s:,.0f} s" for t in facts.server.transactions]
    if held:
        first = facts.server.transactions[0]
        fix = f"if it was forgotten, end it: SELECT pg_terminate_backend({first.pid})"
        return Finding("transactions", "warn", f"open for a long time: {'; '.join(held)}", fix)
    prepared = [f"{p.gid!r} for {p.age_s:,.0f} s" for p in facts.server.prepared]
    if prepared:
        fix = "run COMMIT PREPARED or ROLLBACK PREPARED for it"
        return Finding("transactions", "warn", f"prepared and never ended: {'; '.join(prepared)}", fix)
    return Finding("transactions", "ok", "none open for more than a minute")


def slots(facts: Facts) -> Finding:
    idle = [slot.name for slot in facts.server.slots if not slot.active]
    if idle:
        detail = f"replication slots without a reader: {', '.join(idle)}; they keep WAL and dead rows forever"
        return Finding("slots", "warn", detail, f"if it is not needed: SELECT pg_drop_replication_slot('{idle[0]}')")
    return Finding("slots", "ok", f"{len(facts.server.slots)} in use" if facts.server.slots else "no replication slots")


def timeouts(facts: Facts) -> Finding:
    """Timeouts that Sexton's sessions do not override. In milliseconds; 0 means none."""
    settings = facts.server.settings
    reset = "ALTER ROLE … or ALTER DATABASE … RESET {}"
    idle_ms = int(settings.get("idle_session_timeout", "0"))
    if idle_ms:
        detail = f"idle_session_timeout of {idle_ms / 1000:g} s repeatedly ends listeners and pooled connections"
        return Finding("timeouts", "warn", detail, reset.format("idle_session_timeout"))
    whole_ms = int(settings.get("transaction_timeout", "0"))
    if 0 < whole_ms < SHORT_MS:
        detail = f"transaction_timeout of {whole_ms / 1000:g} s ends large batches and handlers in ctx.transaction()"
        return Finding("timeouts", "warn", detail, reset.format("transaction_timeout"))
    within_ms = int(settings.get("idle_in_transaction_session_timeout", "0"))
    if not facts.process.is_direct and 0 < within_ms < SHORT_MS:
        detail = f"idle_in_transaction_session_timeout of {within_ms / 1000:g} s ends handlers in ctx.transaction()"
        return Finding("timeouts", "warn", detail, reset.format("idle_in_transaction_session_timeout"))
    return Finding("timeouts", "ok", "none that would end a service's connections")


def tzdata(facts: Facts) -> Finding:
    known, newest = facts.process.tzdata, None if facts.schema is None else facts.schema.tzdata
    if newest is not None and tzdata_order(newest) > tzdata_order(known):
        detail = f"time zone data is {known} here and {newest} elsewhere: a scheduler here does not plan for a while"
        return Finding("tzdata", "warn", detail, "upgrade Sexton and its tzdata package here")
    if facts.server.now.year - int(known[:4]) >= TZDATA_YEARS:
        detail = f"time zone data {known} is old: schedules may fire at the wrong hour"
        return Finding("tzdata", "warn", detail, "upgrade the tzdata package")
    return Finding("tzdata", "ok", known)


def home(facts: Facts, schema: SchemaFacts) -> Finding:
    if schema.is_foreign:
        detail = "this database was copied or restored from another server, so nothing fires from it"
        return Finding("home", "fail", detail, "if it replaces the original, start a service once with --adopt")
    return Finding("home", "ok", "not a copy of another database")


def partitions(facts: Facts, schema: SchemaFacts) -> Finding:
    short = {name: days for name, days in schema.days_ahead.items() if days < DAYS_AHEAD}
    if not schema.days_ahead or any(days <= 0 for days in short.values()):
        detail = f"no partitions for today in {', '.join(short) or 'any table'}; each statement that needs one creates it"
        return Finding("partitions", "fail", detail, "start a scheduler: its janitor creates them in advance")
    if short:
        detail = f"{', '.join(f'{name} {days:.1f} days' for name, days in short.items())} ahead"
        return Finding(
            "partitions", "warn", detail, "start a scheduler, or check its log: its janitor creates them 15 days ahead"
        )
    return Finding("partitions", "ok", f"created {min(schema.days_ahead.values()):.0f} days ahead")


def scheduler(facts: Facts, schema: SchemaFacts) -> Finding:
    live = sum(one.is_alive for one in schema.nodes)
    if live == 0:
        silence = f", the last heartbeat was {min(one.silent_s for one in schema.nodes):.0f} s ago" if schema.nodes else ""
        detail = f"none is alive{silence}: delayed jobs start late, and the runs of dead workers are not recovered"
        return Finding("scheduler", "warn", detail, f"start one: {_starts(facts, 'sexton scheduler')}")
    return Finding("scheduler", "ok", f"{live} alive")


def workers(facts: Facts, schema: SchemaFacts) -> Finding:
    live = sum(one.is_alive for one in schema.workers)
    silent = f"; {len(schema.workers) - live} silent" if live < len(schema.workers) else ""
    served = {queue for one in schema.workers if one.is_alive for queue in one.queues}
    unserved = [queue for queue in schema.ready_queues if queue not in served]
    if unserved:
        detail = f"ready runs in {', '.join(unserved[:5])}, but no live worker serves them{silent}"
        fix = f"start one: {_starts(facts, f'SEXTON_WORKER_QUEUES={unserved[0]} sexton worker module:app')}"
        return Finding("workers", "fail" if live == 0 else "warn", detail, fix)
    if live == 0:
        return Finding("workers", "warn", f"none is alive{silent}", f"start one: {_starts(facts, 'sexton worker module:app')}")
    return Finding("workers", "ok", f"{live} alive{silent}; every queue with ready runs is served")


def _starts(facts: Facts, command: str) -> str:
    return "sexton dev module:app" if facts.process.is_embedded else command


def dead_rows(facts: Facts, schema: SchemaFacts) -> Finding:
    table = next((table for table in schema.tables if table.name == "runs"), None)
    if table is None:
        return Finding("dead rows", "ok", "no statistics yet")
    detail = f"{table.dead_count:,} dead and {table.live_count:,} live rows in runs"
    if table.dead_count > DEAD_ROWS and table.dead_count > 2 * table.live_count:
        fix = "find what holds an old snapshot (transactions, slots); then VACUUM sexton.runs"
        return Finding("dead rows", "warn", detail, fix)
    return Finding("dead rows", "ok", detail)


def table_locks(facts: Facts) -> Finding:
    """It needs no table of Sexton, because these may be what is locked."""
    if facts.tables:
        first, others = facts.tables[0], len(facts.tables) - 1
        besides = f"; {others:,} other transactions have locked tables as well" if others else ""
        unread = "; what needs a locked table was not checked" if facts.is_locked_out else ""
        return Finding("table locks", "fail", f"{first.said}{besides}{unread}", first.advice)
    if facts.is_locked_out:
        detail = "a table of Sexton was locked when it was read, and the session that held the lock is gone or is Sexton's own"
        return Finding("table locks", "warn", detail, "run sexton doctor again; a migration holds a table for a moment")
    return Finding("table locks", "ok", "no other session has locked a table of Sexton")


def locks(facts: Facts, schema: SchemaFacts) -> Finding:
    """Rule "never wait inside a batch": the services pass over these rows. Rule "no lock that others may take": any
    role can hold these advisory locks."""
    if not schema.locked and schema.keys:
        key = schema.keys[0]
        more = f" and {len(schema.keys) - 1:,} more" if len(schema.keys) > 1 else ""
        return Finding("locks", "warn", f"{key.holder.words} holds {key.words}{more}", key.advice)
    if not schema.locked:
        return Finding("locks", "ok", "no row is held by a transaction that has been open for long")
    first = schema.locked[0].holder
    held = [row for row in schema.locked if row.holder == first]
    named = ", ".join(row.words for row in held[:3]) + (f" and {len(held) - 3:,} more" if len(held) > 3 else "")
    others = len({row.holder.xid for row in schema.locked}) - 1
    besides = f"; {others:,} other transactions hold rows as well" if others else ""
    detail = f"{first.words} has held {named} for up to {first.age_s or 0:,.0f} s{besides}"
    return Finding("locks", "warn", detail, first.advice)


_SERVER: Sequence[Callable[[Facts], Finding]] = (
    version,
    writable,
    isolation,
    migrations,
    connection,
    listening,
    clock,
    connections,
    durability,
    replication,
    autovacuum,
    transactions,
    slots,
    timeouts,
    tzdata,
    table_locks,
)
_OF_TABLES = (migrations, connections)
_SCHEMA: Sequence[Callable[[Facts, SchemaFacts], Finding]] = (home, partitions, scheduler, workers, locks, dead_rows)
