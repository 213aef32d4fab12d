"""Decides when a log line about something that lasts is written again."""

from __future__ import annotations

from collections.abc import Collection, Hashable


class Reminders:
    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._logged_at: dict[Hashable, float] = {}

    def is_due(self, what: Hashable, now_s: float) -> bool:
        """True the first time, and again `every_s` after the last time that it was true: the caller logs it."""
        logged_at = self._logged_at.get(what)
        if logged_at is not None and now_s - logged_at < self._every_s:
            return False
        self._logged_at[what] = now_s
        return True

    def keep(self, lasting: Collection[Hashable]) -> None:
        """Forgets all others: each is logged at once if it comes back."""
        self._logged_at = {what: at for what, at in self._logged_at.items() if what in lasting}
