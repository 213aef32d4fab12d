"""Rejects pages of other sites: a browser on this machine reaches loopback too, and the API has no authentication."""

from __future__ import annotations

from urllib.parse import urlsplit

from sexton.api.answers.problems import Refused
from sexton.api.state import ApiRequest


async def reject_cross_site(request: ApiRequest) -> None:
    """A browser sends the page's origin with every request that changes something; programs send none."""
    origin = request.headers.get("origin")
    if origin is None or request.method in ("GET", "HEAD", "OPTIONS"):
        return
    if urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
        raise Refused(
            "other_site", f"this came from a page of {origin[:100]!r}; only pages of the API's own address may make changes"
        )
