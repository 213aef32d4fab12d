"""Recurring jobs from Python: checks the document of a schedule and writes it to the database.

If the name already exists, the schedule is updated. An unchanged schedule is not written again.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

import msgspec

from sexton.clock import Clock, host_now
from sexton.domain.fault import Invalid
from sexton.domain.job import BATCH_LIMIT
from sexton.domain.schedule import dialects, schedule
from sexton.domain.schedule.catch_up import CatchUp
from sexton.domain.schedule.catch_up import catch_up as checked_catch_up
from sexton.domain.schedule.document import ScheduleDocument, document
from sexton.domain.schedule.overlap import Overlap
from sexton.domain.schedule.overlap import overlap as checked_overlap
from sexton.domain.schedule.recurrence import Recurrence, seed_of
from sexton.domain.schedule.rule import Schedule
from sexton.errors import AmbiguousCron, InvalidSubmission
from sexton.operations.recurring.recurring_jobs import submit_many
from sexton.store.postgres import caller_connection
from sexton.store.work import schedules

from .background import Background
from .caller import APP
from .error_translation import submission_faults
from .options import BEHAVIOUR, RULE
from .pools import Pools
from .request import Template, given_options

_PAUSE_AFTER_LIMIT = 10_000
_RULES_LIMIT = 4_096
_LONG_AGO = datetime(1970, 1, 2, tzinfo=UTC)
_NO_ID = UUID(int=0)

K = TypeVar("K", bound=msgspec.Struct)


class Scheduled(NamedTuple):
    """The result of a schedule call. On the caller's connection the schedule exists only after the caller has committed."""

    id: UUID
    created: bool  # false: the name already exists, and this is its job
    changed: bool  # false: the stored schedule is the same


class ScheduleRequest(NamedTuple):
    """Made by `task.schedule_request(…)` or `app.schedule_request(…)`, taken by `app.schedule_many`."""

    document: ScheduleDocument


class ScheduleWay(Protocol):
    """Takes schedules instead of the database, in a test."""

    def schedule(self, requests: Sequence[ScheduleRequest]) -> list[Scheduled]: ...


class Schedules:
    def __init__(self, pools: Pools, background: Background, clock: Clock) -> None:
        self._pools, self._background, self._clock = pools, background, clock
        self._rules: dict[tuple[str, str], tuple[Schedule, tuple[str, ...]]] = {}
        self.stand_in: ScheduleWay | None = None

    def request(self, template: Template, payload: Any, options: Mapping[str, Any]) -> ScheduleRequest:
        return ScheduleRequest(self._document(template, payload, options, self._clock.database_now() or host_now()))

    def declared(self, template: Template, payload: Any, options: Mapping[str, Any]) -> ScheduleDocument:
        """A schedule that is declared in code. An end in the past is not an error: it was valid before."""
        try:
            return self._document(template, payload, options, host_now())
        except InvalidSubmission as fault:
            try:
                return self._document(template, payload, options, _LONG_AGO)
            except InvalidSubmission:
                raise fault from None

    async def write(self, requests: Sequence[ScheduleRequest], connection: object | None = None) -> list[Scheduled]:
        """All of them or none."""
        documents = _distinct(requests)
        if not documents or self.stand_in is not None:
            return self._unsent(requests)
        with submission_faults():
            if connection is None:
                return await self._over_own_pool(documents)
            return _answers(await caller_connection.run(connection, schedules.SUBMIT, *self._arguments(documents)))

    def write_sync(self, requests: Sequence[ScheduleRequest], connection: object | None = None) -> list[Scheduled]:
        if connection is None:
            return self._background.run(self.write(requests))
        documents = _distinct(requests)
        if not documents or self.stand_in is not None:
            return self._unsent(requests)
        with submission_faults():
            return _answers(caller_connection.run_sync(connection, schedules.SUBMIT, *self._arguments(documents)))

    def _unsent(self, requests: Sequence[ScheduleRequest]) -> list[Scheduled]:
        """Without the database: an empty list, or the result of `stand_in` in a test."""
        return self.stand_in.schedule(requests) if requests and self.stand_in is not None else []

    async def _over_own_pool(self, documents: Sequence[ScheduleDocument]) -> list[Scheduled]:
        now = self._clock.database_now()
        async with (await self._pools.here()).transaction() as connection:
            return [Scheduled(*one) for one in await submit_many(connection, APP, documents, now=now)]

    def _arguments(self, documents: Sequence[ScheduleDocument]) -> tuple[Any, ...]:
        """Of the single statement on the caller's connection. The planner is notified when the caller commits."""
        if len(documents) > BATCH_LIMIT:
            raise InvalidSubmission(
                "",
                f"{len(documents):,} schedules in one call; the limit on your own connection is {BATCH_LIMIT:,}; "
                "write them in several calls inside your transaction",
            )
        return msgspec.json.encode(documents).decode(), self._clock.database_now()

    def _document(self, template: Template, payload: Any, options: Mapping[str, Any], now: datetime) -> ScheduleDocument:
        given = given_options(options)
        of_rule = {name: given.pop(name) for name in RULE & given.keys()}
        behaviour = {name: given.pop(name) for name in BEHAVIOUR & given.keys()}
        job = template.job(payload, given)
        with submission_faults():
            seed = seed_of(job.tenant or "default", job.name, _NO_ID)
            return document(job, self._rule(of_rule, seed, now), recurrence(**behaviour))

    def _rule(self, fields: Mapping[str, Any], seed: str, now: datetime) -> Schedule:
        """Cached, because most of 50,000 schedules share a few rules. The anchor is left open unless it was given, so that the
        same schedule submitted twice is equal."""
        key = (repr(sorted(fields.items())), seed if "H" in str(fields.get("cron")).upper() else "")
        rule, doubts = self._rules.get(key, (None, ()))
        if rule is None:
            rule = schedule(now=now, seed=seed, **fields)
            doubts = tuple(dialects.warnings(rule, after=now, seed=seed))
            if fields.get("anchor_at") is None:
                rule = msgspec.structs.replace(rule, anchor_at=None)
            if len(self._rules) >= _RULES_LIMIT:
                self._rules.clear()
            if now != _LONG_AGO:
                self._rules[key] = rule, doubts
        for doubt in doubts:
            warnings.warn(doubt, AmbiguousCron, stacklevel=_outside())
        return rule


def recurrence(
    *,
    overlap: str | Overlap | Mapping[str, Any] = "skip",
    catch_up: str | CatchUp | Mapping[str, Any] = "latest",
    on_resume: str = "skip",
    pause_after: int | None = None,
) -> Recurrence:
    """The checked policies; `Invalid` names the field and the fix."""
    if on_resume not in ("skip", "latest", "all"):
        raise Invalid("on_resume", f"{on_resume!r} is unknown; use skip, latest or all")
    if pause_after is not None and (type(pause_after) is not int or not 1 <= pause_after <= _PAUSE_AFTER_LIMIT):
        raise Invalid("pause_after", f"{pause_after!r} must be between 1 and {_PAUSE_AFTER_LIMIT:,}")
    return Recurrence(
        overlap=_policy("overlap", Overlap, checked_overlap, overlap, '"queue", or {"policy": "queue", "max_queued": 3}'),
        catch_up=_policy("catch_up", CatchUp, checked_catch_up, catch_up, '"all", or {"policy": "all", "window": "2h"}'),
        on_resume="skip" if on_resume == "skip" else "latest" if on_resume == "latest" else "all",
        pause_after=pause_after,
    )


def _policy(field: str, kind: type[K], check: Callable[..., K], given: object, example: str) -> K:
    """From the caller's value: the name of a policy, an object with its numbers, or the policy itself."""
    names = kind.__struct_encode_fields__
    match given:
        case kind():
            return check(**dict(zip(names, msgspec.structs.astuple(given), strict=True)))
        case str():
            return check(given)
        case Mapping() if set(given) <= set(names):
            return check(**given)
        case _:
            raise Invalid(field, f"write {example}")


def _distinct(requests: Sequence[ScheduleRequest]) -> list[ScheduleDocument]:
    documents = [request.document for request in requests]
    names = [(one.tenant or "default", one.name) for one in documents if one.name is not None]
    if len(set(names)) < len(names):
        ((tenant, name), _), *_ = Counter(names).most_common(1)
        raise InvalidSubmission("/name", f"{name!r} is given twice for tenant {tenant!r}; remove one of them")
    return documents


def _answers(rows: Sequence[tuple[Any, ...]]) -> list[Scheduled]:
    return [
        Scheduled(job_id if isinstance(job_id, UUID) else UUID(job_id), is_new, changed) for job_id, is_new, changed in rows
    ]


def _outside() -> int:
    """The `stacklevel` of the line in the caller's own code."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("sexton."):
        level, frame = level + 1, frame.f_back
    return level
