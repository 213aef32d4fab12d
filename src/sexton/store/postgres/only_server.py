"""The server of a URL that names no other one: only then its answer tells that every session on it has ended."""

from __future__ import annotations

import os
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg


class OnlyServer(NamedTuple):
    socket: str | None  # the path of its Unix socket

    @classmethod
    def of(cls, url: str) -> OnlyServer | None:
        """Null if the URL names several servers: the driver tries them in turn, and raises the error of the last one. Null if
        it names none, because then the driver tries several places."""
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        named = unquote(parts.netloc.rpartition("@")[2]) or query.get("host", [""])[-1]
        if not named or "," in named:
            return None
        if not named.startswith("/"):
            return cls(None)
        folder, _, port = named.partition(":")
        return cls(f"{folder}/.s.PGSQL.{port or query.get('port', [os.environ.get('PGPORT') or '5432'])[-1]}")

    def is_down(self, error: BaseException) -> bool:
        """It says that it starts or stops, or its Unix socket does not exist. A refused TCP connection proves nothing: a
        firewall may refuse only this host. Another missing file may be a client certificate."""
        if isinstance(error, FileNotFoundError):
            return self.socket is not None and not os.path.exists(self.socket)
        return isinstance(error, asyncpg.CannotConnectNowError)
