"""C2: a job with a target keeps it from its submission to the claim, and through edits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sexton.domain.fault import Invalid
from sexton.domain.job import submission
from sexton.domain.retry import Retry
from sexton.domain.targets import HTTP_TASK, GrpcTarget, HttpTarget, ScriptTarget, SecretRef, Target
from sexton.operations import one_time_jobs
from sexton.operations.caller import Caller
from sexton.operations.definition_change import Changes
from sexton.operations.versions import AtVersion
from tests.store.support import NOW, claim, enlist, submit

if TYPE_CHECKING:
    from tests.store.support import Conn

BILLING = HttpTarget("https://billing.example/send", headers={"Authorization": SecretRef("billing", "Bearer ")})


@pytest.mark.parametrize(
    ("target", "task"),
    [
        (BILLING, "sexton.http"),
        (GrpcTarget("billing.example:443", "billing.Invoices/Send"), "sexton.grpc"),
        (ScriptTarget("backup"), "sexton.script:backup"),
    ],
)
async def test_a_claim_contains_the_target(connection: Conn, target: Target, task: str) -> None:
    """C2, rule "claim only known tasks": only a worker that supports this kind of target claims it."""
    await submit(connection, target, {"user_id": 42})
    stranger, worker = await enlist(connection), await enlist(connection, tasks=[task])
    assert await claim(connection, stranger) == []
    (claimed,) = await claim(connection, worker, tasks=[task])
    assert (claimed.task, claimed.lease.policy.target) == (task, target)


async def test_an_edit_keeps_the_target(connection: Conn) -> None:
    job_id = await submit(connection, BILLING, retry=Retry(max_attempts=2))
    async with connection.transaction():
        await one_time_jobs.edit(
            connection, Caller("ada"), AtVersion(job_id), Changes(policy={"retry": Retry(max_attempts=9)}), now=NOW
        )
    (claimed,) = await claim(connection, await enlist(connection, tasks=[HTTP_TASK]), tasks=[HTTP_TASK])
    assert (claimed.lease.policy.target, claimed.lease.policy.retry.max_attempts) == (BILLING, 9)


async def test_equal_payloads_for_different_urls_are_different_jobs(connection: Conn) -> None:
    """A6: all calls of a kind have one task; their targets differ."""
    first = await submit(connection, BILLING, {"n": 1}, unique=True)
    assert await submit(connection, BILLING, {"n": 1}, unique=True) == first
    assert await submit(connection, HttpTarget("https://other.example/send"), {"n": 1}, unique=True) != first


@pytest.mark.parametrize("name", ["sexton.http", "sexton.script:backup", "sexton.mine"])
def test_no_python_task_has_a_reserved_name(name: str) -> None:
    with pytest.raises(Invalid, match="reserved"):
        submission(name, {})
