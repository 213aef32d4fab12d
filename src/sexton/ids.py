"""The only source of randomness: ids of processes, and the rng of jitter. The database makes the ids of rows."""

from __future__ import annotations

import os
import random
import socket
import uuid

Rng = random.Random


def process_id() -> uuid.UUID:
    """Random per process, and new when a worker was declared dead. It is half of a lease."""
    return uuid.uuid4()


def request_key() -> str:
    """An idempotency key made by the client, so that it can send a submission again whose reply was lost."""
    return f"client-{uuid.uuid4()}"


def process_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def entropy() -> Rng:
    return random.Random()
