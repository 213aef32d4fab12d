"""The values that a field of a body may have, if they are few: the decoder says that one is wrong, not which are right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from msgspec import inspect


@cache
def choices_at(kind: type, path: tuple[str, ...]) -> tuple[str, ...]:
    """The allowed words; none if any value is allowed, or if there is no such field."""
    types = list(_flat(inspect.type_info(kind)))
    for step in path:
        types = [inner for outer in types for inner in _inside(outer, step)]
    return tuple(dict.fromkeys(str(value) for one in types if isinstance(one, inspect.LiteralType) for value in one.values))


def in_words(choices: Sequence[str]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}" if len(choices) > 1 else choices[0]


def _flat(one: Any) -> Iterator[Any]:
    match one:
        case inspect.Metadata():
            yield from _flat(one.type)
        case inspect.UnionType():
            for part in one.types:
                yield from _flat(part)
        case _:
            yield one


def _inside(outer: Any, step: str) -> Iterator[Any]:
    match outer:
        case inspect.StructType():
            if step == outer.tag_field:
                yield inspect.LiteralType((str(outer.tag),))
            for field in outer.fields:
                if field.encode_name == step:
                    yield from _flat(field.type)
        case inspect.ListType() | inspect.VarTupleType():
            yield from _flat(outer.item_type)
        case inspect.DictType():
            yield from _flat(outer.value_type)
        case _:
            pass
