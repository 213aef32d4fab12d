"""The delay before the next try: twice as long each time, up to a limit."""

from __future__ import annotations

_DOUBLINGS_LIMIT = 30  # so that no number of tries overflows


def doubled_s(first_s: float, longest_s: float, doublings: int) -> float:
    """`first_s` after no doubling. Without jitter: the caller adds it where several retry together."""
    return min(first_s * 2.0 ** min(doublings, _DOUBLINGS_LIMIT), longest_s)
