"""Divides a batch that meets contention, as one that meets bad data (rule "bisect bad batches"): the rows that another session
has locked are left for the next pass, and the others are written now (rule "never wait inside a batch")."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from sexton.errors import Contention
from sexton.store.database import Connection, Database

Item = TypeVar("Item")
Answer = TypeVar("Answer")

BRIEFLY = "SET LOCAL lock_timeout = '100ms'"  # a thousand rows with one that is locked are done in about a second


class Divided(NamedTuple, Generic[Item, Answer]):
    answers: list[Answer]
    left: list[Item]  # each of them met contention alone


async def in_parts(
    database: Database,
    batch: Sequence[Item],
    write: Callable[[Connection, Sequence[Item]], Awaitable[Answer]],
    *,
    atomic: bool = False,
) -> Divided[Item, Answer]:
    """Writes the batch at once. If it meets contention, it is halved until each locked row is alone. `atomic`: each
    part is one transaction, also the whole batch."""
    try:
        async with database.transaction() if atomic else database.connection() as connection:
            return Divided([await write(connection, batch)], [])
    except Contention:
        if len(batch) <= 1:
            return Divided([], list(batch))
    answers: list[Answer] = []
    left: list[Item] = []
    parts = _halves(batch)
    while parts:
        part = parts.pop()
        try:
            async with database.transaction() as connection:
                await connection.execute(BRIEFLY)
                answers.append(await write(connection, part))
        except Contention:
            if len(part) == 1:
                left += part
            else:
                parts += _halves(part)
    return Divided(answers, left)


def _halves(batch: Sequence[Item]) -> list[Sequence[Item]]:
    """In reverse: the last one is taken first."""
    middle = len(batch) // 2
    return [batch[middle:], batch[:middle]]
