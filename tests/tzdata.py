"""Releases of the time zone data that exist only in tests: the packaged data under another version, with some zones changed."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta

from sexton.domain.schedule import zone
from sexton.domain.schedule.zone import PackagedRelease

PACKAGED = PackagedRelease()


class FakeRelease:
    def __init__(self, version: str, changed: Mapping[str, bytes]) -> None:
        self.version, self._changed = version, changed
        self.names = PACKAGED.names | frozenset(changed)

    def rules(self, name: str) -> bytes:
        return self._changed.get(name) or PACKAGED.rules(name)


@contextmanager
def using(release: zone.Release) -> Iterator[None]:
    """In the block, this process uses these data."""
    usual, zone.release = zone.release, release
    try:
        yield
    finally:
        zone.release = usual


def rules(hours: float, *changes: tuple[datetime, float]) -> bytes:
    """A zone with an offset in hours from UTC, and other offsets from each given instant on (RFC 8536, version 2)."""
    offsets = [hours, *(after for _, after in changes)]
    header = struct.pack(">4sc15x6l", b"TZif", b"2", 0, 0, 0, len(changes), len(offsets), 4)
    body = b"".join(struct.pack(">q", int(at.timestamp())) for at, _ in changes)
    body += bytes(range(1, len(offsets)))
    body += b"".join(struct.pack(">lbb", int(timedelta(hours=one).total_seconds()), 0, 0) for one in offsets)
    empty = struct.pack(">4sc15x6l", b"TZif", b"2", 0, 0, 0, 0, 1, 4) + struct.pack(">lbb", 0, 0, 0) + b"ZON\0"
    return empty + header + body + b"ZON\0\n\n"
