"""Keeps pages of other sites out: a browser on this machine reaches loopback too, and the API asks nobody who they are."""

from __future__ import annotations

from urllib.parse import urlsplit

from sexton.api.answers.problems import Refused
from sexton.api.state import ApiRequest


async def reject_cross_site(request: ApiRequest) -> None:
    """A browser names the page's origin with everything that changes something; programs name none."""
    origin = request.headers.get("origin")
    if origin is None or request.method in ("GET", "HEAD", "OPTIONS"):
        return
    if urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
        raise Refused(
            "other_site", f"this came from a page of {origin[:100]!r}; only pages of this very address may change things"
        )
