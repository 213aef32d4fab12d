"""TCP keepalive: without it, a statement to a host that is down would wait for its whole timeout. The kernel closes a
connection whose other side has acknowledged nothing for a while. A host that is only slow still acknowledges."""

from __future__ import annotations

import asyncio
import socket

SILENCE_S = 10  # without an acknowledgement, of data or of a keepalive probe
ASK_AFTER_S = 5
ASK_EVERY_S = 1


def set_tcp_keepalive(transport: asyncio.BaseTransport) -> None:
    """Linux has all of these options; other systems use those they have."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", ASK_AFTER_S),
        ("TCP_KEEPINTVL", ASK_EVERY_S),
        ("TCP_KEEPCNT", max(1, (SILENCE_S - ASK_AFTER_S) // ASK_EVERY_S)),
        ("TCP_USER_TIMEOUT", SILENCE_S * 1000),
    ):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
