"""Moves the wall clock of one process with libfaketime (Debian: libfaketime), but not its monotonic clock.

In this mode libfaketime 0.9.10 breaks `time.sleep` (EINVAL). Members call it only to leave in bounded time; their waits
work."""

from __future__ import annotations

from pathlib import Path

HOW_TO_GET = "apt-get install libfaketime"


def library() -> Path | None:
    places = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    return places[0] if places else None


def environment(library: Path, clock: Path) -> dict[str, str]:
    """The environment for a process whose clock follows the file within a second."""
    move(clock, 0)
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_RESET": "1",
    }


def move(clock: Path, seconds: float) -> None:
    fresh = clock.with_suffix(".new")
    fresh.write_text(f"{seconds:+.0f}\n")
    fresh.replace(clock)
