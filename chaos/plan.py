"""What one run of chaos is: how long, how much, with which faults and from which seed. A seed and a plan give the same faults
at the same times again; what the processes make of it is theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

DEFAULT_LEASE_S = 4.5  # as in sexton.settings


@dataclass(frozen=True)
class Plan:
    seed: int
    seconds: float  # of load, faults included; before come the start and a calm stretch, after it everything drains
    rate: float = 120.0  # one-time jobs per second, over all kinds
    schedules: int = 12  # recurring jobs, each every second
    workers: int = 4
    schedulers: int = 3
    faults: tuple[str, ...] | None = None  # by name; none: all that this machine can do
    quiet_s: tuple[float, float] = (8.0, 20.0)  # after the end of each fault
    warm_up_s: float = 5.0  # of load before the first fault
    drain_s: float = 120.0  # everything must have ended within this time after the last fault
    settings: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))  # of every member, by name
    disk_mib: int = 1024  # of the small disk under the data folder
    connections: int = 120  # max_connections of the server

    @property
    def lease_s(self) -> float:
        return float(str(self.settings.get("lease_s", DEFAULT_LEASE_S)))

    @property
    def worker_names(self) -> tuple[str, ...]:
        return tuple(f"worker-{number}" for number in range(1, self.workers + 1))

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        return tuple(f"scheduler-{number}" for number in range(1, self.schedulers + 1))

    @property
    def members(self) -> tuple[str, ...]:
        return (*self.worker_names, *self.scheduler_names, "api")
