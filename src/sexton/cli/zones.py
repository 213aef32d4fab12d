"""Which time zone data this machine uses: the system's if Python finds it, else the `tzdata` package."""

from __future__ import annotations

import re
import zoneinfo
from importlib import metadata
from pathlib import Path

_VERSION = re.compile(r"(20\d\d[a-z]*)")


def tzdata_version() -> str | None:
    """Such as 2025b; `None` if there is none, `unknown` if it does not say."""
    for folder in map(Path, zoneinfo.TZPATH):
        if (folder / "UTC").exists() or (folder / "Etc" / "UTC").exists():
            return _of_system(folder)
    try:
        return _readable(metadata.version("tzdata"))
    except metadata.PackageNotFoundError:
        return None


def _of_system(folder: Path) -> str:
    for name in ("tzdata.zi", "+VERSION"):
        try:
            with (folder / name).open(encoding="utf-8") as file:
                found = _VERSION.search(file.readline())
        except OSError:
            continue
        if found is not None:
            return found[1]
    return "unknown"


def _readable(version: str) -> str:
    """2025.2 is 2025b."""
    year, _, release = version.partition(".")
    return year + (chr(ord("a") + int(release) - 1) if release.isdecimal() and 1 <= int(release) <= 26 else "")
