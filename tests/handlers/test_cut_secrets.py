"""F3: an answer that is cut in the middle of a secret shows no part of it, in any form in which it is kept."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest

from sexton.domain.targets import HttpTarget
from sexton.errors import TargetFailed
from sexton.handlers.http.answer import SHOWN_BYTES, Answer, judge, result_of
from sexton.handlers.redaction import hidden

SECRET = "sk_live_hush"
NOW = datetime(2026, 3, 4, tzinfo=UTC)


def kept(body: bytes, content_type: str = "text/plain", *, truncated: bool = True) -> str:
    result = result_of(Answer(200, {"content-type": content_type}, body, truncated), [SECRET])
    return result["body"] if "body" in result else base64.b64decode(result["body_base64"]).decode("latin-1")


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/json", "text/plain; charset=zlib"], ids=["text", "json", "bytes"]
)
@pytest.mark.parametrize("length", range(4, len(SECRET)))
def test_the_start_of_a_secret_is_hidden_where_the_body_was_cut(length: int, content_type: str) -> None:
    body = f"token: {SECRET}, again: {SECRET[:length]}".encode()
    text = kept(body, content_type)
    assert text == "token: [secret], again: "


def test_a_whole_body_that_ends_like_a_secret_begins_is_kept() -> None:
    assert kept(b"the prefix is sk_live", truncated=False) == "the prefix is sk_live"
    assert kept(b"sk_", truncated=True) == "sk_", "three characters tell nothing"


def test_of_several_secrets_each_is_hidden_where_the_text_was_cut() -> None:
    for cut in ("abcdef"[:5], "uvwxyz"[:5]):
        assert hidden(f"see {cut}", ["abcdef", "uvwxyz"], is_cut=True) == "see "


def test_an_error_message_that_cuts_the_body_hides_the_start_of_a_secret() -> None:
    body = b"x" * (SHOWN_BYTES - 6) + SECRET.encode()
    with pytest.raises(TargetFailed) as failed:
        judge(Answer(503, {}, body, truncated=False), HttpTarget("https://billing.example"), "POST", [SECRET], NOW)
    assert "sk_l" not in str(failed.value)
