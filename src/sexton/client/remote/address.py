"""Where the API is, and how long it may take to answer."""

from __future__ import annotations

from typing import Any

import httpx

from sexton.errors import ApiUnavailable

DEFAULT_URL = "http://127.0.0.1:8474"
TIMEOUT_S = 35.0  # beyond the statement timeout behind the API, so that its own word comes first
CONNECT_TIMEOUT_S = 5.0


def validated(url: str) -> str:
    """`ApiUnavailable` without a word of what was given: it may hold a password."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        parsed = httpx.URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ApiUnavailable(f"the API's address is not one; write it as {DEFAULT_URL}")
    return url


def is_local(url: str) -> bool:
    """No proxy stands between a program and its own machine, whatever HTTP_PROXY says."""
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
