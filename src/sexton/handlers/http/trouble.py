"""What went wrong on the way, in words that name the call and never its query, which may hold what is nobody's business."""

from __future__ import annotations

import os

import aiohttp
from yarl import URL

from sexton.errors import PermanentError, TargetFailed


def named(method: str, url: URL) -> str:
    return f"{method} {url.with_query(None).with_fragment(None).with_user(None)}"


def failure(what: str, error: Exception, connect_timeout_s: float) -> Exception:
    """Transient, but for a call that could never be made."""
    match error:
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return PermanentError(f"{what}: the URL cannot be called")
        case aiohttp.ConnectionTimeoutError():
            return TargetFailed(f"{what}: no connection within {connect_timeout_s:g} s")
        case aiohttp.ClientConnectorError() | aiohttp.ClientConnectorCertificateError():
            return TargetFailed(f"{what}: {_unconnected(error)}")
        case aiohttp.ServerDisconnectedError():
            words = "the connection was closed without an answer"
        case aiohttp.ClientPayloadError():
            words = "the answer was cut short"
        case aiohttp.ClientResponseError():
            words = "the answer is not HTTP"
        case OSError() if error.strerror:
            words = f"the connection broke: {error.strerror}"
        case _:
            words = f"the connection broke: {type(error).__name__}"
    return TargetFailed(f"{what}: {words}")


def _unconnected(error: aiohttp.ClientConnectorError | aiohttp.ClientConnectorCertificateError) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"no secure connection: {error.certificate_error}"
    why = error.os_error.strerror or str(error.os_error)
    match error:
        case aiohttp.ClientConnectorDNSError():
            return f"the host cannot be looked up: {why}"
        case aiohttp.ClientConnectorSSLError():
            return f"no secure connection: {why}"
        case _:  # the system's own words: those of others name the address that a name has inside
            return f"no connection: {os.strerror(error.os_error.errno) if error.os_error.errno else why}"
