"""The tasks of a process by name, the defaults of their jobs, and the schedules that its code declares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sexton.domain.batch import Batch
from sexton.domain.job import Submission
from sexton.domain.schedule.document import ScheduleDocument

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Definition:
    """A task: its function, how another process imports it, and the defaults of its jobs."""

    name: str
    fn: Function
    module: str
    qualname: str
    process: bool = False
    defaults: Submission = field(default_factory=lambda: Submission(task=""))
    batch: Batch | None = None  # one call executes several runs

    @property
    def options(self) -> dict[str, Any]:
        """What the table `sexton.tasks` stores, so that jobs submitted in SQL get the same defaults."""
        chosen = {
            "queue": self.defaults.queue,
            "lane": self.defaults.lane,
            "timeout_s": self.defaults.timeout_s,
            "at_most_once": self.defaults.at_most_once,
            "limit": msgspec.to_builtins(self.defaults.limit) if self.defaults.limit is not None else None,
            "policy": msgspec.to_builtins(self.defaults.policy) if self.defaults.policy is not None else None,
        }
        return {name: value for name, value in chosen.items() if value is not None}


class Registry:
    def __init__(self) -> None:
        self._definitions: dict[str, Definition] = {}
        self.schedules: dict[str, ScheduleDocument] = {}  # by name
        self.owner = "app"  # the import path of the app; a prune ends only schedules of this owner

    def add(self, definition: Definition) -> None:
        other = self._definitions.get(definition.name)
        if other is not None and (other.module, other.qualname) != (definition.module, definition.qualname):
            raise ValueError(
                f"task {definition.name!r} is defined twice, in {other.module}.{other.qualname} and "
                f"{definition.module}.{definition.qualname}; give one of them another name"
            )
        self._definitions[definition.name] = definition

    def declare(self, document: ScheduleDocument) -> None:
        name = document.name or document.task
        if self.schedules.setdefault(name, document) != document:
            raise ValueError(f"schedule {name!r} is declared twice; give one of them another name with name=")

    def get(self, name: str) -> Definition | None:
        return self._definitions.get(name)

    @property
    def names(self) -> list[str]:
        return sorted(self._definitions)

    def __iter__(self) -> Iterator[Definition]:
        return iter(self._definitions.values())
