"""`POST /v1/jobs/batch`: many jobs, all or nothing, or with `?partial=true` the valid ones and a problem for each of the
others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

import msgspec
from litestar import Response

from sexton import wire
from sexton.api.answers.problems import Refused, document, invalid, over_limit, pointer, refusal
from sexton.api.answers.responses import answer
from sexton.api.busy_resources import LockedResource
from sexton.api.known_tasks import warning
from sexton.api.lock_waiters import busy_problem
from sexton.api.locked_requests import busy_schedule, locked_schedule, naming_schedules
from sexton.api.openapi import examples
from sexton.api.openapi.description import Answer, Body, Operation
from sexton.api.requests.bodies import JSON, NDJSON, body_of, decoded, malformed
from sexton.api.requests.parameters import query_of
from sexton.api.requests.queries import BatchQuery
from sexton.api.requests.submissions import check_job, schedule_of, submission_of, trace_of
from sexton.api.state import ApiRequest, ApiState, caller_of, request_id_of, state_of
from sexton.domain.job import BATCH_LIMIT, Submission
from sexton.domain.schedule.document import OnName, ScheduleDocument, warnings_of
from sexton.errors import (
    AlreadyExists,
    Contention,
    DataRefused,
    InvalidSubmission,
    KeyBusy,
    KeyReused,
    LimitExceeded,
)
from sexton.operations.caller import Caller
from sexton.operations.submit import Document, submit_each
from sexton.operations.submit import submit as submit_all
from sexton.store import clock as database_clock
from sexton.store.database import Connection
from sexton.store.work.jobs import Submitted, Tried
from sexton.wire import Fault

operation = partial(Operation, tag="jobs")

BODY_LIMIT = 32 * 1024 * 1024
FAULTS_LIMIT = 100  # this many of the wrong items are named
_SLICE = 1_000  # jobs per try when the database may reject one of them
_EACH_SLICE = 500  # jobs of a slice that met a lock: each is tried by itself, in one round trip
_OF_ONE = (AlreadyExists, KeyReused, KeyBusy, DataRefused, Contention, LimitExceeded, InvalidSubmission)
# A batch has met a lock: from then on its schedules wait for none.
_HASTILY = "SET LOCAL sexton.schedule_lock_timeout = '1ms'"
WAITING_S = 2.0  # for all jobs of a batch that have to wait for other transactions
_YIELD_AFTER = 200  # jobs checked before other callers get their turn
JUDGING_S = 10.0  # for all schedules of a batch together: only a hostile batch takes longer

Checked = Document | Refused


@operation(
    "POST /v1/jobs/batch",
    id="submitJobs",
    summary=f"Submit up to {BATCH_LIMIT:,} jobs",
    description=(
        "A JSON array, or one JSON object per line. All or nothing: if one job is wrong, nothing is written and the "
        "answer names it (`/9/delay`). With `partial=true` the valid ones are written and each of the others has its problem. "
        "One-time and recurring jobs may be mixed; with `on_name=update` this creates and updates named schedules."
    ),
    query=BatchQuery,
    body=Body({JSON: list[wire.JobRequest], NDJSON: bytes}, examples.BATCH, limit=BODY_LIMIT),
    headers=("traceparent",),
    answers={
        201: Answer("All were submitted.", wire.Batch),
        200: Answer("Partial: some were rejected; each has its problem.", wire.Batch),
    },
    problems=(409, 429),
)
async def submit(request: ApiRequest) -> Response[bytes]:
    query, state = query_of(request, BatchQuery), state_of(request)
    body, media_type = await body_of(request, JSON, NDJSON)
    items = _lines(body) if media_type == NDJSON else _elements(body)
    if len(items) > BATCH_LIMIT:
        detail = f"{len(items):,} jobs, the limit is {BATCH_LIMIT:,}; send them in several batches"
        raise Refused("too_large", detail, [Fault(pointer="", detail=detail)])
    caller = caller_of(request)
    now = await _now(state)
    checked = await _judge(state, caller, items, query.on_name, trace_of(request), now)
    warnings = await _judge_tasks(state, checked)
    doubts = await _doubts(checked, now)
    if not query.partial:
        documents = _all_or_none(checked)
        schedules = {pointer(index): one for index, one in enumerate(documents) if isinstance(one, ScheduleDocument)}
        async with naming_schedules(state, schedules):
            stored: Sequence[Submitted | Refused] = await _together(state, caller, documents)
    else:
        stored = await _one_by_one_if_needed(state, caller, checked)
    result = _batch(stored, warnings, doubts, request_id_of(request))
    return answer(result, status=200 if result.refused_count else 201)


def _elements(body: bytes) -> Sequence[msgspec.Raw | bytes]:
    try:
        return msgspec.json.decode(body, type=list[msgspec.Raw])
    except msgspec.ValidationError:
        raise invalid("", "send an array of jobs, or one job per line as application/x-ndjson") from None
    except msgspec.DecodeError as error:
        raise malformed(error) from None
    except RecursionError:
        raise invalid("", "nested too deeply") from None


def _lines(body: bytes) -> Sequence[msgspec.Raw | bytes]:
    """One job per line; empty lines are not counted."""
    return [line for line in body.split(b"\n") if line.strip()]


async def _now(state: ApiState) -> datetime:
    async with state.database.connection() as connection:
        return await database_clock.now(connection, now=state.clock.database_now())


async def _judge(
    state: ApiState,
    caller: Caller,
    items: Sequence[msgspec.Raw | bytes],
    on_name: OnName,
    trace: str | None,
    now: datetime,
) -> list[Checked]:
    """Each job, or what is wrong with it. Other callers get their turn in between, and the time of a batch is limited."""
    checked: list[Checked] = []
    begun_s, judged_count, rest_at = state.clock.monotonic(), 0, 1
    for index, item in enumerate(items):
        if index % _YIELD_AFTER == _YIELD_AFTER - 1:
            await asyncio.sleep(0)
        try:
            asked = decoded(item, wire.JobRequest, check_job)
            if asked.is_recurring:
                judged_count += 1
                checked.append(schedule_of(asked, now=now, on_name=on_name, submitted_by=caller.actor, trace=trace))
            else:
                checked.append(submission_of(asked, submitted_by=caller.actor, trace=trace))
        except Refused as refused:
            checked.append(refused)
        if judged_count >= rest_at:
            rest_at += _YIELD_AFTER
            await asyncio.sleep(0)
            if state.clock.monotonic() - begun_s > JUDGING_S:
                raise Refused(
                    "too_large", f"the check of {judged_count:,} schedules took too long; send them in several batches"
                )
    return checked


async def _judge_tasks(state: ApiState, checked: list[Checked]) -> list[str]:
    """Warnings for tasks that no live worker knows; under `strict_tasks` their jobs are rejected, in place."""
    tasks = {one.task for one in checked if not isinstance(one, Refused)}
    unknown = await state.known_tasks.unknown(tasks) if tasks else set()
    if not state.settings.strict_tasks:
        return [warning(task) for task in sorted(unknown)[:FAULTS_LIMIT]]
    for index, one in enumerate(checked):
        if not isinstance(one, Refused) and one.task in unknown:
            checked[index] = invalid("/handler", f"no live worker knows the task {one.task!r}, and strict_tasks is on")
    return []


async def _doubts(checked: Iterable[Checked], now: datetime) -> dict[int, list[str]]:
    """The warnings about the first `FAULTS_LIMIT` jobs that have any, by their place in the batch. Other callers get their
    turn."""
    found: dict[int, list[str]] = {}
    for index, one in enumerate(checked):
        if index % _YIELD_AFTER == _YIELD_AFTER - 1:
            await asyncio.sleep(0)
        if isinstance(one, ScheduleDocument) and (doubts := warnings_of(one, after=now)):
            found[index] = doubts
            await asyncio.sleep(0)  # two schedules were searched for their next fires
            if len(found) == FAULTS_LIMIT:
                break
    return found


def _all_or_none(checked: Iterable[Checked]) -> list[Document]:
    good: list[Document] = []
    faults, codes = [], []
    for index, one in enumerate(checked):
        if not isinstance(one, Refused):
            good.append(one)
            continue
        codes.append(one.code)
        own = one.faults or [Fault(pointer="", detail=one.detail)]
        faults += [Fault(pointer=pointer(index) + fault.pointer, detail=fault.detail) for fault in own]
    if faults:
        code = codes[0] if len(set(codes)) == 1 else "invalid"
        count = f"{len(codes):,} of the jobs are wrong" if len(codes) > 1 else "one job is wrong"
        raise Refused(code, f"{count}, and nothing was written; {faults[0].pointer}: {faults[0].detail}", faults[:FAULTS_LIMIT])
    return good


async def _together(state: ApiState, caller: Caller, documents: Sequence[Document]) -> list[Submitted]:
    if not documents:
        return []
    try:
        async with state.database.transaction() as connection:
            return await _submit(state, caller, connection, documents)
    except KeyReused as error:
        keys = [getattr(one, "key", None) for one in documents]
        at = next((i for i, key in enumerate(keys) if key and f'"{key}"' in str(error)), None)
        fault = Fault(pointer="" if at is None else pointer(at, "idempotency_key"), detail=str(error))
        raise Refused(error.code, f"nothing was written; {error}", [fault]) from None
    except LimitExceeded as error:
        owners = [one.tenant or "default" for one in documents]
        raise over_limit(error, pointer(owners.index(error.tenant), "tenant") if error.tenant in owners else "") from None
    except InvalidSubmission as error:  # only the message tells which of them it is
        detail = f"nothing was written; {error}"
        raise Refused("invalid", detail, [Fault(pointer="", detail=str(error))]) from None
    except AlreadyExists as error:
        raise Refused(error.code, f"nothing was written; {error}", [Fault(pointer="", detail=str(error))]) from None
    except (KeyBusy, Contention) as error:
        if state.may_wait:
            raise await _named(state, caller, documents, error) from None
        raise  # it is tried again where it may wait


async def _named(state: ApiState, caller: Caller, documents: Sequence[Document], error: Exception) -> Exception:
    """The problem of the first job that waits for another transaction. The look for it submits nothing."""
    once = {index: one for index, one in enumerate(documents) if isinstance(one, Submission)}
    tried: list[Tried] = []
    with suppress(_OnlyALook):
        async with state.database.transaction() as connection:
            tried = await submit_each(connection, caller, list(once.values()), notify=False, now=state.clock.database_now())
            raise _OnlyALook
    waiting = ((index, one.waits_for) for index, one in zip(once, tried, strict=True) if one.waits_for is not None)
    index, waits_for = next(waiting, (None, ""))
    return error if index is None else busy_problem(waits_for or "", once[index], pointer(index))


class _OnlyALook(Exception):
    """Rolls back."""


async def _submit(state: ApiState, caller: Caller, connection: Connection, documents: Sequence[Document]) -> list[Submitted]:
    notify, now = state.settings.notify, state.clock.database_now()
    return await submit_all(connection, caller, documents, notify=notify, now=now)


async def _one_by_one_if_needed(state: ApiState, caller: Caller, checked: Sequence[Checked]) -> list[Submitted | Refused]:
    """The valid ones in large slices; a slice that the database rejects is halved until each faulty job is alone. A slice that
    meets a lock waits for no other: each of its one-time jobs is tried by itself in one round trip, and its schedules are
    halved."""
    results: dict[int, Submitted | Refused] = {index: one for index, one in enumerate(checked) if isinstance(one, Refused)}
    good = [index for index, one in enumerate(checked) if not isinstance(one, Refused)]
    waiting = _known_as_busy(state, checked)
    good = [index for index in good if index not in waiting]
    slices = [good[start : start + _SLICE] for start in range(0, len(good), _SLICE)]
    has_waited = False
    while slices:
        part = slices.pop()
        documents = [one for index in part if not isinstance(one := checked[index], Refused)]
        try:
            async with state.database.transaction() as connection:
                if has_waited:
                    await connection.execute(_HASTILY)
                stored = await _submit(state, caller, connection, documents)
        except _OF_ONE as error:
            is_locked = isinstance(error, KeyBusy | Contention)
            has_waited |= is_locked
            if len(part) > 1 and is_locked:
                once = [index for index in part if isinstance(checked[index], Submission)]
                for start in range(0, len(once), _EACH_SLICE):
                    slices += await _each(state, caller, checked, once[start : start + _EACH_SLICE], results, waiting)
                slices += _halves([index for index in part if not isinstance(checked[index], Submission)])
            elif len(part) > 1:
                slices += _halves(part)
            elif isinstance(error, KeyBusy | Contention):
                waiting[part[0]] = "key" if isinstance(error, KeyBusy) else error.waits_for or ""
                if (resource := _locked_schedule(checked[part[0]])) is not None:
                    state.locked_requests.remember(resource)
            else:
                results[part[0]] = _problem(error)
        else:
            results |= zip(part, stored, strict=True)
    results |= await _wait_for(state, caller, checked, waiting)
    return [results[index] for index in range(len(checked))]


def _halves(part: list[int]) -> list[list[int]]:
    half = len(part) // 2
    return [some for some in (part[:half], part[half:]) if some]


def _locked_schedule(one: Checked) -> LockedResource | None:
    return locked_schedule(one) if isinstance(one, ScheduleDocument) else None


def _known_as_busy(state: ApiState, checked: Sequence[Checked]) -> dict[int, str]:
    """Schedules that another transaction held recently: they wait apart at once."""
    resources = ((index, _locked_schedule(one)) for index, one in enumerate(checked))
    return {index: "" for index, one in resources if one is not None and state.locked_requests.is_busy(one)}


async def _each(
    state: ApiState,
    caller: Caller,
    checked: Sequence[Checked],
    part: Sequence[int],
    results: dict[int, Submitted | Refused],
    waiting: dict[int, str],
) -> list[list[int]]:
    """Rule "a waiting caller leaves the group": writes those that need not wait. Returns those that the database rejects, each
    to be tried again for its problem."""
    once = {index: one for index in part if isinstance(one := checked[index], Submission)}
    async with state.database.transaction() as connection:
        tried = await submit_each(
            connection, caller, list(once.values()), notify=state.settings.notify, now=state.clock.database_now()
        )
    rejected = []
    for index, (job_id, created, waits_for) in zip(once, tried, strict=True):
        if job_id is not None:
            results[index] = Submitted(job_id, bool(created))
        elif waits_for is not None:
            waiting[index] = waits_for
        else:
            rejected.append([index])
    return rejected


async def _wait_for(
    state: ApiState, caller: Caller, checked: Sequence[Checked], waiting: Mapping[int, str]
) -> dict[int, Submitted | Refused]:
    """Rule "a waiting caller leaves the group": jobs that another transaction keeps waiting, one after the other, in the
    waiting pool, within one deadline."""
    results: dict[int, Submitted | Refused] = {}
    until_s = state.clock.monotonic() + WAITING_S
    for index, kind in waiting.items():
        one = checked[index]
        assert not isinstance(one, Refused), "it was sent to the database"  # noqa: S101
        try:
            if state.clock.monotonic() >= until_s:
                raise Contention("the other jobs of this batch have already waited")
            async with (
                state.locked_requests.turn(_locked_schedule(one), until_s=until_s) as database,
                database.transaction() as connection,
            ):
                (results[index],) = await _submit(state, caller, connection, [one])
        except (KeyBusy, Contention):
            results[index] = busy_problem(kind, one) if isinstance(one, Submission) else busy_schedule(one)
        except _OF_ONE as error:
            results[index] = _problem(error)
    return results


def _problem(error: Exception) -> Refused:
    return refusal(error) or Refused("invalid", str(error))


def _batch(
    stored: Sequence[Submitted | Refused], warnings: Sequence[str], doubts: Mapping[int, Sequence[str]], request_id: str
) -> wire.Batch:
    items = [
        wire.BatchItem(index=index, problem=document(one, request_id))
        if isinstance(one, Refused)
        else wire.BatchItem(index=index, id=one.id, created=one.created, warnings=doubts.get(index, ()))
        for index, one in enumerate(stored)
    ]
    return wire.Batch(
        items=items,
        created_count=sum(item.created is True for item in items),
        existing_count=sum(item.created is False for item in items),
        refused_count=sum(item.problem is not None for item in items),
        warnings=warnings,
    )


HANDLERS = [submit]
