"""The next definition of a recurring job from an edit: its fields replace the current ones, and the result is checked as a
submission is."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET

from sexton.api.answers.problems import invalid
from sexton.api.answers.views import handler
from sexton.domain.job import Lane, Policy, Submission
from sexton.domain.job_options import POLICIES, RECURRENCE
from sexton.domain.schedule import Schedule, schedule
from sexton.domain.schedule.dialects import is_refused
from sexton.domain.schedule.document import ScheduleDocument
from sexton.domain.schedule.recurrence import Recurrence, recurrence_of, seed_of
from sexton.domain.targets import Target, in_place_of
from sexton.store.work.jobs import JobView
from sexton.wire import RULE_FIELDS, JobEdit, JobRequest, catch_up_of, overlap_of, plain_rule

from .submissions import submission_of

_KINDS = ("cron", "rrule", "every")


def given_in(edit: JobEdit) -> dict[str, Any]:
    """Fields that were left out stay out, and null stays null."""
    given = {field: value for field in edit.__struct_fields__ if (value := getattr(edit, field)) is not UNSET}
    if not given:
        raise invalid("", "change at least one field")
    return given


def revision_of(edit: JobEdit, view: JobView, *, now: datetime) -> ScheduleDocument:
    """The whole next version. Null fields are left out of it, so that the defaults of the task and of Sexton apply."""
    given = given_in(edit)
    for field in ("run_at", "delay"):
        if field in given:
            raise invalid(f"/{field}", "a recurring job has no single time; change cron, rrule or every")
    common = {
        name: value for name, value in given.items() if value is not None and name not in RULE_FIELDS and name not in RECURRENCE
    }
    checked = submission_of(JobRequest(**{"handler": handler(view), **common}), submitted_by="api")
    name = given.get("name", view.name)
    policy, limit = _policy(given, checked, view.policy_json)
    return ScheduleDocument(
        task=view.task,
        tenant=view.tenant,
        at_most_once=checked.at_most_once if "delivery" in given else view.at_most_once,
        name=name,
        queue=given.get("queue", view.queue),
        lane=_lane(given, view),
        payload=checked.payload if "payload" in given else msgspec.Raw(view.payload_json.encode()),
        timeout_s=checked.timeout_s if "timeout" in given else view.timeout_s or 0.0,
        policy=policy,
        limit=limit,
        tags=checked.tags if "tags" in given else tuple(view.tags or ()) or None,
        schedule=_schedule(given, view, name, now),
        recurrence=_recurrence(given, view.recurrence_json),
        submitted_by="api",
    )


def _lane(given: dict[str, Any], view: JobView) -> int | None:
    if "priority" not in given:
        return view.lane
    return None if given["priority"] is None else int(Lane.of(given["priority"]))


def policy_of(given: dict[str, Any], checked: Submission) -> dict[str, Any]:
    """The options of an edit that the policy keeps, by the keys of that document; null: back to the default."""
    new = checked.policy or Policy()
    changes = {key: None if given[name] is None else getattr(new, key) for name, key in POLICIES.items() if name in given}
    return {**changes, "limit": checked.limit} if "limit" in given else changes


def _policy(given: dict[str, Any], checked: Submission, stored: str | None) -> tuple[msgspec.Raw | None, msgspec.Raw | None]:
    """The next policy, and the limit, which is separate in a document."""
    policy: dict[str, Any] = {} if stored is None else msgspec.json.decode(stored)
    policy |= msgspec.to_builtins(policy_of(given, checked))
    if "handler" in given:
        old = msgspec.convert(policy.get("target"), Target | None)
        target = None if checked.policy is None else checked.policy.target
        policy["target"] = msgspec.to_builtins(in_place_of(old, target))
    limit = policy.pop("limit", None)
    chosen = {key: value for key, value in policy.items() if value is not None}
    return _encoded(chosen), _encoded(limit)


def _encoded(document: Any) -> msgspec.Raw | None:
    return msgspec.Raw(msgspec.json.encode(document)) if document else None


def _schedule(given: dict[str, Any], view: JobView, name: str | None, now: datetime) -> Schedule | msgspec.Raw:
    """An unchanged rule stays as it is, and is not checked again; where only its limits change, its text keeps its meaning.
    Another kind of rule counts from now, unless `anchor_at` is given. The dialect `cron` of a line that is refused without it
    is that line's: another line needs its own."""
    changes = {field: plain_rule(given[field]) for field in RULE_FIELDS if field in given}
    stored = view.schedule_json or "{}"
    if not changes:
        return msgspec.Raw(stored.encode())
    fields: dict[str, Any] = msgspec.json.decode(stored)
    kind = next((kind for kind in _KINDS if changes.get(kind) is not None), None)
    if kind is not None and kind not in fields:
        for other in (*_KINDS, "anchor_at", "dialect"):
            fields.pop(other, None)
    is_other_line = kind == "cron" and changes["cron"] != fields.get("cron")
    if is_other_line and fields.get("dialect") == "cron" and is_refused(fields["cron"]):
        del fields["dialect"]
    fields |= changes
    rule = {field: value for field, value in fields.items() if value is not None}
    is_known = kind is None and "dialect" not in changes
    return schedule(now=now, seed=seed_of(view.tenant, name, view.id), is_known=is_known, **rule)


def _recurrence(given: dict[str, Any], stored: str | None) -> Recurrence | None:
    changes: dict[str, Any] = {}
    if "overlap" in given:
        changes["overlap"] = overlap_of(given["overlap"])
    if "catch_up" in given:
        changes["catch_up"] = catch_up_of(given["catch_up"])
    if "on_resume" in given:
        changes["on_resume"] = given["on_resume"] or "skip"
    if "pause_after" in given:
        changes["pause_after"] = given["pause_after"]
    new = msgspec.structs.replace(recurrence_of(stored), **changes)
    return None if new == Recurrence() else new
