"""What a fault may act on."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from .database_server import DatabaseServer
from .members import Members
from .network import Network
from .plan import Plan


@dataclass(frozen=True)
class FaultContext:
    plan: Plan
    database_server: DatabaseServer
    network: Network
    members: Members
    dice: Random = field(default_factory=Random)


class Applied(NamedTuple):
    """What a fault did, and to which members; without members it hit the database, and so all of them."""

    members: tuple[str, ...]
    note: str
