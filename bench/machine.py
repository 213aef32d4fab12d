"""The machine that the figures were measured on, and its other load."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import psutil


def description() -> dict[str, Any]:
    return {
        "cpu": _cpu_model(),
        "cores": len(psutil.Process().cpu_affinity() or ()) if hasattr(psutil.Process, "cpu_affinity") else os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def steal_s() -> float:
    """Steal time: CPU time that the hypervisor gave to other guests, over all cores."""
    return float(getattr(psutil.cpu_times(), "steal", 0.0))


def busy_s() -> float:
    """CPU time used by all processes on this machine."""
    times = psutil.cpu_times()
    return float(sum(getattr(times, kind, 0.0) for kind in ("user", "nice", "system", "irq", "softirq")))


def tree_cpu_s(pid: int) -> float:
    """CPU time of a process, its live children and the children it has waited for."""
    try:
        process = psutil.Process(pid)
        total = _cpu_s(process)
        for child in process.children(recursive=True):
            try:
                total += _cpu_s(child)
            except psutil.NoSuchProcess:
                continue
    except psutil.NoSuchProcess:
        return 0.0
    return total


def rss_mib(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss / 2**20)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
