"""Notifications in transit. Some are lost, duplicated or late: a service may not rely on them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

WOKEN = {"sexton_ready": "intake", "sexton_due": "promoter", "sexton_plan": "planner"}
LATE_STEPS = (2, 5, 15)


class Notifications:
    def __init__(self, rng: Random, seen: Callable[[str], None]) -> None:
        self._rng, self._seen = rng, seen
        self._heard: list[str] = []
        self._late: list[tuple[int, str]] = []  # the steps left until delivery, and the notification

    def hear(self, _connection: object, _pid: int, channel: str, _payload: object) -> None:
        self._heard.append(channel)

    def due(self, *, faulty: bool) -> list[str]:
        """After a step: the actions that are woken now, once for each delivery of their notification."""
        self._late = [(steps - 1, name) for steps, name in self._late]
        woken = [name for steps, name in self._late if steps <= 0]
        self._late = [(steps, name) for steps, name in self._late if steps > 0]
        for channel in self._heard:
            fate = self._rng.choice(("lost", "once", "once", "twice", "late")) if faulty else "once"
            self._seen(f"notified {fate}")
            if fate == "late":
                self._late.append((self._rng.choice(LATE_STEPS), WOKEN[channel]))
            else:
                woken += [WOKEN[channel]] * ("lost", "once", "twice").index(fate)
        self._heard.clear()
        return woken
