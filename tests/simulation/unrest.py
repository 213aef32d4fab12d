"""What a busy server does during a simulation: it collects statistics, so that plans change, and takes transaction ids. None of
it may change the history."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

PAUSE_S = 0.3


@contextmanager
def unrest(url: str) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=_stir, args=(url, stop), name="unrest", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _stir(url: str, stop: threading.Event) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        while not stop.wait(PAUSE_S):
            connection.execute("SELECT pg_current_xact_id()")
            connection.execute("ANALYZE")
