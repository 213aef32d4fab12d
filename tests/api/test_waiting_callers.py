"""Rule "a waiting caller leaves the group", in an API server: a caller that needs a row that another transaction holds waits
apart from the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import asyncpg
import pytest

from sexton.api import busy_resources, group_commit, lock_waiters, locked_requests
from sexton.api.answers.problems import Refused
from sexton.api.group_commit import GroupCommit
from sexton.api.lock_waiters import Stored
from sexton.api.locked_requests import LockedRequests
from sexton.clock import ManualClock, SystemClock
from sexton.domain.job import Submission, submission
from sexton.errors import KeyBusy
from sexton.store.database import SHARED, Connection, Database, LockTimeouts, Postgres
from sexton.store.postgres import waiting_pool
from tests.api.remote_hand import Hand
from tests.api.support import Api, opened, problem
from tests.rig import NOW

LATE_S = 30.0  # a condition that does not hold after this time has failed

BUSY: dict[str, tuple[str, Submission]] = {
    "key": ("SELECT sexton.submit('a', key => 'k')", submission("a", {}, key="k")),
    "unique": (
        """SELECT sexton.submit_jobs('[{"task": "b", "unique": {"by": ["task", "payload"]}}]')""",
        submission("b", {}, unique=True),
    ),
    "limit": (
        """SELECT sexton.submit_jobs('[{"task": "c", "limit": {"key": "l", "running": 1}}]')""",
        submission("c", {}, limit={"key": "l", "running": 1}),
    ),
    "table": ("LOCK TABLE sexton.job_tags", submission("d", {}, tags=["t"])),
}


@pytest.fixture
async def shared(database_url: str) -> AsyncIterator[Postgres]:
    """Few connections, as in a server with many callers."""
    opened = await Postgres.open(database_url, size=2, timeouts=SHARED)
    yield opened
    await opened.close()


@pytest.fixture
async def api(shared: Postgres) -> AsyncIterator[Api]:
    async with opened(shared) as api:
        yield api


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller waits until the other transaction has ended, however slow this machine is."""

    async def beside(self: Postgres, *, size: int) -> Postgres:
        return await Postgres.open(self.url, size=size, direct=self.direct, timeouts=LockTimeouts(LATE_S))

    monkeypatch.setattr(waiting_pool, "PATIENCE_S", LATE_S)
    monkeypatch.setattr(Postgres, "beside", beside)


@asynccontextmanager
async def held(url: str, *statements: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """In a transaction of another session, which is left open."""
    holder = await asyncpg.connect(url)
    try:
        await holder.execute("BEGIN")
        for statement in statements:
            await holder.execute(statement)
        yield holder
    finally:
        await holder.close()


async def waiting(holder: asyncpg.Connection[Any]) -> int:
    """The number of sessions of this server that wait for a lock."""
    await holder.execute("SELECT pg_stat_clear_snapshot()")
    query = """SELECT count(*) FROM pg_stat_activity
      WHERE datname = current_database() AND application_name = 'sexton' AND wait_event_type = 'Lock'"""
    return int(await holder.fetchval(query))


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(LATE_S):
        while not await holds():  # noqa: ASYNC110  (no notification for this)
            await asyncio.sleep(0.01)


def others(group: GroupCommit, count: int = 20) -> list[asyncio.Task[Stored]]:
    """With keys of their own; otherwise like the submission that has to wait."""
    return [asyncio.create_task(group.submit(submission("a", {}, key=f"own {n}"))) for n in range(count)]


class Counted:
    """Counts the statements of the group; callers that wait have connections of their own."""

    def __init__(self, real: Postgres) -> None:
        self._real, self.count = real, 0

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        self.count += 1
        async with self._real.connection() as connection:
            yield connection

    def transaction(self) -> Any:
        self.count += 1
        return self._real.transaction()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class StoppedClock(SystemClock):
    """By it no commit takes long, and nothing that is busy is forgotten."""

    def monotonic(self) -> float:
        return 0.0


class TestTheGroup:
    @pytest.mark.usefixtures("patience")
    @pytest.mark.parametrize("kind", BUSY)
    async def test_the_others_are_answered_while_one_waits(self, shared: Postgres, database_url: str, kind: str) -> None:
        """C19: for any lock. The waiting caller is answered when the other transaction has ended."""
        statement, busy = BUSY[kind]
        group = GroupCommit(shared, SystemClock(), notify=True)
        async with held(database_url, statement) as holder:
            late = asyncio.create_task(group.submit(busy))
            assert all(stored.created for stored in await asyncio.gather(*others(group)))
            assert not late.done()
            await holder.execute("COMMIT")
            assert (await late).created == (kind in ("limit", "table"))
        await group.close()

    async def test_a_tenant_whose_limits_are_locked_does_not_delay_the_others(
        self, shared: Postgres, database_url: str
    ) -> None:
        """C9: its own submissions are decided by the cached numbers, as before."""
        group = GroupCommit(shared, SystemClock(), notify=True)
        async with shared.connection() as connection:
            await connection.fetch("INSERT INTO sexton.tenants (name, waiting_max, updated_at) VALUES ('t', 100, now())")
        async with held(database_url, "SELECT sexton.submit('a', tenant => 't')"):
            late = asyncio.create_task(group.submit(submission("a", {}, tenant="t")))
            assert all(stored.created for stored in await asyncio.gather(*others(group)))
            assert (await late).created
            assert group._lock_waiters.busy(submission("a", {}, tenant="t")) == ("tenant", "t")
        await group.close()

    @pytest.mark.usefixtures("patience")
    async def test_a_busy_key_delays_no_second_group(self, shared: Postgres, database_url: str) -> None:
        """C19: the next submission with that key waits apart at once."""
        counted = Counted(shared)
        group = GroupCommit(counted, StoppedClock(), notify=True, waiting_pool=waiting_pool.WaitingPool(shared))
        busy = BUSY["key"][1]
        async with held(database_url, BUSY["key"][0]) as holder:
            first = asyncio.create_task(group.submit(busy))

            async def is_apart() -> bool:
                return group._lock_waiters.busy(busy) is not None and await waiting(holder) == 1

            await until(is_apart)
            counted.count = 0
            again = [asyncio.create_task(group.submit(busy)) for _ in range(10)]
            await asyncio.gather(*others(group))
            assert counted.count <= 2
            assert await waiting(holder) == 1
            await holder.execute("COMMIT")
            stored = await asyncio.gather(first, *again)
        assert len({one.job.id for one in stored}) == 1
        counted.count = 0
        assert not (await group.submit(busy)).created
        assert counted.count > 0, "it is free, so the group takes it again"
        await group.close()

    async def test_it_ends_with_a_problem_that_names_the_key(self, shared: Postgres, database_url: str) -> None:
        """F2: the key, that another transaction holds it, and what to do."""
        group = GroupCommit(shared, SystemClock(), notify=True)
        async with held(database_url, *(statement for statement, _ in list(BUSY.values())[:3])):
            tries = [asyncio.create_task(group.submit(busy)) for _, busy in list(BUSY.values())[:3]]
            refused = [error for error in await asyncio.gather(*tries, return_exceptions=True) if isinstance(error, Refused)]
        assert [error.code for error in refused] == ["idempotency_key_busy", "contention", "contention"]
        assert [fault.pointer for error in refused for fault in error.faults] == ["/idempotency_key", "/unique", "/limit"]
        assert refused[0].detail.startswith('another transaction holds the idempotency key "k" and has not ended; nothing was')
        assert refused[1].detail.startswith("another transaction submits an equal job")
        assert refused[2].detail.startswith('another transaction creates the limit "l"')
        await group.close()

    @pytest.mark.usefixtures("patience")
    async def test_more_busy_keys_than_connections_for_them_wait_in_turn(self, shared: Postgres, database_url: str) -> None:
        """C19: a bounded number of connections, whatever the callers do. The other callers keep theirs."""
        group = GroupCommit(shared, SystemClock(), notify=True)
        assert waiting_pool.WAITING_POOL_SIZE == 4
        keys = [f"k{n}" for n in range(2 * waiting_pool.WAITING_POOL_SIZE)]
        async with held(database_url, *(f"SELECT sexton.submit('a', key => '{key}')" for key in keys)) as holder:
            tries = [asyncio.create_task(group.submit(submission("a", {}, key=key))) for key in keys]

            async def are_taken() -> bool:
                return await waiting(holder) == waiting_pool.WAITING_POOL_SIZE

            await until(are_taken)
            assert all(stored.created for stored in await asyncio.gather(*others(group)))
            assert await waiting(holder) <= waiting_pool.WAITING_POOL_SIZE
            await holder.execute("ROLLBACK")
            answers = await asyncio.gather(*tries, return_exceptions=True)
        assert {type(answer) for answer in answers} <= {Stored, Refused}
        await group.close()

    async def test_a_busy_key_is_forgotten_after_a_while(self, shared: Postgres) -> None:
        clock = ManualClock(NOW)
        lines = lock_waiters.LockWaiters(
            waiting_pool.WaitingPool(shared), GroupCommit(shared, clock, notify=True)._store, clock
        )
        answer: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        busy = BUSY["key"][1]
        lines.add("key", lock_waiters.Waiting(busy, answer))
        assert lines.busy(busy) == ("key", "default", "k")
        assert lines.busy(submission("a", {}, key="k", tenant="other")) is None
        clock.move(timedelta(seconds=busy_resources.BUSY_S))
        assert lines.busy(busy) is None
        await lines.close()

    async def test_a_busy_key_that_is_repeated_becomes_free(self, shared: Postgres) -> None:
        """C19: only a wait that was proven counts. A commit that takes 30 ms is none, nor is it to join the line."""
        clock = ManualClock(NOW)
        group = GroupCommit(shared, clock, notify=True)
        lines, busy, store = group._lock_waiters, BUSY["key"][1], group._store

        async def slowly(*arguments: Any) -> Any:
            clock.move(timedelta(milliseconds=30))
            return await store(*arguments)

        lines._store = slowly
        lines.add("key", lock_waiters.Waiting(busy, asyncio.get_running_loop().create_future()))
        repeated = 0
        while lines.busy(busy) is not None:
            clock.move(timedelta(seconds=1))
            await group.submit(busy)
            repeated += 1
            assert repeated <= busy_resources.BUSY_S
        assert repeated > 1
        await group.close()

    async def test_each_caller_has_one_deadline(self, shared: Postgres) -> None:
        """C19: the wait for a connection is part of it, and the rest is the time for the lock."""
        clock, waits_s = ManualClock(NOW), list[float]()

        class Slow(waiting_pool.WaitingPool):
            @asynccontextmanager
            async def taken(self, *, within_s: float | None = None) -> AsyncIterator[Database]:
                clock.move(timedelta(seconds=1.5))
                yield shared

        async def store(_database: Database, submissions: Sequence[Submission], wait_s: float) -> list[Stored | Exception]:
            waits_s.append(wait_s)
            clock.move(timedelta(seconds=wait_s))
            raise KeyBusy("still locked")

        lines = lock_waiters.LockWaiters(Slow(shared), store, clock)
        answer: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        lines.add("key", lock_waiters.Waiting(BUSY["key"][1], answer))
        with pytest.raises(Refused):
            await answer
        assert waits_s == pytest.approx([waiting_pool.PATIENCE_S - 1.5])
        await lines.close()

    @pytest.mark.usefixtures("patience")
    async def test_callers_in_the_lines_count_as_waiting(
        self, shared: Postgres, database_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(group_commit, "WAITING_LIMIT", 3)
        group, busy = GroupCommit(shared, SystemClock(), notify=True), BUSY["key"][1]
        async with held(database_url, BUSY["key"][0]) as holder:
            late = [asyncio.create_task(group.submit(busy)) for _ in range(3)]

            async def are_in_line() -> bool:
                return len(group._lock_waiters) == 3

            await until(are_in_line)
            with pytest.raises(Refused, match="already waiting"):
                await group.submit(submission("a", {}))
            await holder.execute("ROLLBACK")
            await asyncio.gather(*late)
        assert len(group._lock_waiters) == 0
        assert (await group.submit(submission("a", {}))).created
        await group.close()


class TestTheOtherCalls:
    async def test_a_busy_key_is_named_though_no_connection_is_free_to_wait(
        self, api: Api, database_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """C19, F2: other calls have all of them. The submission does not start again, which would be another wait."""
        monkeypatch.setattr(waiting_pool, "PATIENCE_S", 0.05)
        asked, taken = list[float | None](), waiting_pool.WaitingPool.taken

        def counted(self: waiting_pool.WaitingPool, *, within_s: float | None = None) -> Any:
            asked.append(within_s)
            return taken(self, within_s=within_s)

        async with held(database_url, BUSY["key"][0]), AsyncExitStack() as stack:
            for _ in range(waiting_pool.WAITING_POOL_SIZE):
                await stack.enter_async_context(api.state.waiting_pool.taken())
            monkeypatch.setattr(waiting_pool.WaitingPool, "taken", counted)
            answer = await api.http.post("/v1/jobs", json={"handler": "a", "idempotency_key": "k"})
        problem(answer, 409, "idempotency_key_busy", "/idempotency_key")
        assert len(asked) == 1

    @pytest.mark.usefixtures("patience")
    async def test_callers_that_wait_leave_the_connections_to_the_others(self, api: Api, database_url: str) -> None:
        """C19: more of them than the server has connections."""
        job = await api.submit()
        async with held(database_url, f"SELECT FROM sexton.runs WHERE job_id = '{job['id']}' FOR UPDATE") as holder:
            cancels = [asyncio.create_task(api.http.delete(f"/v1/jobs/{job['id']}")) for _ in range(3)]
            await until(lambda: waiting(holder))
            assert (await api.http.get(f"/v1/jobs/{job['id']}")).status_code == 200
            await api.submit()
            assert not any(cancel.done() for cancel in cancels)
            await holder.execute("COMMIT")
            assert {(await cancel).status_code for cancel in cancels} <= {200, 409}

    async def test_a_busy_key_in_a_batch_is_named(self, api: Api, database_url: str) -> None:
        """A11, F2: all or nothing."""
        bodies = [{"handler": "a"}, {"handler": "a", "idempotency_key": "k"}]
        async with held(database_url, BUSY["key"][0]):
            answer = await api.http.post("/v1/jobs/batch", json=bodies)
        told = problem(answer, 409, "idempotency_key_busy", "/1/idempotency_key")
        assert '"k"' in told["detail"]
        assert await api.count() == 0

    async def test_the_others_of_a_partial_batch_are_written(self, api: Api, database_url: str) -> None:
        """A11: one object per line, and each has its own answer."""
        lines = b'{"handler": "a"}\n{"handler": "a", "idempotency_key": "k"}\n{"handler": "a", "idempotency_key": "own"}\n'
        headers = {"Content-Type": "application/x-ndjson"}
        async with held(database_url, BUSY["key"][0]):
            answer = (await api.http.post("/v1/jobs/batch?partial=true", content=lines, headers=headers)).json()
        assert [item.get("created") for item in answer["items"]] == [True, None, True]
        assert answer["items"][1]["problem"]["code"] == "idempotency_key_busy"
        assert '"k"' in answer["items"][1]["problem"]["detail"]

    async def test_a_partial_batch_of_busy_keys_is_tried_in_few_round_trips(self, shared: Postgres, database_url: str) -> None:
        """A11, C19: halving it would cost two tries per job, each with a wait for a lock on a connection of the others."""
        counted = Counted(shared)
        bodies: list[dict[str, Any]] = [{"handler": "a", "idempotency_key": f"k{n}"} for n in range(100)] + [
            {"handler": "a"}
        ] * 100
        bodies[150] = {"handler": "a", "idempotency_key": "used", "payload": {"n": 2}}
        async with opened(cast("Postgres", counted)) as api:
            await api.submit(idempotency_key="used", payload={"n": 1})
            api.state.waiting_pool._database = shared
            counted.count = 0
            async with held(database_url, *(f"SELECT sexton.submit('a', key => 'k{n}')" for n in range(100))):
                answer = (await api.http.post("/v1/jobs/batch?partial=true", json=bodies)).json()
            assert counted.count < 10
        codes = [(item.get("problem") or {}).get("code") for item in answer["items"]]
        assert codes[:100] == ["idempotency_key_busy"] * 100
        assert [code for code in codes[100:] if code] == ["idempotency_key_reused"]
        assert (answer["created_count"], codes[150]) == (99, "idempotency_key_reused")

    async def test_a_locked_run_that_must_not_start_keeps_no_other_from_its_remote_worker(
        self, api: Api, database_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """C19: the claim has committed when the lock is met, so the call must not start again."""
        hand, claims = Hand(api), api.state.remote_claims
        gone, good = await api.submit(), await api.submit()
        async with api.database.connection() as connection:
            await connection.fetch("DELETE FROM sexton.jobs WHERE id = $1", gone["id"])
        usual, claim_count = claims._claim, 0

        async def claim(*arguments: Any) -> Any:
            nonlocal claim_count
            claim_count += 1
            claimed = await usual(*arguments)
            await holder.execute(f"SELECT FROM sexton.runs WHERE job_id = '{gone['id']}' FOR UPDATE")
            return claimed

        monkeypatch.setattr(claims, "_claim", claim)
        async with held(database_url) as holder:
            runs = await hand.acquire(limit=2)
        assert [run["job_id"] for run in runs] == [good["id"]]
        assert claim_count == 1

    async def test_a_locked_run_among_the_reports_of_a_remote_worker_fails_alone(self, api: Api, database_url: str) -> None:
        """C19: the others are recorded, and the worker reports this one again."""
        hand = Hand(api)
        for _ in range(3):
            await api.submit()
        runs = await hand.acquire(limit=3)
        items = [{"run_id": run["run_id"], "lease": run["lease"], "result": n} for n, run in enumerate(runs)]
        async with held(database_url, f"SELECT FROM sexton.runs WHERE id = '{runs[1]['run_id']}' FOR UPDATE"):
            answers = (await api.http.post("/v1/runs/complete", json={"items": items})).json()["items"]
        assert [one["problem"] and one["problem"]["code"] for one in answers] == [None, "contention", None]
        assert runs[1]["run_id"] in answers[1]["problem"]["detail"]
        again = (await api.http.post("/v1/runs/complete", json={"items": items})).json()["items"]
        assert [one["problem"] for one in again] == [None] * 3


SCHEDULE = {"handler": "d", "name": "S1", "every": "2h"}
HOLD_SCHEDULE = "SELECT sexton.submit_schedule('d', name => 'S1', every => '1 hour')"


class TestSchedules:
    """A schedule that an open transaction has written."""

    @pytest.mark.usefixtures("patience")
    @pytest.mark.parametrize("is_known", [True, False])
    async def test_callers_of_one_schedule_wait_on_one_connection(self, api: Api, database_url: str, is_known: bool) -> None:
        """C19: by its name, whether it is new or changed; the shared connections are left to the others."""
        if is_known:
            await api.submit(**SCHEDULE)
        async with held(database_url, HOLD_SCHEDULE) as holder:
            posts = [
                asyncio.create_task(api.http.post(path, json=body))
                for path, body in [("/v1/jobs?on_name=update", SCHEDULE), ("/v1/jobs/batch?on_name=update", [SCHEDULE])] * 4
            ]

            async def are_apart() -> bool:
                return len(api.state.locked_requests) == len(posts) and await waiting(holder) == 1

            await until(are_apart)
            for _ in range(5):
                await api.submit()
                assert await waiting(holder) == 1
            assert not any(post.done() for post in posts)
            await holder.execute("COMMIT")
            assert {(await post).status_code for post in posts} <= {200, 201}
        assert len(api.state.locked_requests) == 0

    @pytest.mark.usefixtures("patience")
    @pytest.mark.parametrize(
        ("method", "path", "body"),
        [
            ("PATCH", "", {"every": "3h"}),
            ("PATCH", "/status", {"status": "paused"}),
            ("POST", "/run", {}),
            ("DELETE", "", None),
            ("POST", "/backfill", {"from": "2026-01-01T00:00:00Z", "until": "2026-01-01T01:00:00Z"}),
        ],
    )
    async def test_changes_of_one_schedule_wait_on_one_connection(
        self, api: Api, database_url: str, method: str, path: str, body: dict[str, Any] | None
    ) -> None:
        """C19: by its id."""
        job = await api.submit(**SCHEDULE)
        async with held(database_url, HOLD_SCHEDULE) as holder:
            changes = [
                asyncio.create_task(api.http.request(method, f"/v1/jobs/{job['id']}{path}", json=body)) for _ in range(6)
            ]

            async def are_apart() -> bool:
                return len(api.state.locked_requests) == len(changes) and await waiting(holder) == 1

            await until(are_apart)
            await api.submit()
            assert api.state.locked_requests.is_busy(("jobs", job["id"]))
            await holder.execute("COMMIT")
            assert {(await change).status_code for change in changes} <= {200, 409}

    async def test_a_busy_schedule_is_not_tried_on_a_shared_connection(self, shared: Postgres, database_url: str) -> None:
        """C19: for as long as it is remembered."""
        async with opened(shared, clock=StoppedClock()) as api:
            tried, transaction = 0, shared.transaction

            def counted(**options: Any) -> Any:
                nonlocal tried
                tried += 1
                return transaction(**options)

            async with held(database_url, HOLD_SCHEDULE):
                shared.transaction = counted  # type: ignore[method-assign]
                for _ in range(2):
                    problem(await api.http.post("/v1/jobs", json=SCHEDULE), 503, "contention", "/name")
                    problem(await api.http.post("/v1/jobs/batch", json=[SCHEDULE]), 503, "contention", "/0/name")
                told = (await api.http.post("/v1/jobs/batch?partial=true", json=[{"handler": "a"}, SCHEDULE])).json()
        assert tried == 1 + 1, "the first, and the other job of the partial batch"
        assert told["created_count"] == 1
        assert told["items"][1]["problem"]["detail"].startswith('another transaction writes the schedule "S1"')

    async def test_schedules_of_a_partial_batch_are_found_out_without_waiting(self, api: Api, database_url: str) -> None:
        """A11: one-time jobs and the other schedules are written, and the busy ones are named."""
        names = [f"S{n}" for n in range(40)]
        bodies = [{**SCHEDULE, "name": name} for name in names] + [{"handler": "a"}]
        busy = names[::4]
        statements = [f"SELECT sexton.submit_schedule('d', name => '{name}', every => '1 hour')" for name in busy]
        async with held(database_url, *statements):
            answer = (await api.http.post("/v1/jobs/batch?partial=true", json=bodies)).json()
        refused = [names[item["index"]] for item in answer["items"] if item.get("problem")]
        assert refused == busy
        assert all(api.state.locked_requests.is_busy(("schedule", "default", name)) for name in busy)

    @pytest.mark.parametrize("is_named", [True, False])
    async def test_of_many_that_arrive_together_one_finds_out(self, shared: Postgres, is_named: bool) -> None:
        """C19: a hundred of them would meet the lock on all shared connections, for as long as they last."""
        async with opened(shared) as api:
            job = await api.submit(**SCHEDULE)
            tried, transaction = 0, shared.transaction

            def counted(**options: Any) -> Any:
                nonlocal tried
                tried += 1
                return transaction(**options)

            async with held(shared.url, HOLD_SCHEDULE):
                shared.transaction = counted  # type: ignore[method-assign]
                path, body = ("", SCHEDULE) if is_named else (f"/{job['id']}/run", {})
                posts = [api.http.post(f"/v1/jobs{path}", json=body) for _ in range(30)]
                assert {answer.json()["code"] for answer in await asyncio.gather(*posts)} == {"contention"}
            assert tried == 1

    async def test_the_waits_of_a_request_have_one_deadline(self, shared: Postgres) -> None:
        """C19: its turn, a connection and each lock."""
        clock = ManualClock(NOW)
        requests = LockedRequests(waiting_pool.WaitingPool(shared), clock)

        async def times(connection: Connection) -> tuple[str, str]:
            names = "current_setting('lock_timeout') AS a, current_setting('sexton.submit_wait') AS b"
            ((lock, submit),) = await connection.fetch(f"SELECT {names}")
            return lock, submit

        async with requests.turn(("jobs", "1")) as database, database.transaction() as connection:
            assert await times(connection) == ("2s", "2000ms")
            clock.move(timedelta(seconds=1.5))
            assert await times(connection) == ("500ms", "500ms")
            clock.move(timedelta(seconds=1.5))
            assert await times(connection) == ("100ms", "100ms")

    async def test_no_more_requests_wait_than_there_are_places(
        self, api: Api, database_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(locked_requests, "PLACES", 3)
        async with held(database_url, HOLD_SCHEDULE):
            posts = [asyncio.create_task(api.http.post("/v1/jobs", json=SCHEDULE)) for _ in range(3)]

            async def are_waiting() -> bool:
                return len(api.state.locked_requests) == 3

            await until(are_waiting)
            problem(await api.http.post("/v1/jobs", json=SCHEDULE), 503, "contention", "/name")
            assert not any(post.done() for post in posts)
            await asyncio.gather(*posts)

    async def test_a_worker_is_not_remembered_as_waiting(self, api: Api, database_url: str) -> None:
        """C2: its next heartbeat does not queue behind other callers."""
        hand = Hand(api)
        await api.submit()
        (run,) = await hand.acquire(limit=1)
        path = f"/v1/runs/{run['run_id']}"
        async with held(database_url, f"SELECT FROM sexton.runs WHERE id = '{run['run_id']}' FOR UPDATE"):
            answer = await api.http.post(f"{path}/complete", json={"lease": run["lease"], "result": 1})
            problem(answer, 503, "contention")
        assert not api.state.locked_requests._busy
