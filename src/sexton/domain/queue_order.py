"""In which order a worker reads its queues: `mail:3,default:1` by weight, `mail>default` strictly, `mail,default` equally."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .fault import Invalid
from .job import NAME_LIMIT

WEIGHT_LIMIT = 1_000
QUEUES_LIMIT = 200


class QueueOrder(NamedTuple):
    names: tuple[str, ...]
    weights: tuple[int, ...]  # of the names, in their order
    strict: bool = False  # always the first queue that has work


def queue_order(given: str | Sequence[str]) -> QueueOrder:
    """From a text, or a list of `name` and `name:weight`. A tuple, which comes from code, contains plain names. `Invalid` says
    what is wrong and how to write it."""
    if isinstance(given, tuple):
        return _checked([(str(name), 1) for name in given], strict=False)
    text = given if isinstance(given, str) else None
    strict = text is not None and ">" in text
    if text is not None and strict and "," in text:
        raise Invalid(
            "worker_queues", f"{text!r} mixes ',' and '>'; write mail>default for strict order, mail:3,default:1 for shares"
        )
    parts = given if text is None else text.split(">" if strict else ",")
    return _checked([_named(part.strip(), strict=strict) for part in parts if part.strip()], strict=strict)


def _checked(named: Sequence[tuple[str, int]], *, strict: bool) -> QueueOrder:
    if not named:
        raise Invalid("worker_queues", "has no queue; give at least one, such as default, or remove the setting")
    if len(named) > QUEUES_LIMIT:
        raise Invalid("worker_queues", f"has {len(named):,} queues; the limit is {QUEUES_LIMIT}")
    names = tuple(name for name, _ in named)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Invalid("worker_queues", f"{twice!r} is given twice; remove one")
    return QueueOrder(names, tuple(weight for _, weight in named), strict)


def _named(part: str, *, strict: bool) -> tuple[str, int]:
    """A colon followed by a whole number is a weight; any other colon is part of the name."""
    name, colon, number = part.rpartition(":")
    if not colon or not number.isdecimal():
        name, number = part, "1"
    elif strict:
        raise Invalid("worker_queues", f"{part!r}: strict order has no weights; write mail>default, or mail:3,default:1")
    if len(number) > 9 or not 1 <= int(number) <= WEIGHT_LIMIT:
        raise Invalid("worker_queues", f"{part!r}: a weight must be a whole number between 1 and {WEIGHT_LIMIT:,}")
    if not name or len(name) > NAME_LIMIT or "\x00" in name:
        raise Invalid("worker_queues", f"{part!r}: the name of a queue must have 1 to {NAME_LIMIT} characters")
    return name, int(number)
