"""A submission that returns the stored job in the same round trip, and the ids of all submissions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from sexton.domain.job import submission
from sexton.domain.limit import Limit
from sexton.domain.retry import Retry
from sexton.errors import KeyReused
from sexton.store.fleet import workers
from sexton.store.postgres.driver_errors import translated_errors
from sexton.store.work import jobs
from tests.store.support import NOW, after, submit, submit_many

if TYPE_CHECKING:
    from tests.store.support import Conn

ALL = {
    "queue": "mail",
    "priority": "high",
    "tenant": "acme",
    "name": "n",
    "key": "k",
    "tags": ["x", "y"],
    "timeout": "5s",
    "deadline": "1h",
    "retry": Retry.exponential(max_attempts=2),
    "delivery": "at_most_once",
    "limit": Limit(key="stripe", running=2),
    "submitted_by": "me",
    "trace": "00-" + "1" * 32 + "-" + "2" * 16 + "-01",
}


@pytest.mark.parametrize(
    "options", [{}, {"delay": "1h"}, {"run_at": after(days=-1)}, {"unique": True}, ALL], ids=lambda options: "-".join(options)
)
async def test_a_new_job_is_returned_as_a_query_would_show_it(connection: Conn, options: dict[str, Any]) -> None:
    """A1, A8."""
    document = submission("a", {"b": [1, None], "a": "ü"}, **options)
    ((answer, shown),) = await jobs.submit_and_show(connection, [document], now=NOW)
    assert answer.created
    assert shown == await jobs.show(connection, answer.id)


async def test_a_new_job_is_returned_with_the_options_of_its_task_and_its_queue(connection: Conn) -> None:
    await workers.register_tasks(connection, {"a": {"queue": "mail", "lane": 0, "timeout_s": 7, "policy": {"max_lost": 9}}})
    await connection.execute(
        """INSERT INTO sexton.queues (name, policy, updated_at) VALUES ('mail', '{"grace_s": 3}', now())"""
    )
    ((answer, shown),) = await jobs.submit_and_show(connection, [submission("a", {})], now=NOW)
    assert shown is not None
    assert (shown.queue, shown.lane, shown.timeout_s) == ("mail", 0, 7.0)
    assert shown == await jobs.show(connection, answer.id)


async def test_jobs_are_returned_in_order_and_existing_ones_without_a_view(connection: Conn) -> None:
    """A10."""
    first = await submit(connection, key="k")
    documents = [submission("a", n) for n in range(5)]
    documents[2:2] = [submission("a", {}, key="k"), submission("b", {}, key="new"), submission("b", {}, key="new")]
    answers = await jobs.submit_and_show(connection, documents, now=NOW)
    assert [answer.created for answer, _ in answers] == [True, True, False, True, False, True, True, True]
    assert answers[2] == ((first, False), None)
    assert answers[4] == ((answers[3][0].id, False), None)
    assert [view.payload_json for _, view in answers if view is not None] == ["0", "1", "{}", "2", "3", "4"]


async def test_a_rejected_submission_returns_nothing_and_stores_nothing(connection: Conn) -> None:
    await submit(connection, key="k")
    with pytest.raises(KeyReused), translated_errors():
        await jobs.submit_and_show(connection, [submission("a", 1), submission("a", 2, key="k")], now=NOW)
    assert await connection.fetchval("SELECT count(*) FROM sexton.jobs") == 1


async def test_ids_of_one_call_are_version_7_in_order_and_spread_over_all_partitions(connection: Conn) -> None:
    """B2: the partition is the last six bits of the id."""
    ids = await submit_many(connection, [submission("a", {})] * 3_000)
    assert ids == sorted(ids)
    assert {(one.version, one.variant) for one in ids} == {(7, "specified in RFC 4122")}
    sizes = Counter(one.int & 63 for one in ids)
    assert len(sizes) == 64
    assert max(sizes.values()) < 100  # the average is 47
    assert len({one.int & (2**62 - 1) for one in ids}) == 3_000


async def test_calls_of_one_instant_share_no_id(connection: Conn) -> None:
    """The random bits are drawn once per call: each call has its own."""
    calls = [await submit_many(connection, [submission("a", {})] * 50) for _ in range(20)]
    assert len({one for ids in calls for one in ids}) == 1_000
    assert len({ids[0].int & (2**62 - 1) for ids in calls}) == 20
