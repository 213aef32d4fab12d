"""F4: a small response that unpacks to a large one costs the worker no more memory than the part that is kept."""

from __future__ import annotations

import gzip
import tracemalloc

from sexton.handlers.http.answer import _Unpacked


def test_a_bomb_costs_no_more_memory_than_is_kept_of_it() -> None:
    bomb, limit = gzip.compress(bytes(64 * 1024 * 1024)), 10_000
    unpacked = _Unpacked("gzip", limit)
    tracemalloc.start()
    try:
        for start in range(0, len(bomb), 16 * 1024):
            unpacked.add(bomb[start : start + 16 * 1024])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(unpacked.kept), unpacked.is_cut) == (limit, True)
    assert peak < 1024 * 1024
