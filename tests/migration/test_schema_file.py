"""`store/schema.sql` is what a migrated database has, on every supported PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools import schema

if TYPE_CHECKING:
    import asyncpg


async def test_the_committed_schema_is_that_of_a_migrated_database(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """If this fails after a change of the schema: make schema."""
    assert await schema.describe(connection) == schema.FILE.read_text(encoding="utf-8")
