"""What the two releases did together, in one line, and whether it is allowed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from chaos.fires import FireFindings
from tests.process.checker import Findings

from .locks import Seen

LOCK_S_LIMIT = 5.0  # far above what a migration may take, so that a busy machine does not fail the test


@dataclass(frozen=True)
class Verdict:
    findings: Findings  # of one-time jobs
    fires: FireFindings  # of schedules
    locks: Seen
    shared: Collection[UUID]  # jobs that both releases submitted under one key
    shared_keys: int
    executed_by: dict[str, int]  # release: executions that succeeded

    @property
    def faults(self) -> list[str]:
        found, fires, locks = self.findings, self.fires, self.locks
        verdicts = {
            f"{len(found.lost)} jobs lost": found.lost,
            f"{len(found.double_leases)} double leases": found.double_leases,
            f"{len(found.unexplained)} jobs unexplained": found.unexplained,
            f"{found.submitted_count - found.completed_count} jobs not completed": not found.all_completed,
            f"{len(fires.missing)} fires missing": fires.missing,
            f"{len(fires.doubled)} fires doubled": fires.doubled,
            f"{len(fires.unexpected)} fires unexpected": fires.unexpected,
            f"{len(self.shared)} jobs under {self.shared_keys} keys": len(self.shared) != self.shared_keys,
            f"a lock on {locks.held_on} held for {locks.held_s:.1f} s": locks.held_s > LOCK_S_LIMIT,
            f"a session waited {locks.waited_s:.1f} s for the migration": locks.waited_s > LOCK_S_LIMIT,
            "the locks were never sampled": not locks.samples,
            "one of the releases executed nothing": not all(self.executed_by.values()),
        }
        return [text for text, is_so in verdicts.items() if is_so]

    def __str__(self) -> str:
        found, locks = self.findings, self.locks
        executed = ", ".join(f"{release} {count}" for release, count in self.executed_by.items())
        repeated = sum(found.repeated_because.values())
        return (
            f"two releases: submitted {found.submitted_count}, completed {found.completed_count} "
            f"({executed}; {repeated} repeated), "
            f"fires {self.fires.executed_count} of {self.fires.expected_count}, lost {len(found.lost)}, "
            f"double leases {len(found.double_leases)}, longest lock {1000 * locks.held_s:.0f} ms, "
            f"longest wait for it {1000 * locks.waited_s:.0f} ms (sampled at least every {1000 * locks.blind_s:.0f} ms)"
        )
