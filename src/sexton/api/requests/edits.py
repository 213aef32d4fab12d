"""An edit as the store takes it, checked by the same rules as a submission."""

from __future__ import annotations

from typing import Any

from sexton.api.answers.problems import invalid
from sexton.domain.job_options import BY_NAME
from sexton.operations.definition_change import Changes
from sexton.wire import JobEdit, JobRequest

from .revisions import given_in, policy_of
from .submissions import submission_of


def changes_of(edit: JobEdit) -> Changes:
    """Checks a submission with only these fields; fields that were left out stay out, and null stays null."""
    given = given_in(edit)
    if "run_at" in given and "delay" in given:
        raise invalid("/delay", "give run_at or delay, not both")
    checked = submission_of(JobRequest(**{"handler": "unchanged", **_not_null(given)}), submitted_by="api")
    changes: dict[str, Any] = {"policy": policy_of(given, checked)}
    for name, value in given.items():
        place, _, key = BY_NAME[name].kept.partition(".")
        if name == "handler":
            changes["target"] = None if checked.policy is None else checked.policy.target
        elif place == "job":
            changes[key] = None if value is None else getattr(checked, key)
    if "run_at" in given:
        changes["run_at"] = checked.run_at
    if "delay" in given:
        changes["delay_s"] = checked.delay_s
    return Changes(**changes)


def _not_null(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}
