"""Sequences of calls, each with values from earlier answers. The document declares no links: schemathesis infers them from ids
and names, as a new user would (F2). Long form: SEXTON_TEST_SEQUENCES=500."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.generation.stateful import run_state_machine_as_test

from tests.sizes import size

from .watch import ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import StartApi

SEQUENCES = size("SEQUENCES", 8)
ACQUIRE = "/v1/workers/acquire"
# As in tests/api/test_openapi.py: rules that a schema cannot express, and a partial batch, which answers 200 with problems
# inside. A deleted job is kept and shown as cancelled, so later calls may use it.
EXCLUDED = ("positive_data_acceptance", "negative_data_rejection", "use_after_free", "ensure_resource_availability")


@pytest.mark.timeout(3600)
async def test_no_sequence_of_calls_causes_a_server_error(start_api: StartApi, figure: Callable[[str], None]) -> None:
    """F2."""
    api = await start_api()
    figure(await asyncio.to_thread(_run, api.address))
    assert "service failed" not in api.member.log


def _run(address: str) -> str:
    load_all_checks()
    schema = schemathesis.openapi.from_url(f"{address}/schema").exclude(path="/v1/events")
    excluded = [CHECKS.get_one(name) for name in EXCLUDED]
    made: Any = schema.as_state_machine()
    steps: list[str] = []

    class Machine(made):  # type: ignore[misc]
        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            (case.query or {}).pop("wait", None)  # no worker runs here
            if case.path == ACQUIRE and isinstance(case.body, dict):
                case.body["wait"] = 0
            return {"timeout": 20}

        def validate_response(self, response: Any, case: Any, **given: Any) -> None:
            steps.append(f"{case.operation.label} {response.status_code}")
            case.validate_response(response, excluded_checks=excluded, transport_kwargs=given or None)

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=SEQUENCES,
            stateful_step_count=8,
            deadline=None,
            database=None,
            derandomize=SEQUENCES < 50,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    links = schema.statistic.transitions
    found = len({step for step in steps if step[-3] == "2"})
    return f"{len(steps):,} calls in {SEQUENCES} sequences over {links.total} inferred links; {found} kinds of success"


@pytest.mark.timeout(600)
async def test_the_stream_of_events_is_rejected_or_begins(start_api: StartApi) -> None:
    """F2: not part of the sequences, because it does not end: any query and any id to resume from."""
    api = await start_api()
    known = {"type": "submitted", "tenant": "a", "job_id": "01890a5d-ac96-774b-bcce-b302099a8057", "colour": "red"}
    seen: set[int] = set()

    async def begins(query: str, last_id: str) -> int:
        async with (
            httpx.AsyncClient(base_url=api.address, timeout=10) as http,
            http.stream("GET", f"/v1/events?{query}", headers={"Last-Event-ID": last_id}) as response,
        ):
            if response.status_code == 200:
                assert (await anext(response.aiter_lines())) == "retry: 1000"
            else:
                await response.aread()
                assert json.loads(response.content)["code"] in ("invalid", "malformed")
            return response.status_code

    @settings(max_examples=SEQUENCES * 2, deadline=None, database=None)
    @given(
        query=st.dictionaries(st.sampled_from(sorted(known)), st.sampled_from(sorted(known.values())) | st.text(max_size=5)),
        last_id=st.sampled_from(
            ["", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z~x", "nonsense", "9999-12-31T23:59:59+14:00"]
        ),
    )
    def fuzz(query: dict[str, str], last_id: str) -> None:
        seen.add(asyncio.run(begins(str(httpx.QueryParams(query)), last_id)))

    await asyncio.to_thread(fuzz)
    assert seen <= {200, 400, 422}
    status, _, _ = await ask(api.port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert status == 200
