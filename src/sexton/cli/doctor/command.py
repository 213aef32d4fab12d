"""`sexton doctor`: collects the facts, runs the checks, and prints what to do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import typer

from sexton.cli.api_access import AsJson, Url
from sexton.cli.exit_codes import Exit
from sexton.cli.printing import coloured, print_json, safe

if TYPE_CHECKING:
    from sexton.settings import Settings
    from sexton.store.database import Postgres

    from .checks import Facts, Finding, Process

LOCK_TIMEOUT_S = 1.0  # of its own statements: it answers while another session has locked a table


def doctor(url: Url = None, as_json: AsJson = False) -> None:
    """Check the database and the cluster for problems. Changes nothing; exit code 1 if a check fails.

    With --url it also checks that the API is ready. The database is always checked from this machine.

        Example: sexton doctor --json
    """
    findings = asyncio.run(examine(url))
    if as_json:
        print_json(findings)
    else:
        for finding in findings:
            typer.echo(f"{coloured(finding.level):<4}  {finding.check:<12}  {safe(finding.detail)}")
            if finding.fix is not None:
                typer.echo(f"{'':<18}  -> {safe(finding.fix)}")
    raise typer.Exit(Exit.FAILED if any(finding.level == "fail" for finding in findings) else Exit.DONE)


async def examine(api_url: str | None) -> list[Finding]:
    from sexton.cli.composition import read_settings
    from sexton.errors import DatabaseRefused, SextonError

    from .checks import Finding, judge

    settings = read_settings()
    if api_url is None and settings.api_url is not None:
        api_url = settings.api_url.get_secret_value()
    findings = [] if api_url is None else [await _api(api_url)]
    try:
        facts = await _gather(settings)
    except DatabaseRefused as error:
        return [*findings, Finding("privileges", "fail", error.refusal, error.fix)]
    except SextonError as error:
        fix = "check SEXTON_DATABASE_URL, the network, and that PostgreSQL runs and accepts this role"
        return [*findings, Finding("reachable", "fail", str(error), fix)]
    return [*findings, Finding("reachable", "ok", "the database answers"), *judge(facts)]


async def _api(url: str) -> Finding:
    from sexton.client.remote.async_client import AsyncClient
    from sexton.errors import SextonError

    from .checks import Finding

    try:
        async with AsyncClient(url, retries=0) as client:
            readiness = await client.ready()
    except SextonError as error:
        return Finding("api", "fail", str(error), "start the API: sexton api")
    wrong = [check.detail for check in readiness.checks.values() if not check.ok]
    if not readiness.ready:
        return Finding("api", "fail", "; ".join(wrong) or "it is not ready")
    return Finding("api", "ok", "it answers and is ready")


async def _gather(settings: Settings) -> Facts:
    from sexton.client.location import address, embedded
    from sexton.store.database import LockTimeouts, Postgres

    given = settings.database_url
    url = (await embedded(settings)).url() if given is None else given.get_secret_value()
    with address("SEXTON_DATABASE_URL"):
        # A read-only server is one of the findings, and so is a table that another session has locked.
        database = await Postgres.open(url, size=2, writable=False, timeouts=LockTimeouts(LOCK_TIMEOUT_S))
    try:
        return await facts_of(database, settings)
    finally:
        await database.close()


async def facts_of(database: Postgres, settings: Settings) -> Facts:
    from sexton.clock import host_now
    from sexton.errors import Contention
    from sexton.store.views import diagnosis, locked_tables

    from .checks import Facts

    async with database.connection() as connection:
        await diagnosis.server(connection)  # warms up the connection, so that its cost does not count as clock skew
        before = host_now()
        server = await diagnosis.server(connection)
        after = host_now()
    fault, schema, is_locked_out = None, None, False
    try:
        fault = await diagnosis.schema_fault(database)
        if fault is None:
            async with database.connection() as connection:
                schema = await diagnosis.schema(connection)
    except Contention:
        is_locked_out = True
    async with database.connection() as connection:
        tables = await (locked_tables.look if is_locked_out else locked_tables.lasting)(connection)
    skew_s = (server.now - (before + (after - before) / 2)).total_seconds()
    process = await _process(database, settings, skew_s, (after - before).total_seconds() / 2)
    return Facts(process, server, fault, schema, tables, is_locked_out)


async def _process(database: Postgres, settings: Settings, skew_s: float, unsure_s: float) -> Process:
    from sexton.domain.schedule import tzdata_version
    from sexton.errors import SextonError
    from sexton.store.database import is_direct
    from sexton.store.views.diagnosis import hears

    from .checks import Process

    direct_url, proven = None if settings.direct_url is None else settings.direct_url.get_secret_value(), None
    if direct_url is not None:
        try:
            proven = await is_direct(direct_url)
        except (SextonError, ValueError):
            proven = False
    way = database.url if database.direct else direct_url if proven else None
    return Process(
        pool_size=settings.pool_size,
        transaction_pool_size=settings.transaction_pool_size,
        is_embedded=settings.database_url is None,
        is_direct=database.direct,
        has_direct_url=direct_url is not None,
        direct_url_is_direct=proven,
        hears=None if way is None else await hears(way),
        skew_s=skew_s,
        skew_unsure_s=unsure_s,
        tzdata=tzdata_version(),
    )
