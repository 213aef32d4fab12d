"""Bodies that are too large, too deep or too many (F4, F6)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.sizes import size

from .watch import ask, attack

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import StartApi

GIGABYTE = 2**30
PARKED = size("PARKED", 100)
_DEEP = 10_000


@pytest.mark.timeout(120)
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_gigabyte_is_rejected_before_it_has_arrived(
    start_api: StartApi, figure: Callable[[str], None], chunked: bool
) -> None:
    """F4: a caller that sends it anyway is cut off, and the body is not kept in memory."""
    api = await start_api()
    async with api.watched() as watch:
        report = await attack("endless_body", api.port, total=GIGABYTE, span_s=30, chunked=chunked)
    answered, sent = (report[name] / 2**20 for name in ("answered_bytes", "sent_bytes_most"))
    figure(
        f"a gigabyte {'in chunks' if chunked else 'announced'}: {report['statuses']} after {answered:.0f} MiB, "
        f"{sent:.0f} MiB taken in {report['took_s']:.1f} s; {watch}"
    )
    assert report["statuses"] == {"413": 1}
    assert report["codes"] == {"too_large": 1}
    assert report["answered_bytes"] < 64 * 2**20
    assert watch.growth_mib < 40, watch
    assert watch.is_well(), watch


@pytest.mark.timeout(120)
async def test_a_caller_that_never_stops_sending_is_cut_off(start_api: StartApi) -> None:
    """F4: after the answer, the server discards what still arrives for two seconds and no longer."""
    api = await start_api()
    report = await attack("endless_body", api.port, total=1_000 * GIGABYTE, span_s=15, chunked=True)
    assert report["closed"] == 1
    assert report["took_s"] < 8


@pytest.mark.timeout(120)
async def test_bodies_that_lack_their_last_byte_do_not_fill_the_memory(
    start_api: StartApi, figure: Callable[[str], None]
) -> None:
    """F4: each body is allowed, all of them together are not."""
    api = await start_api(api_body_mib=32, api_receive_s=10)
    async with api.watched() as watch:
        report = await attack("parked_bodies", api.port, count=PARKED, span_s=4, size=1_900_000)
    figure(f"{PARKED} bodies of 1.9 MB parked, 32 MiB allowed: {report['statuses']}; {watch}")
    assert report["statuses"]["503"] >= PARKED // 2
    assert set(report["codes"]) == {"overloaded"}
    assert watch.growth_mib < 120, watch
    assert watch.is_well(), watch


async def test_json_of_any_depth_is_an_error_of_the_caller(start_api: StartApi) -> None:
    """F2, F4: 10,000 levels, in every request that has a body."""
    api = await start_api()
    brackets, braces = b"[" * _DEEP + b"]" * _DEEP, b'{"a":' * _DEEP + b"1" + b"}" * _DEEP
    job = "01890a5d-ac96-774b-bcce-b302099a8057"
    calls = [
        (b"POST", "/v1/jobs"),
        (b"POST", "/v1/jobs/batch"),
        (b"POST", "/v1/schedules/preview"),
        (b"PATCH", f"/v1/jobs/{job}"),
        (b"PATCH", f"/v1/jobs/{job}/status"),
        (b"POST", f"/v1/jobs/{job}/run"),
        (b"POST", f"/v1/jobs/{job}/backfill"),
        (b"POST", "/v1/dead-letters/replay"),
        (b"PUT", "/v1/tenants/a"),
        (b"PUT", "/v1/queues/a"),
        (b"PUT", "/v1/limits/a"),
    ]
    for method, path in calls:
        for deep in (brackets, braces):
            for body in (deep, b'{"handler":"a","payload":' + deep + b"}", b'[{"handler":"a","payload":' + deep + b"}]"):
                head = method + f" {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode()
                status, headers, text = await ask(api.port, head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
                assert status in (400, 404, 413, 422), (path, text)
                assert b"application/problem+json" in headers
                assert json.loads(text)["code"] in ("malformed", "not_found", "too_large", "invalid")
