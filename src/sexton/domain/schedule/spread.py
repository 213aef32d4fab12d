"""Deterministic hashing: the same seed gives the same number on every node, in every process and version."""

from __future__ import annotations

from hashlib import blake2b


def fraction(seed: str, salt: str) -> float:
    """A number in [0, 1) that depends only on the two texts."""
    return (_number(seed, salt) >> 11) / 2**53


def pick(seed: str, salt: str, size: int) -> int:
    """One of 0 … size - 1."""
    return _number(seed, salt) % size


def _number(seed: str, salt: str) -> int:
    text = f"{salt}\x00{seed}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
