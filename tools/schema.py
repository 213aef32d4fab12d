"""Writes src/sexton/store/schema.sql from the catalogue of a migrated database: all tables, indexes, triggers, functions and
rights in one file, to read and to compare. `make schema` runs it; a test fails if a migrated database differs.

The text is the same on every supported PostgreSQL. Partitions by date are left out: their names depend on the calendar.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg

from sexton.store import migrations
from sexton.store.database import Postgres
from sexton.store.embedded.server import EmbeddedPostgres

FILE = Path(__file__).parents[1] / "src" / "sexton" / "store" / "schema.sql"
HEADER = """\
-- The whole schema of this release, as the catalogue of a migrated database shows it. Made by `make schema`: do not edit it,
-- and do not run it; `sexton migrate` makes the schema from migrations/ and functions/.
"""

TABLES = """
SELECT c.oid, c.relname AS name, pg_get_partkeydef(c.oid) AS partitioned_by, c.reloptions AS options,
  (SELECT format(E'PARTITION OF sexton.%I %s', p.relname, pg_get_expr(c.relpartbound, c.oid))
   FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent WHERE i.inhrelid = c.oid) AS partition
FROM pg_class c
WHERE c.relnamespace = 'sexton'::regnamespace AND c.relkind IN ('r', 'p')
  AND (NOT c.relispartition OR c.relname LIKE '%\\_recurring')
ORDER BY c.relname"""
COLUMNS = """
SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS is_not_null, a.attidentity AS identity,
  a.attgenerated AS generated, pg_get_expr(d.adbin, d.adrelid) AS def,
  (SELECT l.collname FROM pg_collation l WHERE l.oid = a.attcollation AND l.collname <> 'default') AS collation
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
# Since PostgreSQL 18 a NOT NULL is a constraint of its own; it is shown with its column.
CONSTRAINTS = """
SELECT conname AS name, pg_get_constraintdef(oid) AS def FROM pg_constraint
WHERE conrelid = $1 AND contype <> 'n' AND conparentid = 0 AND conislocal ORDER BY contype DESC, conname"""
INDEXES = """
SELECT pg_get_indexdef(i.indexrelid) AS def FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = $1 AND NOT EXISTS (SELECT FROM pg_constraint o WHERE o.conindid = i.indexrelid) AND NOT c.relispartition
ORDER BY c.relname"""
TRIGGERS = """
SELECT pg_get_triggerdef(oid) AS def FROM pg_trigger
WHERE tgrelid = $1 AND NOT tgisinternal AND tgparentid = 0 ORDER BY tgname"""
TYPES = """
SELECT c.oid, c.relname AS name FROM pg_class c
WHERE c.relnamespace = 'sexton'::regnamespace AND c.relkind = 'c' ORDER BY c.relname"""
FUNCTIONS = """
SELECT p.proname AS name, pg_get_function_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result,
  l.lanname AS language, p.provolatile AS volatility, p.proparallel AS parallel, p.prosecdef AS is_definer,
  p.proconfig AS settings,
  md5(p.prosrc) AS body, EXISTS (SELECT FROM aclexplode(p.proacl) a WHERE a.grantee = 0) OR p.proacl IS NULL AS is_public
FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
WHERE p.pronamespace = 'sexton'::regnamespace ORDER BY p.proname, pg_get_function_arguments(p.oid) COLLATE "C" """
GRANTS = """
SELECT c.relname AS name, a.privilege_type AS privilege,
  CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS grantee
FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
WHERE c.relnamespace = 'sexton'::regnamespace AND a.grantee <> c.relowner ORDER BY 1, 2, 3"""

VOLATILITY = {"i": "IMMUTABLE", "s": "STABLE", "v": "VOLATILE"}
PARALLEL = {"s": " PARALLEL SAFE", "r": " PARALLEL RESTRICTED", "u": ""}
WIDTH = 120
GENERATED = {"a": "ALWAYS", "d": "BY DEFAULT"}


async def describe(connection: Any) -> str:
    """The catalogue of schema sexton as text."""
    await connection.execute("SET search_path = pg_catalog")  # so that every name is written with its schema
    parts = [HEADER]
    for row in await connection.fetch(TYPES):
        columns = await connection.fetch(COLUMNS, row["oid"])
        fields = ",\n".join(_wrapped([f"{column['name']} {column['type']}" for column in columns]))
        parts.append(f"CREATE TYPE sexton.{row['name']} AS (\n{fields}\n);\n")
    parts += [await _table(connection, row) for row in await connection.fetch(TABLES)]
    functions = await connection.fetch(FUNCTIONS)
    parts += [_function(row) for row in functions]
    grants = [
        f"GRANT {row['privilege']} ON sexton.{row['name']} TO {row['grantee']};\n" for row in await connection.fetch(GRANTS)
    ]
    open_to_all = [f"GRANT EXECUTE ON FUNCTION sexton.{row['name']} TO PUBLIC;\n" for row in functions if row["is_public"]]
    parts.append("".join(["-- Rights of others than the owner.\n", *grants, *open_to_all]))
    return "\n".join(parts)


async def _table(connection: Any, row: Any) -> str:
    constraints = await connection.fetch(CONSTRAINTS, row["oid"])
    named = [f"  CONSTRAINT {one['name']} {one['def']}" for one in constraints]
    columns = [] if row["partition"] else [" ".join(_column_parts(one)) for one in await connection.fetch(COLUMNS, row["oid"])]
    body = ",\n".join([*_wrapped(columns), *named])
    text = f"CREATE TABLE sexton.{row['name']}"
    if row["partition"]:
        text += f" {row['partition'].split(' FOR VALUES')[0]}" + (f" (\n{body}\n)" if body else "")
        text += f" FOR VALUES{row['partition'].split(' FOR VALUES')[1]}"
    else:
        text += f" (\n{body}\n)"
    if row["partitioned_by"]:
        text += f" PARTITION BY {row['partitioned_by']}"
    if row["options"]:
        text += f" WITH ({', '.join(row['options'])})"
    beside = [*await connection.fetch(INDEXES, row["oid"]), *await connection.fetch(TRIGGERS, row["oid"])]
    return "".join([f"{text};\n", *(f"{one['def']};\n" for one in beside)])


def _wrapped(columns: list[str]) -> list[str]:
    """As many on a line as fit, to keep the table short."""
    lines: list[str] = []
    for column in columns:
        if lines and len(lines[-1]) + len(column) < WIDTH:
            lines[-1] += f", {column}"
        else:
            lines.append(f"  {column}")
    return lines


def _column_parts(row: Any) -> Iterator[str]:
    yield f"{row['name']} {row['type']}"
    if row["collation"]:
        yield f'COLLATE "{row["collation"]}"'
    if row["identity"].strip(b"\0 "):
        yield f"GENERATED {GENERATED[row['identity'].decode()]} AS IDENTITY"
    elif row["generated"].strip(b"\0 "):
        yield f"GENERATED ALWAYS AS ({row['def']}) STORED"
    elif row["def"]:
        yield f"DEFAULT {row['def']}"
    if row["is_not_null"]:
        yield "NOT NULL"


def _function(row: Any) -> str:
    traits = f"LANGUAGE {row['language']} {VOLATILITY[row['volatility'].decode()]}{PARALLEL[row['parallel'].decode()]}"
    traits += " SECURITY DEFINER" if row["is_definer"] else ""
    settings = "".join(f" SET {setting}" for setting in row["settings"] or ())
    return (
        f"FUNCTION sexton.{row['name']}({row['arguments']})\n  RETURNS {row['result']} {traits}{settings}\n"
        f"  BODY md5 {row['body']};\n"
    )


async def write() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="sexton-schema-") as folder,
        EmbeddedPostgres.start(Path(folder) / "postgres", settings={"fsync": "off"}) as server,
    ):
        database = await Postgres.open(server.url())
        await migrations.migrate(database)
        await database.close()
        connection = await asyncpg.connect(server.url())
        text = await describe(connection)
        await connection.close()
    FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(write())
