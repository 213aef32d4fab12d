"""How texts for people write a number of things."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
