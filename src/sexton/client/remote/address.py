"""The URL of the API, and its timeouts."""

from __future__ import annotations

from typing import Any

import httpx

from sexton.errors import ApiUnavailable

DEFAULT_URL = "http://127.0.0.1:8474"
TIMEOUT_S = 35.0  # longer than the statement timeout of the API, so that the API answers first
CONNECT_TIMEOUT_S = 5.0


def validated(url: str) -> str:
    """`ApiUnavailable` does not show the given URL: it may contain a password."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        parsed = httpx.URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ApiUnavailable(f"the URL of the API is not valid; write it as {DEFAULT_URL}")
    return url


def is_local(url: str) -> bool:
    """Calls to the same machine ignore HTTP_PROXY."""
    return httpx.URL(url).host in ("localhost", "127.0.0.1", "::1")


def shown(url: str) -> str:
    """Without the user's name and password."""
    parsed = httpx.URL(url)
    return str(parsed.copy_with(username=None, password=None)) if parsed.userinfo else url


def timeouts(timeout_s: float) -> httpx.Timeout:
    return httpx.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s))


def connection(url: str, timeout_s: float) -> dict[str, Any]:
    """The arguments of httpx's clients."""
    return {"base_url": validated(url), "timeout": timeouts(timeout_s), "trust_env": not is_local(url)}
