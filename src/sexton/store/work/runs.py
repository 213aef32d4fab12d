"""Live work: promote, claim, finish, and find abandoned runs. Every write after a claim carries the lease."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.domain.partition import Scan
from sexton.domain.run import Claimed, Lease, Previous, Report
from sexton.store import uuid7
from sexton.store.database import APPLICATION_NAMES, Connection, Row
from sexton.store.sql import statements

_SQL = statements(__name__)
_CLAIM, _FINISH, _PROMOTE = _SQL["claim"], _SQL["finish"], _SQL["promote"]
_encode = msgspec.json.Encoder().encode
_NO_COLUMNS = (None,) * 6
FEW = 25  # with fewer plain reports, the second statement of a batch costs more than it saves


class Promoted(NamedTuple):
    promoted_count: int
    queues: list[str]
    next_due_s: float | None  # seconds until the next waiting run is due
    to_decide: bool  # recurring jobs have runs that are due or blocked
    to_release: bool  # runs wait for a limit
    to_tend: bool  # queues have ageing or a release rate
    first_due_at: datetime | None  # of the promoted runs
    last_due_at: datetime | None


class Finished(NamedTuple):
    run_id: UUID
    execution_id: UUID
    state: str | None  # null: the run has ended


class LockHolder(NamedTuple):
    """The session that has locked a row."""

    pid: int
    role: str | None
    application_name: str | None
    began_at: datetime | None  # its transaction

    @property
    def is_ours(self) -> bool:
        """A session of Sexton, which waits itself or belongs to `ctx.transaction()`: not one to end."""
        return self.application_name in APPLICATION_NAMES

    def __str__(self) -> str:
        since = "" if self.began_at is None else f", in a transaction since {self.began_at:%Y-%m-%d %H:%M:%SZ}"
        return f"session {self.pid} of {self.role} ({self.application_name or 'no application name'}){since}"


class Recorded(NamedTuple):
    """The history of an attempt."""

    status: str
    reason: str | None
    ending: str | None  # of the job, if the attempt was its last


class RecordedOutcome(NamedTuple):
    recorded: Recorded | None
    held: bool


class _Replaced(NamedTuple):
    """What a run uses instead of the current definition of its job."""

    payload_json: str
    policy_json: str | None
    is_older: bool  # of an earlier version; otherwise the run has only its own payload


class Overdue(NamedTuple):
    """A run that another process must end: its fence, and how long it was held."""

    lease: Lease
    held_s: float | None
    cancel_requested: bool = False
    held_count: int = 1  # runs that its lost worker held, this one included
    with_parent: bool = False  # the worker was in quarantine and was lost together with the one that had started it
    lost_reason: str | None = None  # what the parent of the worker saw
    task: str | None = None  # of a run whose worker was lost


async def claim(
    connection: Connection,
    *,
    worker_id: UUID,
    queues: Sequence[str],
    tasks: Sequence[str],
    limit: int,
    grace_s: float,
    ahead: bool = False,
    turns: str = "{}",
    now: datetime | None = None,
) -> list[Claimed]:
    """`queues` in the order in which they are searched. `ahead` of a free slot: no at-most-once runs, and none with a limit.
    `turns` says where the last claim of this worker stopped (domain.fairness)."""
    rows = await connection.fetch(_CLAIM, now, worker_id, queues, tasks, limit, grace_s, ahead, turns)
    return await _claimed(connection, rows)


async def claim_suspects(
    connection: Connection,
    worker_id: UUID,
    *,
    queues: Sequence[str],
    tasks: Sequence[str],
    wanted: int,
    grace_s: float,
    now: datetime | None = None,
) -> list[Claimed]:
    """Rule "suspects apart": as many suspects as may be executed together with those that the worker holds."""
    rows = await connection.fetch(_SQL["claim_suspects"], now, worker_id, queues, tasks, wanted, grace_s)
    return await _claimed(connection, rows)


async def batch_facts(connection: Connection, run_ids: Sequence[UUID]) -> dict[UUID, tuple[int | None, str | None]]:
    """By run: the most runs of its next call, and the key of its limit. Runs that have neither are left out."""
    rows = await connection.fetch(_SQL["batch_facts"], list(run_ids))
    return {row["id"]: (row["batch_limit"], row["limit_key"]) for row in rows}


async def count_suspects(
    connection: Connection, *, queues: Sequence[str], tasks: Sequence[str], limit: int = 100, now: datetime | None = None
) -> int:
    """How many suspects of these queues and tasks wait for a worker in quarantine."""
    (row,) = await connection.fetch(_SQL["count_suspects"], now, queues, tasks, limit)
    return int(row["count"])


async def _claimed(connection: Connection, rows: Sequence[Row]) -> list[Claimed]:
    claimed = [Claimed(Lease(*row[:11]), *row[11:]) for row in map(tuple, rows)]
    # One-time jobs have no previous fire, and pay nothing for it.
    recurring = [one for one in claimed if uuid7.is_recurring(one.lease.job_id)]
    return await _with_their_past(connection, claimed, recurring) if recurring else claimed


async def _with_their_past(connection: Connection, claimed: list[Claimed], recurring: list[Claimed]) -> list[Claimed]:
    """For each run: the last attempt of the previous fire, the version of the job that it belongs to, and its own payload."""
    jobs, ids = [one.lease.job_id for one in recurring], [one.lease.run_id for one in recurring]
    newest = uuid7.floor(recurring[0].claimed_at + timedelta(hours=1))
    of_backfill = [one.fire_at if one.lease.origin == "backfill" else None for one in recurring]
    rows = await connection.fetch(_SQL["previous"], jobs, ids, newest, of_backfill)
    before = {row["run_id"]: Previous(row["status"], row["fire_at"]) for row in rows}
    rows = await connection.fetch(_SQL["replaced"], jobs, ids, [one.job_version for one in recurring])
    replaced = {row["run_id"]: _Replaced(row["payload"], row["policy"], row["is_older"]) for row in rows}
    return [_of_its_version(one, before.get(one.lease.run_id), replaced.get(one.lease.run_id)) for one in claimed]


def _of_its_version(claimed: Claimed, previous: Previous | None, replaced: _Replaced | None) -> Claimed:
    if replaced is None:
        return msgspec.structs.replace(claimed, previous=previous)
    lease = claimed.lease
    if replaced.is_older:
        lease = msgspec.structs.replace(lease, policy_json=replaced.policy_json)
    return msgspec.structs.replace(claimed, lease=lease, payload_json=replaced.payload_json, previous=previous)


async def finish(connection: Connection, reports: Sequence[Report], *, now: datetime | None = None) -> list[Finished]:
    """Ends or returns runs. A run that is not in the result no longer has the fence that its report names."""
    plain, others = _divided(reports)
    rows = await connection.fetch(_FINISH, now, *_columns(plain), _documents(others) if others else None)
    return [Finished(*row) for row in rows]


async def finish_each(
    connection: Connection, reports: Sequence[Report], *, now: datetime | None = None
) -> tuple[list[Finished], set[UUID]]:
    """As `finish`, each report by itself, in one round trip. Also returns the runs that another transaction has locked: their
    reports changed nothing (rule "a waiting caller leaves the group")."""
    rows = await connection.fetch(_SQL["finish_each"], now, _documents(reports))
    return [Finished(*row[:3]) for row in map(tuple, rows) if not row[3]], {row["run_id"] for row in rows if row["is_locked"]}


async def lock_holders(connection: Connection, run_ids: Sequence[UUID]) -> dict[UUID, LockHolder]:
    """By run. A run that no single session has locked is left out."""
    rows = await connection.fetch(_SQL["lock_holders"], list(run_ids))
    return {row["run_id"]: LockHolder(*list(row)[1:]) for row in rows}


def finish_statement(
    reports: Sequence[Report], *, now: datetime | None = None
) -> tuple[str, tuple[datetime | str | None, ...]]:
    """As `finish`, on a connection of the caller, whose driver may have no arrays."""
    return _FINISH, (now, *_NO_COLUMNS, _documents(reports))


def _divided(reports: Sequence[Report]) -> tuple[list[Report], list[Report]]:
    """The plain reports and the others. A few plain ones among others are cheaper together with them."""
    in_order = sorted(reports, key=_by_id)  # rule "lock in id order"
    plain = [one for one in in_order if one.is_plain]
    if len(plain) == len(in_order):
        return plain, []
    return ([], in_order) if len(plain) < FEW else (plain, [one for one in in_order if not one.is_plain])


def _documents(reports: Sequence[Report]) -> str:
    """Sorted for rule "lock in id order": where the reports lead the join, runs are locked in the order of the reports."""
    return _encode(sorted(reports, key=_by_id)).decode()


def _columns(plain: Sequence[Report]) -> tuple[Sequence[object] | str | None, ...]:
    if not plain:
        return _NO_COLUMNS
    ids, workers, tokens, started, took, results = zip(
        *((one.run_id, one.worker_id, one.token, one.started_s, one.took_s, one.result) for one in plain), strict=True
    )
    return ids, workers, tokens, started, took, None if results.count(None) == len(results) else _encode(results).decode()


async def promote(
    connection: Connection, scan: Scan, *, since: datetime | None = None, now: datetime | None = None
) -> Promoted:
    """Runs that were due before `since` are not looked at."""
    (row,) = await connection.fetch(_PROMOTE, now, list(scan.partitions), scan.limit, scan.overdue_s, since)
    return Promoted(
        row["promoted_count"],
        row["queues"],
        row["next_due_s"],
        row["to_decide"],
        row["to_release"],
        row["to_tend"],
        row["first_due_at"],
        row["last_due_at"],
    )


async def ready_queues(connection: Connection) -> list[str]:
    """The queues with ready runs. It scans all ready runs, so it is only for tests and for people."""
    return [row["queue"] for row in await connection.fetch(_SQL["ready_queues"])]


async def announce(connection: Connection, queues: Collection[str], *, due_soon: bool = False) -> None:
    await connection.fetch(_SQL["announce"], list(queues), due_soon)


async def abandoned(connection: Connection, *, lease_s: float, limit: int, now: datetime | None = None) -> list[Overdue]:
    """Locks and returns runs whose worker is dead; the caller ends them in the same transaction."""
    rows = await connection.fetch(_SQL["abandoned"], now, lease_s, limit)
    return [
        _overdue(row)._replace(
            cancel_requested=row["cancel_requested"],
            held_count=row["held_count"],
            with_parent=row["with_parent"],
            lost_reason=row["lost_reason"],
            task=row["task"],
        )
        for row in rows
    ]


async def overrunning(connection: Connection, *, limit: int, now: datetime | None = None) -> list[Overdue]:
    """Locks and returns runs past timeout and grace, even if their worker is alive."""
    rows = await connection.fetch(_SQL["overrunning"], now, limit)
    return [_overdue(row)._replace(cancel_requested=row["cancel_requested"]) for row in rows]


async def expired(connection: Connection, *, limit: int, now: datetime | None = None) -> list[Overdue]:
    """Locks and returns runs that have not started and must not start any more."""
    return [Overdue(Lease(*row), held_s=None) for row in await connection.fetch(_SQL["expired"], now, limit)]


async def of_job(connection: Connection, job_id: UUID) -> list[Lease]:
    return [Lease(*row) for row in await connection.fetch(_SQL["of_job"], job_id)]


async def request_cancel(connection: Connection, run_ids: Collection[UUID], *, now: datetime | None = None) -> list[UUID]:
    return [row["id"] for row in await connection.fetch(_SQL["request_cancel"], now, list(run_ids))]


async def announce_cancel(connection: Connection) -> None:
    """Makes workers check at once which runs they must stop."""
    await connection.fetch("SELECT pg_notify('sexton_cancel', '')")


async def recorded_outcome(connection: Connection, claimed: Claimed, status: str | None = None) -> RecordedOutcome:
    """The result of an earlier report with this status (None: with any status), after a report that changed nothing."""
    lease, since = claimed.lease, uuid7.hour_before(uuid7.floor(claimed.claimed_at))
    (row,) = await connection.fetch(
        _SQL["recorded_outcome"], lease.run_id, lease.job_id, lease.worker_id, lease.token, since, status
    )
    status, reason, ending, held = row
    return RecordedOutcome(None if status is None else Recorded(status, reason, ending), held)


async def tell(connection: Connection, worker_id: UUID, progress: Sequence[object], *, now: datetime | None = None) -> None:
    await connection.fetch(_SQL["tell"], now, worker_id, _encode(progress).decode())


async def make_due(connection: Connection, fences: Sequence[tuple[UUID, int]], *, now: datetime | None = None) -> list[UUID]:
    """Makes those of them that wait for a later time due now. Each is named by its id and the token of its last claim."""
    ids, tokens = zip(*fences, strict=True) if fences else ((), ())
    rows = await connection.fetch(_SQL["make_due"], now, list(ids), list(tokens))
    if rows:
        await announce(connection, (), due_soon=True)
    return [row["id"] for row in rows]


async def forget_output(connection: Connection, *, now: datetime | None = None) -> None:
    await connection.fetch(_SQL["forget_output"], now)


def _by_id(report: Report) -> int:
    return report.run_id.int


def _overdue(row: Row) -> Overdue:
    return Overdue(Lease(*row[:13]), row["held_s"])
