"""Holds processes to a share of the CPU, with the bandwidth control of Linux's cgroups (version 1 or 2)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

ROOT = Path("/sys/fs/cgroup")
PERIOD_US = 20_000  # shorter than the usual 100 ms: a service that used up its share stands still for at most this long
REMOVE_S = 5.0


class QuotaUnavailable(RuntimeError):
    """This machine does not let us make cgroups."""


class Quota:
    """A group of processes that together use at most `cores`. Processes that they start later belong to it too."""

    def __init__(self, folder: Path, cores: float) -> None:
        self._folder, self.cores = folder, cores

    def hold(self, pids: Iterable[int]) -> None:
        for pid in pids:
            for each in _tree(pid):
                (self._folder / "cgroup.procs").write_text(str(each))


@contextmanager
def quota(name: str, cores: float) -> Iterator[Quota]:
    parent = _parent()
    folder = parent / f"sexton-bench-{os.getpid()}-{name}"
    try:
        folder.mkdir()
        for file, text in _limits(parent, round(cores * PERIOD_US)):
            (folder / file).write_text(text)
    except OSError as error:
        raise QuotaUnavailable(f"cannot make a cgroup in {parent}: {error.strerror}. Run it as root on the host") from None
    try:
        yield Quota(folder, cores)
    finally:
        _release(folder, parent)


def _parent() -> Path:
    for path, mark in ((ROOT / "cpu", "cpu.cfs_quota_us"), (ROOT, "cgroup.subtree_control")):
        if (path / mark).exists():
            return path
    raise QuotaUnavailable("there is no cgroup hierarchy with the cpu controller on this machine")


def _limits(parent: Path, quota_us: int) -> list[tuple[str, str]]:
    if (parent / "cgroup.subtree_control").exists():
        return [("cpu.max", f"{quota_us} {PERIOD_US}")]
    return [("cpu.cfs_period_us", str(PERIOD_US)), ("cpu.cfs_quota_us", str(quota_us))]


def _tree(pid: int) -> list[int]:
    try:
        process = psutil.Process(pid)
        return [pid, *(child.pid for child in process.children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def _release(folder: Path, parent: Path) -> None:
    """A group can be removed only when it is empty."""
    ends_at = time.monotonic() + REMOVE_S
    while time.monotonic() < ends_at:
        for pid in (folder / "cgroup.procs").read_text().split():
            try:
                (parent / "cgroup.procs").write_text(pid)
            except ProcessLookupError:
                continue
        try:
            folder.rmdir()
            return
        except OSError:
            time.sleep(0.05)
