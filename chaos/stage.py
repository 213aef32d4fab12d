"""What a fault may lay its hands on."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from .cast import Cast
from .ground import Ground
from .network import Network
from .plan import Plan


@dataclass(frozen=True)
class Stage:
    plan: Plan
    ground: Ground
    network: Network
    cast: Cast
    dice: Random = field(default_factory=Random)


class Deed(NamedTuple):
    """What a fault did, to whom; to nobody in particular means to the database, and so to everybody."""

    members: tuple[str, ...]
    note: str
