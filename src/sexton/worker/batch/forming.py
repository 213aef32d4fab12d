"""Runs of a batch task that wait for their call, divided into groups that may share one. It decides which group starts next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator

from sexton.domain import batch
from sexton.domain.batch import Batch
from sexton.worker.execution import Phase

from .execution import BatchExecution

STALE_S = 1.0  # its group could have started for this long, but no call was free: another worker may be faster


class Forming:
    def __init__(self, shape: Batch, wait_s: float) -> None:
        self._shape, self._wait_s = shape, wait_s
        self._groups: dict[Hashable, deque[BatchExecution]] = {}  # each by the time of its claim

    def __len__(self) -> int:
        return sum(len(group) for group in self._groups.values())

    def __iter__(self) -> Iterator[BatchExecution]:
        for group in self._groups.values():
            yield from group

    @property
    def next_at(self) -> float | None:
        """When the next group has waited long enough."""
        first = [group[0].taken_at for group in self._groups.values()]
        return min(first) + self._wait_s if first else None

    def add(self, execution: BatchExecution) -> None:
        self._groups.setdefault(batch.key_of(self._shape, execution.claimed), deque()).append(execution)

    def take_startable(self, now: float) -> list[BatchExecution]:
        """The runs of the next call: of the groups that are full or have waited, that of the oldest run, but at-most-once runs
        first. Empty if there is none."""
        startable = [
            (not group[0].claimed.lease.at_most_once, group[0].taken_at, key)
            for key, group in self._groups.items()
            if len(group) >= self._room(group) or now >= group[0].taken_at + self._wait_s
        ]
        if not startable:
            return []
        *_, key = min(startable, key=lambda one: one[:2])
        group = self._groups[key]
        taken = [group.popleft() for _ in range(min(len(group), self._room(group)))]
        if not group:
            del self._groups[key]
        return taken

    def take_stale(self, now: float) -> list[BatchExecution]:
        oldest_allowed = now - self._wait_s - STALE_S
        return self._take_if(lambda execution: execution.taken_at <= oldest_allowed)

    def take_alone(self) -> list[BatchExecution]:
        return self._take_if(lambda execution: execution.claimed.lease.at_most_once)

    def drop_ended(self) -> None:
        """Those that were cancelled or lost meanwhile."""
        self._take_if(lambda execution: execution.phase is not Phase.TAKEN)

    def take_all(self) -> list[BatchExecution]:
        return self._take_if(lambda _: True)

    def _take_if(self, is_taken: Callable[[BatchExecution], bool]) -> list[BatchExecution]:
        taken = [execution for execution in self if is_taken(execution)]
        if taken:
            gone = set(taken)
            rest = {key: deque(one for one in group if one not in gone) for key, group in self._groups.items()}
            self._groups = {key: group for key, group in rest.items() if group}
        return taken

    def _room(self, group: deque[BatchExecution]) -> int:
        return batch.room_of(self._shape, group[0].claimed)
