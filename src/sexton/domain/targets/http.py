"""One HTTP call, as a job describes it, and its checks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from urllib.parse import urlsplit

import msgspec

from sexton.domain.fault import Invalid

from .secret import SecretRef, check_name

URL_LIMIT = 2_048
BODY_BYTES_LIMIT = 16 * 1024  # every claim carries it; anything larger belongs in the payload
HEADER_LIMIT = 50
HEADER_BYTES_LIMIT = 4_096
REDIRECT_LIMIT = 20
KEPT_BYTES_LIMIT = 48 * 1024  # a result has at most 64 KiB
SECRET_LIMIT = 5
CONNECT_TIMEOUT_S_MAX = 300.0
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
BODILESS = ("GET", "HEAD", "DELETE", "OPTIONS")  # they send no payload, and a body only if the job gives one

# Set by Sexton or by the connection: a job that could set them could give a false identity or smuggle a second request.
_RESERVED = frozenset(
    (
        "connection",
        "content-length",
        "expect",
        "host",
        "idempotency-key",
        "keep-alive",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_RESERVED_PREFIXES = ("proxy-", "sexton-", "webhook-")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_PRINTABLE = re.compile(r"[\t\x20-\x7e]*")
_NOT_IN_A_URL = re.compile(r"[\x00-\x20\x7f\\]")
_STATUS = re.compile(r"[1-5](\d\d|xx)")


class HttpTarget(msgspec.Struct, tag_field="type", tag="http", frozen=True, omit_defaults=True):
    """`body` is sent unchanged; without one, the payload is sent as JSON. `signed_with` names the secrets that sign the call:
    more than one while a secret is being rotated."""

    url: str
    method: str = "POST"
    headers: Mapping[str, str | SecretRef] = msgspec.field(default_factory=dict)
    body: str | None = None
    succeeds_on: tuple[str, ...] = ("2xx",)
    retries_on: tuple[str, ...] = ("408", "425", "429", "5xx")
    connect_timeout_s: float = 5.0
    redirects: int = 0
    keeps_bytes: int = 16_384  # of the response body
    signed_with: tuple[str, ...] = ()
    calls_back: bool = True  # a target that answers 202 may end the run later; otherwise 202 has no special meaning

    @property
    def host_and_port(self) -> str:
        """As a worker names them when it refuses the call: a name in ASCII, an IPv6 address in its shortest form."""
        from yarl import URL  # only a worker and an explanation need it

        try:
            url = URL(self.url)
            return f"{url.raw_host}:{url.port}"
        except ValueError:
            return ""

    def check(self) -> None:
        """`Invalid` names the field and the fix. Not called for stored targets, which may come from an older version."""
        check_url(self.url)
        if self.method not in METHODS:
            raise Invalid("method", f"{self.method!r} is not one of {', '.join(METHODS)}")
        _check_headers(self.headers)
        _check_body(self.body or "")
        _check_statuses("succeeds_on", self.succeeds_on)
        _check_statuses("retries_on", self.retries_on)
        if not self.succeeds_on:
            raise Invalid("succeeds_on", "give at least one status, such as 2xx")
        _check_range("connect_timeout", self.connect_timeout_s, 0.01, CONNECT_TIMEOUT_S_MAX)
        _check_range("redirects", self.redirects, 0, REDIRECT_LIMIT)
        _check_range("keeps_bytes", self.keeps_bytes, 0, KEPT_BYTES_LIMIT)
        _check_range("signed_with", len(self.signed_with), 0, SECRET_LIMIT)
        for name in self.signed_with:
            check_name(name, field="signed_with")


@lru_cache(maxsize=1024)
def check_url(url: str) -> None:
    """Rejects a URL that cannot be called. The worker decides which hosts are allowed."""
    if len(url) > URL_LIMIT:
        raise Invalid("url", f"has {len(url):,} characters; the limit is {URL_LIMIT:,}")
    if _NOT_IN_A_URL.search(url):
        raise Invalid("url", "contains a space, a control character or a backslash; percent-encode it")
    try:
        parts = urlsplit(url)
        has_host, _ = bool(parts.hostname), parts.port
    except ValueError as error:
        raise Invalid("url", f"is not a valid URL: {error}") from None
    if parts.scheme not in ("http", "https"):
        raise Invalid("url", "must start with http:// or https://")
    if not has_host:
        raise Invalid("url", "has no host; write https://host/path")
    if parts.username is not None or parts.password is not None:
        raise Invalid("url", 'contains a user or a password; send them as a header: {"Authorization": {"secret": "name"}}')


def has_status(patterns: Sequence[str], status: int) -> bool:
    """`204` matches itself, `2xx` matches its whole class."""
    return f"{status // 100}xx" in patterns or str(status) in patterns


def is_reserved(header: str) -> bool:
    return header.lower() in _RESERVED or header.lower().startswith(_RESERVED_PREFIXES)


def _check_headers(headers: Mapping[str, str | SecretRef]) -> None:
    _check_range("headers", len(headers), 0, HEADER_LIMIT)
    seen: set[str] = set()
    for name, value in headers.items():
        field = f"headers.{name}"
        if not _TOKEN.fullmatch(name):
            raise Invalid("headers", f"{name!r} is not a valid header name")
        if is_reserved(name):
            raise Invalid(field, "is set by Sexton or by the connection; remove it")
        if name.lower() in seen:
            raise Invalid(field, "is given twice")
        seen.add(name.lower())
        if isinstance(value, SecretRef):
            check_name(value.secret, field=field)
        text = value.prefix if isinstance(value, SecretRef) else value
        if not _PRINTABLE.fullmatch(text):  # a line break would start another header
            raise Invalid(field, "contains a line break or another character that is not printable ASCII")
        if len(text) > HEADER_BYTES_LIMIT:
            raise Invalid(field, f"has {len(text):,} characters; the limit is {HEADER_BYTES_LIMIT:,}")


def _check_body(body: str) -> None:
    if "\x00" in body:
        raise Invalid("body", "contains a NUL character (U+0000), which PostgreSQL cannot store")
    size = len(body.encode("utf-8", "surrogatepass"))
    if size > BODY_BYTES_LIMIT:
        raise Invalid("body", f"has {size:,} bytes; the limit is {BODY_BYTES_LIMIT:,}. Send larger content as the payload")


def _check_statuses(field: str, patterns: Sequence[str]) -> None:
    for pattern in patterns:
        if not _STATUS.fullmatch(pattern):
            raise Invalid(field, f"{pattern!r} is not a status; write 204, or 2xx for a whole class")


def _check_range(field: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise Invalid(field, f"{value:g} must be between {least:g} and {most:,g}")
