"""The plan of one chaos run: duration, load, faults and seed. The same seed and plan give the same faults at the same times;
how the processes react to them varies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

DEFAULT_LEASE_S = 4.5  # as in sexton.settings
DEFAULT_SLOTS = 100


@dataclass(frozen=True)
class Plan:
    seed: int
    # of load, including the faults. Before it come the start and a stretch without faults; after it all runs finish.
    seconds: float
    rate: float = 120.0  # one-time jobs per second, over all kinds
    schedules: int = 12  # number of recurring jobs; each fires every second
    workers: int = 4
    schedulers: int = 3
    faults: tuple[str, ...] | None = None  # by name; none: all that this machine can inject
    quiet_s: tuple[float, float] = (8.0, 20.0)  # after the end of each fault
    overtime_s: float = 0.0  # a slow machine may go on for this much longer, until all planned faults have happened
    warm_up_s: float = 5.0  # of load before the first fault
    drain_s: float = 120.0  # everything must have ended within this time after the last fault
    settings: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))  # of every member, by name
    disk_mib: int = 1024  # of the small disk under the data folder
    connections: int = 120  # max_connections of the server

    @property
    def lease_s(self) -> float:
        return float(str(self.settings.get("lease_s", DEFAULT_LEASE_S)))

    @property
    def slots(self) -> int:
        """Of one worker."""
        return int(str(self.settings.get("worker_concurrency", DEFAULT_SLOTS)))

    @property
    def worker_names(self) -> tuple[str, ...]:
        return tuple(f"worker-{number}" for number in range(1, self.workers + 1))

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        return tuple(f"scheduler-{number}" for number in range(1, self.schedulers + 1))

    @property
    def members(self) -> tuple[str, ...]:
        return (*self.worker_names, *self.scheduler_names, "api")
