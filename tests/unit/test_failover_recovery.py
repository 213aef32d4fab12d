"""When the drill counts a service as recovered after a kill (requirement F6), and its message if it cannot run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

from chaos.failover import programs
from chaos.failover.__main__ import main
from chaos.failover.delayed_link import DelayedLink
from chaos.failover.load import Call
from chaos.failover.recovery import SILENCE_S, STEADY_S, Recovery, recovery

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

KILLED_AT = 100.0


def flow(first_s: float, last_s: float, *, sent_before_s: float = 0.01, start_of: int = 0) -> list[Call]:
    """A call acknowledged every tenth of a second, in seconds since the kill."""
    count = round((last_s - first_s) * 10)
    instants = [KILLED_AT + first_s + index / 10 for index in range(count + 1)]
    return [Call(at - sent_before_s, at, (UUID(int=start_of + index),)) for index, at in enumerate(instants)]


def started(calls: list[Call], after_s: float = 0.02) -> dict[UUID, float]:
    return {call.job_ids[0]: call.acknowledged_at + after_s for call in calls}


def test_the_last_answers_of_a_dying_server_are_not_its_recovery() -> None:
    calls = [*flow(0.05, 0.2), *flow(6.0, 12.0, start_of=50)]
    took = recovery(KILLED_AT, KILLED_AT + 12.0, calls, started(calls))
    assert took is not None
    assert (round(took.accepted_s, 2), round(took.started_s, 2), round(took.recovered_s, 2)) == (6.0, 6.02, 6.02)


def test_a_server_that_answers_once_and_is_silent_again_has_not_recovered() -> None:
    calls = [*flow(3.0, 3.2), *flow(5.0, 10.0, start_of=50)]
    took = recovery(KILLED_AT, KILLED_AT + 10.0, calls, started(calls))
    assert took is not None
    assert round(took.accepted_s, 2) == 5.0


def test_the_outage_is_not_over_before_answers_are_steady() -> None:
    calls = flow(6.0, 6.0 + STEADY_S / 2)
    assert recovery(KILLED_AT, calls[-1].acknowledged_at, calls, started(calls)) is None
    assert recovery(KILLED_AT, calls[-1].acknowledged_at + 2 * SILENCE_S, calls, started(calls)) is None
    assert recovery(KILLED_AT, KILLED_AT + 1.0, [], {}) is None


def test_only_a_start_of_a_run_submitted_after_the_kill_counts() -> None:
    before = flow(6.0, 6.5, sent_before_s=7.0)
    calls = [*before, *flow(6.6, 12.0, start_of=50)]
    assert recovery(KILLED_AT, KILLED_AT + 12.0, calls, started(before)) is None
    late = {calls[-1].job_ids[0]: KILLED_AT + 11.5}
    assert recovery(KILLED_AT, KILLED_AT + 12.0, calls, started(before) | late) == Recovery(6.0, 11.5)


async def test_bytes_in_transit_on_a_slow_link_are_lost_with_the_sender() -> None:
    async def send(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"acknowledged")
        await writer.drain()
        writer.transport.abort()

    server = await asyncio.start_server(send, "127.0.0.1", 0)
    for delay_s, arrives in ((30.0, b""), (0.0, b"acknowledged")):
        link = DelayedLink(server.sockets[0].getsockname()[1], delay_s)
        reader, writer = await asyncio.open_connection("127.0.0.1", await link.start())
        try:
            async with asyncio.timeout(5):
                got = await reader.read(64)
        except ConnectionResetError:
            got = b""
        assert got in (arrives, b"")
        writer.close()
        await link.close()
    server.close()


def test_without_the_packages_one_line_says_how_to_install_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(programs, "PATH", str(tmp_path))
    monkeypatch.setattr(programs, "POSTGRES_FOLDERS", tmp_path)
    assert main([]) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert "apt-get install --no-install-recommends postgresql patroni etcd-server haproxy" in errors
