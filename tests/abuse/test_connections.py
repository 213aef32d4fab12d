"""Connections that stay idle, or never finish a request (F4, F6). Long form: SEXTON_TEST_CONNECTIONS=15000."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from sexton.api.edge.connections import HEAD_BYTES_LIMIT
from tests.sizes import size

from .watch import answer, ask, attack, connected, is_problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import StartApi

CONNECTIONS = size("CONNECTIONS", 5_000)


@pytest.mark.timeout(180)
async def test_thousands_of_silent_connections_are_closed_and_do_no_harm(
    start_api: StartApi, figure: Callable[[str], None]
) -> None:
    """F4: without a deadline they would keep their places for ever."""
    api = await start_api(api_receive_s=3)
    async with api.watched() as watch:
        report = await attack("silent", api.port, count=CONNECTIONS, span_s=20)
    figure(f"{report['opened']:,} silent connections, {report['closed']:,} let go in {report['took_s']:.1f} s; {watch}")
    assert report["opened"] >= min(CONNECTIONS, 1_000)
    assert report["closed"] == report["opened"]
    assert watch.is_well(), watch
    assert max(watch.file_counts) >= report["opened"]
    assert api.process.num_fds() < 100
    assert watch.growth_mib < 20 + 0.03 * report["opened"], watch


@pytest.mark.timeout(120)
async def test_when_all_connections_are_in_use_the_longest_idle_one_is_closed(
    start_api: StartApi, figure: Callable[[str], None]
) -> None:
    """F4: also before a deadline has passed, so that a new connection is served."""
    api = await start_api(api_receive_s=60, api_connection_limit=50)
    attacking = asyncio.create_task(attack("silent", api.port, count=500, span_s=3))
    while api.process.num_fds() < 50:  # noqa: ASYNC110  (no notification for this)
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)  # a connection that arrives with the crowd may be closed with it
    async with api.watched() as watch:
        report = await attacking
    figure(f"500 silent connections for 50 places: {report['closed']} made room; {watch}")
    assert report["closed"] >= 440
    assert watch.is_well(), watch
    assert max(watch.file_counts) < 50 + 60


async def test_without_a_free_place_a_new_connection_gets_an_error(start_api: StartApi) -> None:
    """F4: active connections are not closed."""
    api = await start_api(api_connection_limit=1)
    async with connected(api.port) as (reader, writer):
        writer.write(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 200 " in await reader.readline()
        status, head, body = await ask(api.port, b"")
        assert is_problem(head, body, 503, "overloaded"), status
        assert b"retry-after" in head


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["slow_heads", "slow_bodies"])
async def test_a_request_that_arrives_byte_by_byte_is_cut_off(
    start_api: StartApi, figure: Callable[[str], None], kind: str
) -> None:
    """F4."""
    api = await start_api(api_receive_s=2)
    async with api.watched() as watch:
        report = await attack(kind, api.port, count=300, span_s=15, every_s=0.2)
    figure(f"{kind}: {report['statuses']} after {report['took_s']:.1f} s; {watch}")
    assert report["statuses"] == {"408": 300}
    assert report["codes"] == {"too_slow": 300}
    assert watch.is_well(), watch


@pytest.mark.timeout(120)
@pytest.mark.parametrize("many", [False, True])
async def test_an_endless_head_is_cut_off(start_api: StartApi, figure: Callable[[str], None], many: bool) -> None:
    """F4: one header or many."""
    api = await start_api()
    async with api.watched() as watch:
        report = await attack("endless_heads", api.port, count=50, span_s=20, many=many)
    figure(f"heads without end: {report['statuses']} after {report['took_s']:.1f} s; {watch}")
    assert report["closed"] == 50
    assert set(report["codes"]) <= {"head_too_large"}
    assert "open" not in report["statuses"]
    assert watch.growth_mib < 50, watch
    assert watch.is_well(), watch


async def test_a_long_head_within_the_limit_is_read(start_api: StartApi) -> None:
    api = await start_api()
    long = b"X-Long: " + b"a" * (HEAD_BYTES_LIMIT - 2_000) + b"\r\n"
    status, _, _ = await ask(api.port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + long + b"\r\n")
    assert status == 200
    for wrong in (b"X-Long: a\r\n" * 300, long + long, long * 15):
        status, head, body = await ask(api.port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + wrong + b"\r\n")
        assert is_problem(head, body, 431, "head_too_large"), (status, body)


@pytest.mark.timeout(120)
async def test_pipelined_requests_are_bounded(start_api: StartApi, figure: Callable[[str], None]) -> None:
    """F4: each is small, and a megabyte contains 30,000. Without a bound this takes 900 MiB within seconds."""
    api = await start_api()
    async with api.watched() as watch:
        report = await attack("ahead", api.port, count=2_000, span_s=4)
    figure(f"requests sent ahead: {report['answers']} answered, closed: {report['closed']}; {watch}")
    assert report["closed"] == 1
    assert watch.growth_mib < 50, watch
    assert watch.is_well(), watch
    assert "Traceback" not in api.member.log, api.member.log


async def test_a_few_pipelined_requests_are_all_answered(start_api: StartApi) -> None:
    """Also if one begins in the middle of a chunk that was read, after a long body."""
    api = await start_api()
    body = b'{"handler":"a","delay":"1h","payload":"' + b"x" * 200_000 + b'"}'
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    post = head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    get = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 30_000 + b"\r\n\r\n"
    async with connected(api.port) as (reader, writer):
        writer.write((post + get) * 10)
        assert [(await answer(reader))[0] for _ in range(20)] == [201, 200] * 10


async def test_a_request_that_is_not_http_gets_a_problem_and_is_not_logged(start_api: StartApi) -> None:
    """F2: invalid requests do not fill the log."""
    api = await start_api()
    for noise in (b"\x16\x03\x01\x02\x00\x01\x00\x01", b"HELO there\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x00" * 100):
        status, head, body = await ask(api.port, noise)
        assert is_problem(head, body, 400, "malformed"), (status, body)
    assert "Invalid HTTP" not in api.member.log
