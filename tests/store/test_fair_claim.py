"""Fair shares in the claim: the SQL compared with the same algorithm in Python, and runs that must not be claimed whatever the
shares."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from sexton.domain.claim_cursors import CURSOR_AFTER, ClaimCursors
from sexton.domain.fairness import Turns, share_out
from tests.store.support import GRACE_S, NOW, after, enlist, submit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from tests.store.support import Conn

pytestmark = pytest.mark.made_up_rows

READY = """
WITH made AS MATERIALIZED (
  SELECT gen_random_uuid() AS id, w.tenant FROM jsonb_each_text($2::jsonb) AS w(tenant, count), generate_series(1, w.count::int)
)
INSERT INTO sexton.runs (id, job_id, fire_at, due_at, lane, partition, at_most_once, state, origin, queue, tenant, task)
SELECT id, id, $1::timestamptz, $1, $4, 0, false, 'ready', 'now', $3, tenant, $5 FROM made
"""
TENANTS = """
INSERT INTO sexton.tenants (name, weight, running_max, updated_at)
SELECT name, weight::int, ($2::jsonb->>name)::int, $3 FROM jsonb_each_text($1::jsonb) AS w(name, weight)
"""
CLAIM = "SELECT * FROM sexton.claim_runs($1, $2, $3, $4, $5, $6, $7, $8)"


class Start(NamedTuple):
    queue: str
    lane: int
    tenant: str
    turn: int
    run_id: UUID
    due_at: datetime = NOW


async def _fill(
    connection: Conn,
    waiting: Mapping[str, int],
    *,
    queue: str = "default",
    lane: int = 2,
    task: str = "a",
    due_at: datetime = NOW,
) -> None:
    await connection.execute(READY, due_at, json.dumps(waiting), queue, lane, task)


async def _set(connection: Conn, weights: Mapping[str, int], rooms: Mapping[str, int] | None = None) -> None:
    named = {**dict.fromkeys(rooms or {}, 1), **weights}
    await connection.execute(TENANTS, json.dumps(named), json.dumps(rooms or {}), NOW)


async def _pause(connection: Conn, tenants: Sequence[str]) -> None:
    await connection.execute(
        "INSERT INTO sexton.tenants (name, paused_at, updated_at) SELECT unnest($1::text[]), $2, $2", list(tenants), NOW
    )


async def _claim(
    connection: Conn,
    worker_id: UUID,
    wanted: int,
    turns: Turns | None = None,
    *,
    queues: Sequence[str] = ("default",),
    tasks: Sequence[str] = ("a",),
    ahead: bool = False,
    cursors: ClaimCursors | None = None,
    only_ahead: bool = False,
) -> list[Start]:
    told = "{}" if turns is None else turns.as_json(queues, cursors, only_ahead=only_ahead)
    rows = await connection.fetch(CLAIM, worker_id, list(queues), list(tasks), wanted, GRACE_S, ahead, told, NOW)
    starts = [Start(row["queue"], row["lane"], row["tenant"], row["turn"], row["id"], row["due_at"]) for row in rows]
    if turns is not None:
        turns.note(starts)
    if cursors is not None:
        cursors.note(starts)
    return starts


def _tenants(starts: Sequence[Start]) -> list[str]:
    return [start.tenant for start in starts]


class Case(NamedTuple):
    waiting: dict[str, int]
    deaf: set[str]  # have ready runs of a task that the worker does not know
    weights: dict[str, int]
    rooms: dict[str, int]
    last: tuple[str, int]
    wanted: list[int]


def _case(seed: int) -> Case:
    rng = Random(seed)
    names = [f"t{number:02d}" for number in rng.sample(range(100), rng.randint(1, 12))]
    weights = {name: rng.randint(1, 6) for name in names if rng.random() < 0.5}
    last_name = rng.choice([*names, "", "t50", "zz"])
    return Case(
        # sexton.submit once accepted the tenant ''.
        waiting={name: rng.choice([1, 1, 2, 5, 30, 80]) for name in names} | ({"": 5} if seed % 3 == 0 else {}),
        deaf={f"u{number}" if rng.random() < 0.5 else rng.choice(names) for number in range(rng.choice([0, 0, 2, 9]))},
        weights=weights,
        rooms={name: rng.randint(1, 9) for name in names if rng.random() < 0.1},
        last=(last_name, rng.randrange(weights.get(last_name, 1))),
        wanted=[rng.choice([1, 2, 3, 10, 40]) for _ in range(4)],
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize("cursor_after", [None, 1, 3])
async def test_the_claim_shares_like_the_domain(
    connection: Conn, monkeypatch: pytest.MonkeyPatch, cursor_after: int | None
) -> None:
    """C9: the same tenants and turns in the same order, claim after claim, on 120 random cases, wherever the claims begin."""
    if cursor_after is not None:
        monkeypatch.setattr("sexton.domain.claim_cursors.CURSOR_AFTER", cursor_after)
    worker_id = await enlist(connection)
    for seed in range(120):
        case = _case(seed)
        await connection.execute("DELETE FROM sexton.runs; DELETE FROM sexton.tenants; DELETE FROM sexton.slots")
        await _set(connection, case.weights, case.rooms)
        await _fill(connection, case.waiting)
        await _fill(connection, dict.fromkeys(case.deaf, 1), task="unknown")
        turns, waiting, rooms = Turns(), {**dict.fromkeys(case.deaf, 0), **case.waiting}, dict(case.rooms)
        turns.note([Start("default", 2, *case.last, run_id=worker_id)])
        cursors = None if cursor_after is None else ClaimCursors()
        for wanted in case.wanted:
            expected = share_out(waiting, case.weights, wanted, turns.last("default", 2), rooms)
            starts = await _claim(connection, worker_id, wanted, turns, cursors=cursors)
            assert [(start.tenant, start.turn) for start in starts] == expected, f"seed {seed}: {case}"
            for tenant, _ in expected:
                waiting[tenant] -= 1
                if tenant in rooms:
                    rooms[tenant] -= 1
            waiting = {tenant: count for tenant, count in waiting.items() if count or tenant in case.deaf}


async def test_weights_are_exact_over_small_claims(connection: Conn) -> None:
    """C9: 1:2:5 exactly, though no claim is as large as a round."""
    worker_id, turns = await enlist(connection), Turns()
    await _set(connection, {"one": 1, "two": 2, "five": 5})
    await _fill(connection, dict.fromkeys(("one", "two", "five"), 200))
    claims = [_tenants(await _claim(connection, worker_id, 3, turns)) for _ in range(40)]
    assert Counter(tenant for claim in claims for tenant in claim) == Counter(one=15, two=30, five=75)


async def test_ten_of_a_quiet_tenant_do_not_wait_for_a_noisy_one(connection: Conn) -> None:
    """C9: beside 5,000 runs of another they are among the next twenty."""
    worker_id, turns = await enlist(connection), Turns()
    await _fill(connection, {"noisy": 5000})
    await _claim(connection, worker_id, 100, turns)
    await _fill(connection, {"quiet": 10})
    assert Counter(_tenants(await _claim(connection, worker_id, 20, turns))) == Counter(noisy=10, quiet=10)


async def test_a_round_continues_at_the_beginning_after_the_last_tenant(connection: Conn) -> None:
    """C9: the first tenant by name gets no more than others where the round wraps."""
    worker_id = await enlist(connection)
    await _fill(connection, dict.fromkeys("abc", 100))
    turns = Turns()
    turns.note([Start("default", 2, "c", 0, worker_id)])
    assert "".join(_tenants(await _claim(connection, worker_id, 6, turns))) == "abcabc"


async def test_runs_of_one_tenant_come_by_due_time(connection: Conn) -> None:
    """C9: fair between tenants, in order inside one."""
    worker_id = await enlist(connection)
    later, sooner = [await submit(connection, tenant="x", now=after(seconds=-ago)) for ago in (1, 5)]
    other = await submit(connection, tenant="y")
    rows = await connection.fetch(CLAIM, worker_id, ["default"], ["a"], 9, GRACE_S, False, "{}", NOW)
    assert [row["job_id"] for row in rows] == [sooner, other, later]


async def test_two_workers_at_once_share_without_a_double_claim(connection: Conn, rival: Conn) -> None:
    """B1, C9: runs that the first has locked are skipped; both are fair over the rest."""
    one, other = await enlist(connection), await enlist(connection)
    await _fill(connection, {"a": 30, "b": 30, "c": 1})
    await rival.execute("SET lock_timeout = '200ms'")
    async with connection.transaction():
        first = await _claim(connection, one, 21)
        second = await _claim(rival, other, 20)
    assert {start.run_id for start in first} & {start.run_id for start in second} == set()
    assert Counter(_tenants(first)) == Counter(a=10, b=10, c=1)
    assert Counter(_tenants(second)) == Counter(a=10, b=10)
    third = await _claim(rival, other, 100)
    assert len({start.run_id for start in [*first, *second, *third]}) == 61


@pytest.mark.parametrize("wanted", [1, 10])
async def test_a_worker_whose_next_tenants_are_locked_continues_behind_them(connection: Conn, rival: Conn, wanted: int) -> None:
    """C9: after an empty claim it would sleep beside a full queue."""
    one, other = await enlist(connection), await enlist(connection)
    await _fill(connection, {f"t{number:03d}": 1 for number in range(100)})
    async with connection.transaction():
        first = await _claim(connection, one, wanted)
        second = await _claim(rival, other, wanted)
    assert _tenants(first) == [f"t{number:03d}" for number in range(wanted)]
    assert _tenants(second) == [f"t{number:03d}" for number in range(wanted, 2 * wanted)]


async def test_lanes_are_strict_over_tenants_and_queues(connection: Conn) -> None:
    """C8: all critical runs of every queue and tenant before any low one."""
    worker_id = await enlist(connection)
    for queue in ("x", "y"):
        await _fill(connection, {"a": 2, "b": 2}, queue=queue, lane=3)
        await _fill(connection, {"a": 2, "c": 2}, queue=queue, lane=0)
    starts = await _claim(connection, worker_id, 12, queues=["y", "x"])
    assert [(start.lane, start.queue) for start in starts] == [(0, "y")] * 4 + [(0, "x")] * 4 + [(3, "y")] * 4


@pytest.mark.parametrize("waiting", [{"a": 1, "b": 11, "c": 1000}, {f"t{n}": n + 1 for n in range(9)}], ids=["steep", "stairs"])
async def test_no_lower_lane_gets_runs_while_a_higher_one_has_some(connection: Conn, waiting: dict[str, int]) -> None:
    """C8, C9: however uneven the tenants are, the claim is filled from the higher lane first."""
    worker_id = await enlist(connection)
    await _fill(connection, waiting, lane=1)
    await _fill(connection, dict.fromkeys(waiting, 50), lane=3)
    assert {start.lane for start in await _claim(connection, worker_id, 30)} == {1}


async def test_lanes_keep_turns_of_their_own(connection: Conn) -> None:
    """C8, C9: service in one lane is not charged to another."""
    worker_id, turns = await enlist(connection), Turns()
    await _fill(connection, dict.fromkeys("abc", 9), lane=3)
    assert _tenants(await _claim(connection, worker_id, 1, turns)) == ["a"]
    await _fill(connection, dict.fromkeys("abc", 1), lane=0)
    assert _tenants(await _claim(connection, worker_id, 5, turns)) == ["a", "b", "c", "b", "c"]


async def test_a_paused_queue_is_skipped(connection: Conn) -> None:
    """C11."""
    worker_id = await enlist(connection)
    await _fill(connection, {"a": 3}, queue="x", lane=0)
    await _fill(connection, {"a": 3}, queue="y")
    await connection.execute("INSERT INTO sexton.queues (name, paused_at, updated_at) VALUES ('x', $1, $1)", NOW)
    assert {start.queue for start in await _claim(connection, worker_id, 9, queues=["x", "y"])} == {"y"}


@pytest.mark.parametrize("wanted", [1, 10])
async def test_a_hundred_paused_tenants_delay_no_other(connection: Conn, wanted: int) -> None:
    """C9: neither their shares nor their number cost the others anything."""
    worker_id, turns = await enlist(connection), Turns()
    paused = [f"p{number:03d}" for number in range(100)]
    await _pause(connection, paused)
    await _fill(connection, {**dict.fromkeys(paused, 2), "a": 50, "z": 50})
    served = [tenant for _ in range(20 // wanted) for tenant in _tenants(await _claim(connection, worker_id, wanted, turns))]
    assert Counter(served) == Counter(a=10, z=10)


async def test_a_paused_tenant_alone_gets_nothing(connection: Conn) -> None:
    """C9: also without other tenants."""
    worker_id = await enlist(connection)
    await _pause(connection, ["a"])
    await _fill(connection, {"a": 5})
    assert await _claim(connection, worker_id, 9) == []


@pytest.mark.parametrize("wanted", [1, 3, 10])
async def test_tenants_with_only_unknown_tasks_delay_no_other(connection: Conn, wanted: int) -> None:
    """C9, rule "claim only known tasks": a full claim, and equal shares for the rest, though most waiting tenants have no run
    for this worker."""
    worker_id, turns = await enlist(connection), Turns()
    await _fill(connection, {f"u{number:02d}": 3 for number in range(30)}, task="new")
    known = dict.fromkeys(("a", "b", "u10x", "z"), 60)
    await _fill(connection, known)
    claims = [_tenants(await _claim(connection, worker_id, wanted, turns)) for _ in range(60 // wanted)]
    assert {len(claim) for claim in claims} == {wanted}
    assert Counter(tenant for claim in claims for tenant in claim) == Counter(dict.fromkeys(known, 15))


async def test_a_worker_declared_lost_claims_nothing(connection: Conn) -> None:
    """C1, C9: others would have to sweep the runs that it took."""
    worker_id = await enlist(connection)
    await _fill(connection, {"a": 3, "b": 3})
    await connection.execute("UPDATE sexton.workers SET lost_at = $2 WHERE id = $1", worker_id, NOW)
    assert await _claim(connection, worker_id, 9) == []


@pytest.mark.parametrize("others", [0, 3], ids=["alone", "beside others"])
@pytest.mark.parametrize("column", ["start_by", "deadline_at"])
async def test_a_run_that_is_too_late_is_not_claimed(connection: Conn, column: str, others: int) -> None:
    """A5, C9: its share goes to tenants whose runs are in time."""
    worker_id = await enlist(connection)
    await _fill(connection, {"a": 6, **{f"b{number}": 2 for number in range(others)}})
    late = "UPDATE sexton.runs SET {} = $1 WHERE ctid = ANY (ARRAY(SELECT ctid FROM sexton.runs WHERE tenant = 'a' LIMIT 4))"
    await connection.execute("ALTER TABLE sexton.runs DISABLE TRIGGER test_only_watch")
    await connection.execute(late.format(column), after(seconds=-1))
    assert Counter(_tenants(await _claim(connection, worker_id, 50))).total() == 2 + 2 * others


@pytest.mark.parametrize("others", [0, 3], ids=["alone", "beside others"])
async def test_runs_that_may_not_be_prefetched_are_left(connection: Conn, others: int) -> None:
    """B1, C10: at-most-once runs, and runs with a slot, start when they are claimed or not at all."""
    worker_id = await enlist(connection)
    await _fill(connection, {"a": 6, **{f"b{number}": 2 for number in range(others)}})
    await connection.execute("ALTER TABLE sexton.runs DISABLE TRIGGER test_only_watch")
    some = "WHERE ctid = ANY (ARRAY(SELECT ctid FROM sexton.runs WHERE tenant = 'a' ORDER BY id LIMIT 2 OFFSET {}))"
    await connection.execute("UPDATE sexton.runs SET at_most_once = true " + some.format(0))
    await connection.execute("INSERT INTO sexton.limits (key, running, updated_at) VALUES ('k', 9, $1)", NOW)
    await connection.execute("UPDATE sexton.runs SET limit_key = 'k' " + some.format(4))
    ahead = await _claim(connection, worker_id, 50, ahead=True)
    assert len(ahead) == 2 + 2 * others
    assert len(await _claim(connection, worker_id, 50)) == 4


async def test_runs_of_a_tenant_at_its_limit_are_not_prefetched(connection: Conn) -> None:
    """C9, C10: its slots count running runs."""
    worker_id = await enlist(connection)
    await _set(connection, {}, {"a": 3})
    await _fill(connection, {"a": 9, "b": 9})
    assert set(_tenants(await _claim(connection, worker_id, 4, ahead=True))) == {"b"}
    assert Counter(_tenants(await _claim(connection, worker_id, 50))) == Counter(a=3, b=5)
    assert await _claim(connection, worker_id, 50) == []


PREPARE = """
PREPARE fair_claim (uuid, jsonb) AS
SELECT * FROM sexton.claim_runs($1, '{default}', '{a}', 50, 10, false, $2, '2026-03-04T12:00:00Z')
"""


async def _pages(connection: Conn, worker_id: UUID, turns: Turns) -> int:
    """The number of pages that a claim of 50 reads."""
    explain = f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE fair_claim ('{worker_id}', '{turns.as_json()}')"
    plan: dict[str, Any] = json.loads(await connection.fetchval(explain))[0]["Plan"]
    assert plan["Actual Rows"] == 50
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.timeout(120)
async def test_the_cost_of_a_claim_depends_on_what_it_takes_not_on_what_waits(connection: Conn) -> None:
    """C9: among 4,000 tenants a claim of 50 reads little more than among 100, and a fraction of what waits."""
    worker_id, turns = await enlist(connection), Turns()
    await connection.execute("ALTER TABLE sexton.runs DISABLE TRIGGER test_only_watch")
    await connection.execute(PREPARE)
    await _fill(connection, {f"t{number:05d}": 3 for number in range(0, 4000, 40)})
    await connection.execute("VACUUM ANALYZE sexton.runs")
    await _claim(connection, worker_id, 50, turns)
    few = await _pages(connection, worker_id, turns)
    await _fill(connection, {f"t{number:05d}": 3 for number in range(4000) if number % 40})
    await connection.execute("VACUUM ANALYZE sexton.runs")
    await _claim(connection, worker_id, 50, turns)
    many = await _pages(connection, worker_id, turns)
    assert many < 1.5 * few + 100
    assert many < 2000, f"{many} pages for 50 runs"


class TestMarks:
    """A claim begins where the last one stopped, without a scan of the dead entries before it."""

    async def test_runs_behind_a_mark_are_left_while_there_are_enough_ahead(self, connection: Conn) -> None:
        """B8: the purpose of a cursor; `domain.claim_cursors` decides for how long."""
        worker_id, turns, cursors, late = await self._begun(connection)
        starts = await _claim(connection, worker_id, 50, turns, cursors=cursors)
        assert len(starts) == 50
        assert not late & {start.run_id for start in starts}
        starts = await _claim(connection, worker_id, 50, turns)
        assert late <= {start.run_id for start in starts}, "from the beginning they come first"

    @pytest.mark.parametrize("others", [{}, {"b": 60}], ids=["alone", "with another"])
    async def test_with_too_few_ahead_the_claim_takes_runs_behind_the_cursor(
        self, connection: Conn, others: dict[str, int]
    ) -> None:
        """Rule "one clock reading per statement": in the same claim, so that no worker rests while a run is ready."""
        worker_id, turns, cursors, late = await self._begun(connection, others)
        starts = await _claim(connection, worker_id, 1000, turns, cursors=cursors)
        assert late <= {start.run_id for start in starts}
        assert len(starts) == 150 + 3 + sum(others.values())

    async def test_without_runs_ahead_those_behind_the_mark_are_claimed(self, connection: Conn) -> None:
        """Rule "one clock reading per statement"."""
        worker_id, turns, cursors, late = await self._begun(connection)
        await connection.execute("DELETE FROM sexton.runs WHERE state = 'ready' AND id <> ALL ($1)", list(late))
        starts = await _claim(connection, worker_id, 2, turns, cursors=cursors)
        assert {start.run_id for start in starts} <= late
        assert len(starts) == 2

    async def test_no_lower_lane_is_served_before_runs_behind_the_cursor(self, connection: Conn) -> None:
        """C7."""
        worker_id, turns, cursors, late = await self._begun(connection)
        await _fill(connection, {"a": 20}, lane=3)
        starts = await _claim(connection, worker_id, 160, turns, cursors=cursors)
        assert [start.lane for start in starts] == [2] * 153 + [3] * 7
        assert late <= {start.run_id for start in starts}

    async def test_a_tenant_that_comes_before_the_marked_one_is_seen(self, connection: Conn) -> None:
        """C9."""
        worker_id, turns, cursors, _ = await self._begun(connection)
        await _fill(connection, {"A": 5, "c": 5})
        starts = await _claim(connection, worker_id, 30, turns, cursors=cursors)
        assert Counter(_tenants(starts)) == Counter({"A": 5, "a": 20, "c": 5})

    @pytest.mark.parametrize("others", [{}, {"A": 5}, {"c": 5}])
    async def test_a_claim_that_stays_ahead_ignores_runs_behind_the_cursor(
        self, connection: Conn, others: Mapping[str, int]
    ) -> None:
        """B8: it takes runs ahead of the cursor, of every tenant, even if there are too few."""
        worker_id, turns, cursors, late = await self._begun(connection, others)
        starts = await _claim(connection, worker_id, 1000, turns, cursors=cursors, only_ahead=True)
        assert Counter(_tenants(starts)) == Counter({"a": 150, **others})
        assert await _claim(connection, worker_id, 1000, turns, cursors=cursors, only_ahead=True) == []
        found = await connection.fetch("SELECT id FROM sexton.runs WHERE state = 'ready'")
        assert {row["id"] for row in found} == late
        assert len(await _claim(connection, worker_id, 1000, turns, cursors=cursors)) == len(late)

    async def test_staying_ahead_costs_nothing_if_no_run_is_ahead(self, connection: Conn, rival: Conn) -> None:
        """B8: an empty claim after many runs, while another session holds an old snapshot."""
        worker_id, turns, cursors = await enlist(connection), Turns(), ClaimCursors()
        await _fill(connection, {"a": 5_000})
        async with rival.transaction(isolation="repeatable_read"):
            await rival.fetchval("SELECT count(*) FROM sexton.workers")
            assert len(await _claim(connection, worker_id, 5_000, turns, cursors=cursors)) == 5_000
            told = [turns.as_json(cursors=cursors, only_ahead=only) for only in (True, False)]
            pages = [await self._pages(connection, worker_id, text) for text in told]
        assert pages[0] * 5 < pages[1]

    async def test_the_dead_entries_behind_a_mark_are_not_scanned(self, connection: Conn, rival: Conn) -> None:
        """B8: while another session holds an old snapshot they cannot even be marked as dead."""
        worker_id, turns, cursors = await enlist(connection), Turns(), ClaimCursors()
        await _fill(connection, {"a": 6_000})
        async with rival.transaction(isolation="repeatable_read"):
            await rival.fetchval("SELECT count(*) FROM sexton.workers")
            for _ in range(5):
                assert len(await _claim(connection, worker_id, 1000, turns, cursors=cursors)) == 1000
            pages = [await self._pages(connection, worker_id, turns.as_json(cursors=using)) for using in (cursors, None)]
        assert pages[0] * 5 < pages[1]

    async def _pages(self, connection: Conn, worker_id: UUID, turns: str) -> int:
        """The number that a claim of ten reads."""
        arguments = (worker_id, ["default"], ["a"], 10, GRACE_S, False, turns, NOW)
        (told,) = json.loads(await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {CLAIM}", *arguments))
        return int(told["Plan"]["Shared Hit Blocks"]) + int(told["Plan"]["Shared Read Blocks"])

    async def _begun(
        self, connection: Conn, others: Mapping[str, int] | None = None
    ) -> tuple[UUID, Turns, ClaimCursors, set[UUID]]:
        """Many were claimed, 150 are ahead of the cursor, and three were committed late, behind it."""
        worker_id, turns, cursors = await enlist(connection), Turns(), ClaimCursors()
        await _fill(connection, {"a": CURSOR_AFTER + 150})
        assert len(await _claim(connection, worker_id, CURSOR_AFTER, turns, cursors=cursors)) == CURSOR_AFTER
        await _fill(connection, others or {})
        await _fill(connection, {"a": 3}, due_at=after(seconds=-1))
        late = await connection.fetch("SELECT id FROM sexton.runs WHERE due_at < $1", NOW)
        return worker_id, turns, cursors, {row["id"] for row in late}
