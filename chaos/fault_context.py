"""What a fault can act on."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple
from uuid import UUID

from .database_server import DatabaseServer
from .fault import Poison
from .members import Members
from .network import Network
from .plan import Plan


@dataclass(frozen=True)
class FaultContext:
    plan: Plan
    database_server: DatabaseServer
    network: Network
    members: Members
    rng: Random = field(default_factory=Random)


class Applied(NamedTuple):
    """What a fault did, and to which members. Without members it hit the database, and so all of them."""

    members: tuple[str, ...]
    note: str
    harmed: frozenset[UUID] = frozenset()  # jobs that a bad neighbour may delay; it may delay no others
    poison: Poison | None = None
