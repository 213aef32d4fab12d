"""The error message of a failed call. It names the call but never its query, which may contain secrets."""

from __future__ import annotations

import os

import aiohttp
from yarl import URL

from sexton.errors import PermanentError, TargetFailed


def named(method: str, url: URL) -> str:
    return f"{method} {url.with_query(None).with_fragment(None).with_user(None)}"


def failure(what: str, error: Exception, connect_timeout_s: float) -> Exception:
    """Transient, except for a call that can never be made."""
    match error:
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return PermanentError(f"{what}: the URL cannot be called")
        case aiohttp.ConnectionTimeoutError():
            return TargetFailed(f"{what}: no connection within {connect_timeout_s:g} s")
        case aiohttp.ClientConnectorError() | aiohttp.ClientConnectorCertificateError():
            return TargetFailed(f"{what}: {_unconnected(error)}")
        case aiohttp.ServerDisconnectedError():
            reason = "the connection was closed without a response"
        case aiohttp.ClientPayloadError():
            reason = "the response was incomplete"
        case aiohttp.ClientResponseError():
            reason = "the response is not HTTP"
        case OSError() if error.strerror:
            reason = f"the connection broke: {error.strerror}"
        case _:
            reason = f"the connection broke: {type(error).__name__}"
    return TargetFailed(f"{what}: {reason}")


def _unconnected(error: aiohttp.ClientConnectorError | aiohttp.ClientConnectorCertificateError) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the TLS certificate was rejected: {error.certificate_error}"
    why = error.os_error.strerror or str(error.os_error)
    match error:
        case aiohttp.ClientConnectorDNSError():
            return f"the host name cannot be resolved: {why}"
        case aiohttp.ClientConnectorSSLError():
            return f"the TLS connection failed: {why}"
        case _:  # only the system's message: other messages contain the internal address of the host
            return f"no connection: {os.strerror(error.os_error.errno) if error.os_error.errno else why}"
