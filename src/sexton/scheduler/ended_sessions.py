"""Which workers are dead because their sessions ended: the second half of rule "dead only when watched".

A process that is killed ends its sessions at once. So do an administrator, a restart of the server, and a network that resets
connections. So a worker is not dead as long as its sessions may have ended for a reason that is not its own, or may come back.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from uuid import UUID

from sexton.store.fleet.workers import AnnouncedSession, Survey

AWAY_S = 1.0  # a live worker announces a new session within this time, or has stopped its handlers (worker/heartbeat.py)
LOOK_S = AWAY_S / 2  # between two looks while a session has ended; if the sweeper was away for longer, the gap counts as this


@dataclass(slots=True)
class _Watched:
    session: str
    away_s: float | None = None  # since it was seen to have ended


class EndedSessions:
    def __init__(self) -> None:
        self._watched: dict[UUID, _Watched] = {}
        self.own: str | None = None  # the session of the last look

    def observe(self, survey: Survey, *, gap_s: float) -> set[UUID]:
        """Returns the workers that are dead. `gap_s` is the time since the look before."""
        self.own, sessions = survey.own_session, survey.sessions
        if self.own is None or not survey.own_stayed:
            # The server may have ended all sessions, also our own. Then nothing is known about the workers: this sweeper must
            # see each session alive again before it can see it end.
            self._watched.clear()
        if self.own is None:
            return set()
        before, self._watched = self._watched, {}
        for worker_id, session in sessions.items():
            self._look_at(worker_id, session, before.get(worker_id), min(gap_s, LOOK_S))
        ended = {worker_id for worker_id, session in sessions.items() if session.has_ended}
        if has_common_cause(ended, sessions):
            # They come back slowly, one by one. So none of them, and not the last one either, counts until it is seen alive.
            for worker_id in ended:
                self._watched.pop(worker_id, None)
        return {worker_id for worker_id in self._away() if self._left_s(worker_id) <= 0}

    def forget(self) -> None:
        """A look failed: it may have been the only sign that the server was away."""
        self._watched.clear()
        self.own = None

    @property
    def rest_s(self) -> float | None:
        """Until the next look; null: no session has ended."""
        left_s = [left_s for worker_id in self._away() if (left_s := self._left_s(worker_id)) > 0]
        return min([LOOK_S, *left_s]) if self._away() else None

    def _away(self) -> list[UUID]:
        return [worker_id for worker_id, watched in self._watched.items() if watched.away_s is not None]

    def _left_s(self, worker_id: UUID) -> float:
        away_s = self._watched[worker_id].away_s
        return AWAY_S - (away_s or 0.0)

    def _look_at(self, worker_id: UUID, session: AnnouncedSession, watched: _Watched | None, gap_s: float) -> None:
        if not session.has_ended:
            self._watched[worker_id] = _Watched(session.name)
        elif watched is not None and watched.session == session.name:  # otherwise this sweeper has not seen it alive
            watched.away_s = 0.0 if watched.away_s is None else watched.away_s + gap_s
            self._watched[worker_id] = watched


def has_common_cause(ended: Set[UUID], sessions: Mapping[UUID, AnnouncedSession]) -> bool:
    """If the sessions of several workers end at once, the cause is probably common, and the workers come back slowly. A child
    in quarantine ends with its parent, so both count as one."""
    return sum(sessions[worker_id].parent_id not in ended for worker_id in ended) > 1
