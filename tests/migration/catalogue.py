"""The parts of the schema that a program could distinguish, without partitions, whose names depend on the calendar."""

from __future__ import annotations

from typing import Any

import asyncpg

CATALOGUE = {
    "columns": """
        SELECT c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull,
          pg_get_expr(d.adbin, d.adrelid) AS def
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relnamespace = 'sexton'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition""",
    "tables": """
        SELECT relname, relkind, reloptions, relpersistence, relacl::text FROM pg_class
        WHERE relnamespace = 'sexton'::regnamespace AND NOT relispartition AND relkind <> 'i'""",
    "indexes": """
        SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'sexton'
        AND tablename IN (SELECT relname FROM pg_class WHERE relnamespace = 'sexton'::regnamespace AND NOT relispartition)""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'sexton'::regnamespace AND conrelid IN (SELECT oid FROM pg_class WHERE NOT relispartition)""",
    "functions": """
        SELECT p.oid::regprocedure::text, prosrc, pg_get_function_result(p.oid), proconfig, prosecdef, provolatile, proacl::text
        FROM pg_proc p WHERE pronamespace = 'sexton'::regnamespace""",
    "triggers": "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal AND tgparentid = 0",
}

Catalogue = dict[str, list[tuple[Any, ...]]]


async def read_catalogue(url: str) -> Catalogue:
    connection = await asyncpg.connect(url)
    try:
        return {
            name: sorted((tuple(row) for row in await connection.fetch(query)), key=str) for name, query in CATALOGUE.items()
        }
    finally:
        await connection.close()
