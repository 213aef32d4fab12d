"""An edit as the store takes it, checked by the same rules as a submission."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from sexton.api.answers.problems import invalid
from sexton.domain.job import Lane, Submission
from sexton.operations.definition_change import Changes
from sexton.wire import JobEdit, JobRequest

from .revisions import said_in
from .submissions import submission_of

_SAME_NAME = ("name", "queue", "tags")


def changes_of(edit: JobEdit) -> Changes:
    """A submission with only these fields is checked; what was left out stays out, and null stays null."""
    said = said_in(edit)
    if "run_at" in said and "delay" in said:
        raise invalid("/delay", "give run_at or delay, not both")
    checked = submission_of(JobRequest(**{"handler": "unchanged", **_given(said)}), submitted_by="api")
    changes: dict[str, Any] = {name: said[name] for name in _SAME_NAME if name in said}
    if "payload" in said:
        changes["payload"] = checked.payload
    if "priority" in said:
        changes["lane"] = None if said["priority"] is None else int(Lane.of(said["priority"]))
    changes |= _times(said, checked)
    changes |= _policy(said, checked)
    if "handler" in said:
        changes["target"] = None if checked.policy is None else checked.policy.target
    return Changes(**changes)


def _given(said: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if value is not None}


def _times(said: dict[str, Any], checked: Submission) -> dict[str, Any]:
    times: dict[str, Any] = {}
    if "run_at" in said:
        times["run_at"] = None if checked.run_at is None else checked.run_at.astimezone(UTC)
    if "delay" in said:
        times["delay_s"] = checked.delay_s
    if "timeout" in said:
        times["timeout_s"] = checked.timeout_s
    return times


def _policy(said: dict[str, Any], checked: Submission) -> dict[str, Any]:
    policy: dict[str, Any] = {}
    if "retry" in said:
        policy["retry"] = None if said["retry"] is None or checked.policy is None else checked.policy.retry
    for field in ("deadline", "start_within"):
        if field in said:
            policy[f"{field}_s"] = None if checked.policy is None else getattr(checked.policy, f"{field}_s")
    return policy
