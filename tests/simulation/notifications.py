"""Notifications on their way. Some are lost, come twice, or come late: a service may not rely on them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

WOKEN = {"sexton_ready": "intake", "sexton_due": "promoter", "sexton_plan": "planner"}
LATE_STEPS = (2, 5, 15)


class Notifications:
    def __init__(self, dice: Random, seen: Callable[[str], None]) -> None:
        self._dice, self._seen = dice, seen
        self._heard: list[str] = []
        self._late: list[tuple[int, str]] = []  # after how many more steps, and what

    def hear(self, _connection: object, _pid: int, channel: str, _payload: object) -> None:
        self._heard.append(channel)

    def due(self, *, faulty: bool) -> list[str]:
        """After a step: the actions that are woken now, one as often as its notification came."""
        self._late = [(steps - 1, name) for steps, name in self._late]
        woken = [name for steps, name in self._late if steps <= 0]
        self._late = [(steps, name) for steps, name in self._late if steps > 0]
        for channel in self._heard:
            fate = self._dice.choice(("lost", "once", "once", "twice", "late")) if faulty else "once"
            self._seen(f"notified {fate}")
            if fate == "late":
                self._late.append((self._dice.choice(LATE_STEPS), WOKEN[channel]))
            else:
                woken += [WOKEN[channel]] * ("lost", "once", "twice").index(fate)
        self._heard.clear()
        return woken
