"""An update of time zone data during a simulation. By the old data, clocks of one zone are set forward by 20 s; by the new data
they are not. So wall times that have passed by the old data occur again (rule "one instant, one fire")."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sexton.domain.schedule.zone import wall_of, zone_of_rules
from tests.tzdata import rules

ZONE = "Simulated/Zone"
CRON = "5,15,25,35,45,55 0-59 0-23 * * *"  # fixed times; two of them are in the gap
CHANGE_AT = datetime(2026, 3, 1, 0, 0, 40, tzinfo=UTC)


class SimulatedRelease:
    """Time zone data with one zone besides UTC, so that reading them takes no time."""

    def __init__(self, version: str, zones: Mapping[str, bytes]) -> None:
        self.version, self._zones = version, zones
        self.names = frozenset(zones)

    def rules(self, name: str) -> bytes:
        return self._zones[name]


OLD = SimulatedRelease("2026a", {"UTC": rules(0), ZONE: rules(0, (CHANGE_AT, timedelta(seconds=20) / timedelta(hours=1)))})
NEW = SimulatedRelease("2026b", {"UTC": rules(0), ZONE: rules(0)})
_CLOCKS = {release.version: zone_of_rules(ZONE, release.rules(ZONE)) for release in (OLD, NEW)}


class WallTimes:
    """The wall time of each fire, by the data it was planned with."""

    def __init__(self) -> None:
        # By run, from its promotion on: after that it is not taken back for new data.
        self._decided: dict[UUID, datetime] = {}
        self._taken: set[tuple[UUID, datetime]] = set()
        self._fired: dict[tuple[UUID, datetime], UUID] = {}
        self._versions: dict[UUID, str] = {}  # by job, at the last check

    def saw(self, run_id: UUID, job_id: UUID, fire_at: datetime, version: str, *, begun: bool) -> str | None:
        """Checks a run that is not waiting. Returns the error, if there is one."""
        if run_id not in self._decided:
            self._decided[run_id] = self._decide(job_id, fire_at, version)
        wall = self._decided[run_id]
        if begun and self._fired.setdefault((job_id, wall), run_id) != run_id:
            return f"a wall time fires once: {job_id} fired at {wall:%H:%M:%S} before {fire_at:%H:%M:%S} UTC"
        return None

    def _decide(self, job_id: UUID, fire_at: datetime, version: str) -> datetime:
        """The run may have been promoted between two checks, before the new data came: then the old data decided. If there is a
        choice, it was not planned for a wall time that another run was promoted for, begun or not."""
        before = self._versions.get(job_id, version)
        self._versions[job_id] = version
        walls = [wall_of(_CLOCKS[each], fire_at) for each in (version, before)]
        wall = next((wall for wall in walls if (job_id, wall) not in self._taken), walls[0])
        self._taken.add((job_id, wall))
        return wall
