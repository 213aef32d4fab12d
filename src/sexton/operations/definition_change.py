"""Computes the new definition of a one-time job from an edit. Nothing is written here."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from sexton.domain.job import TIMEOUT_S, Lane
from sexton.domain.targets import Target, in_place_of
from sexton.store.work.edits import Definition


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What to change, already checked. Unset fields keep their value. Null resets a field to the default of the task, then of
    Sexton.

    At most one of `run_at` and `delay_s`; null in either makes the job due now."""

    payload: msgspec.Raw | UnsetType = UNSET
    run_at: datetime | UnsetType | None = UNSET
    delay_s: float | UnsetType | None = UNSET
    name: str | UnsetType | None = UNSET
    queue: str | UnsetType | None = UNSET
    lane: int | UnsetType | None = UNSET
    timeout_s: float | UnsetType | None = UNSET  # 0: no limit
    at_most_once: bool | UnsetType | None = UNSET
    policy: Mapping[str, Any] = {}  # by the keys of the policy document, including the limit
    tags: tuple[str, ...] | UnsetType | None = UNSET
    target: Target | UnsetType | None = UNSET  # of the same kind as before; null: none

    @property
    def moves_limit(self) -> bool:
        """The key of its limit may change: through another limit, or another payload."""
        return "limit" in self.policy or self.payload is not UNSET


def changed(old: Definition, changes: Changes) -> Definition:
    options: dict[str, Any] = {} if old.options_json is None else msgspec.json.decode(old.options_json)
    timeout_s = old.timeout_s
    if changes.timeout_s is not UNSET:
        timeout_s = options.get("timeout_s", TIMEOUT_S) if changes.timeout_s is None else changes.timeout_s
    return Definition(
        version=old.version + 1,
        queue=_value(changes.queue, old.queue, options.get("queue", "default")),
        lane=_value(changes.lane, old.lane, options.get("lane", Lane.NORMAL)),
        name=_value(changes.name, old.name, None),
        payload_json=old.payload_json if changes.payload is UNSET else bytes(changes.payload).decode(),
        policy_json=_changed_policy(old.policy_json, changes, {**(options.get("policy") or {}), "limit": options.get("limit")}),
        timeout_s=timeout_s or None,
        tags=_value(None if changes.tags == () else changes.tags, old.tags, None),
        at_most_once=_value(changes.at_most_once, old.at_most_once, options.get("at_most_once", False)),
        options_json=old.options_json,
    )


def _changed_policy(old_json: str | None, changes: Changes, of_task: dict[str, Any]) -> str | None:
    """Only values that differ from Sexton's defaults are stored, as in a submission."""
    policy: dict[str, Any] = {} if old_json is None else msgspec.json.decode(old_json)
    for part, value in changes.policy.items():
        policy[part] = of_task.get(part) if value is None else msgspec.to_builtins(value)
    if changes.target is not UNSET:
        old = msgspec.convert(policy.get("target"), Target | None)
        policy["target"] = msgspec.to_builtins(in_place_of(old, changes.target))
    chosen = {part: value for part, value in policy.items() if value is not None}
    return msgspec.json.encode(chosen).decode() if chosen else None


def _value(change: Any, old: Any, default: Any) -> Any:
    if change is UNSET:
        return old
    return default if change is None else change
