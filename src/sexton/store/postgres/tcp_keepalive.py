"""A host that vanishes says nothing: no packet comes back, and a statement would wait for its whole time limit. So the kernel
asks, and ends a connection whose other side has acknowledged nothing for a while. One that is only slow acknowledges, and is
left alone."""

from __future__ import annotations

import asyncio
import socket

SILENCE_S = 10  # without an acknowledgement, be it of what was sent or of a question whether anybody is there
ASK_AFTER_S = 5
ASK_EVERY_S = 1


def set_tcp_keepalive(transport: asyncio.BaseTransport) -> None:
    """Linux knows all of these options; elsewhere those there are have to do."""
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
