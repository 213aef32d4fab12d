"""The only place that makes randomness: ids of processes, and the dice behind jitter. Ids of rows are the database's."""

from __future__ import annotations

import os
import random
import socket
import uuid

Rng = random.Random


def process_id() -> uuid.UUID:
    """Random per process (and per rebirth of a worker that was declared dead): half of a lease."""
    return uuid.uuid4()


def request_key() -> str:
    """An idempotency key of the client's own, so that a submission whose reply was lost can be sent again."""
    return f"client-{uuid.uuid4()}"


def process_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def entropy() -> Rng:
    return random.Random()
