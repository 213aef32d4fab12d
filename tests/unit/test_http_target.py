"""C2: invalid HTTP calls are rejected at submission, with the field and the fix."""

from __future__ import annotations

from typing import Any

import pytest

from sexton.domain.fault import Invalid
from sexton.domain.job import submission
from sexton.domain.targets import HttpTarget, SecretRef
from sexton.domain.targets.http import has_status

GOOD = "https://a.example/path?q=1"


@pytest.mark.parametrize(
    "url",
    [
        GOOD,
        "http://a.example",
        "https://a.example:8443/",
        "https://[2606:4700::1]/",
        "https://bücher.example/ü",
        "HTTPS://A.example",
    ],
)
def test_an_ordinary_url_passes(url: str) -> None:
    HttpTarget(url).check()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a.example/path",
        "/path",
        "//a.example/",
        "ftp://a.example/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "http://",
        "http:///path",
        "http://:80/",
        "http://a.example:99999/",
        "http://a.example:port/",
        "http://[::1",
        "http://a.example/a b",
        "http://a.example/\r\nHost: b.example",
        "http://a.example\\@b.example/",
        "http://a\x00.example/",
        "http://user@a.example/",
        "http://user:password@a.example/",
        "https://a.example/" + "a" * 2_048,
    ],
)
def test_a_malformed_url_is_rejected(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        HttpTarget(url).check()
    assert refused.value.field == "url"
    assert "password@" not in refused.value.message


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"method": "TRACE"}, "method"),
        ({"method": "CONNECT"}, "method"),
        ({"method": "get"}, "method"),
        ({"headers": {"X-A": "1\r\nX-B: 2"}}, "headers.X-A"),
        ({"headers": {"X-A": "1\nX-B: 2"}}, "headers.X-A"),
        ({"headers": {"X-A": "Zoë"}}, "headers.X-A"),
        ({"headers": {"X-A": SecretRef("a", "x\r\n")}}, "headers.X-A"),
        ({"headers": {"X-A": SecretRef("../a")}}, "headers.X-A"),
        ({"headers": {"X A": "1"}}, "headers"),
        ({"headers": {"X-A:": "1"}}, "headers"),
        ({"headers": {"": "1"}}, "headers"),
        ({"headers": {"Host": "b.example"}}, "headers.Host"),
        ({"headers": {"content-length": "5"}}, "headers.content-length"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, "headers.Transfer-Encoding"),
        ({"headers": {"Connection": "close"}}, "headers.Connection"),
        ({"headers": {"Proxy-Authorization": "x"}}, "headers.Proxy-Authorization"),
        ({"headers": {"Idempotency-Key": "x"}}, "headers.Idempotency-Key"),
        ({"headers": {"Sexton-Anything": "x"}}, "headers.Sexton-Anything"),
        ({"headers": {"Webhook-Signature": "x"}}, "headers.Webhook-Signature"),
        ({"headers": {"X-A": "1", "x-a": "2"}}, "headers.x-a"),
        ({"headers": {"X-A": "a" * 4_097}}, "headers.X-A"),
        ({"headers": {f"X-{n}": "1" for n in range(51)}}, "headers"),
        ({"body": "a" * 20_000}, "body"),
        ({"body": "\x00"}, "body"),
        ({"succeeds_on": ()}, "succeeds_on"),
        ({"succeeds_on": ("2yy",)}, "succeeds_on"),
        ({"retries_on": ("6xx",)}, "retries_on"),
        ({"connect_timeout_s": 0}, "connect_timeout"),
        ({"connect_timeout_s": 301.0}, "connect_timeout"),
        ({"redirects": 21}, "redirects"),
        ({"keeps_bytes": 49_153}, "keeps_bytes"),
        ({"signed_with": ("Not A Name",)}, "signed_with"),
        ({"signed_with": ("a",) * 6}, "signed_with"),
    ],
)
def test_each_fault_is_named(options: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        submission(HttpTarget(GOOD, **options), {})
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("patterns", "status", "expected"), [(("2xx",), 204, True), (("204",), 204, True), (("204",), 200, False), ((), 200, False)]
)
def test_a_pattern_means_a_status_or_its_class(patterns: tuple[str, ...], status: int, expected: bool) -> None:
    assert has_status(patterns, status) is expected
