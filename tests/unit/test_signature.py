"""Calls are signed by Standard Webhooks, verified by an independent implementation."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from sexton.errors import PermanentError
from sexton.handlers.signature import message_id, signed

BODY = '{"type":"run.completed","data":{"name":"Zoë"}}'
OLD = "whsec_" + base64.b64encode(hashlib.sha256(b"old").digest()).decode()
NEW = "whsec_" + base64.b64encode(hashlib.sha256(b"new").digest()).decode()


def now() -> int:
    return int(datetime.now(UTC).timestamp())


def test_a_receiver_with_the_secret_accepts_the_call() -> None:
    headers = signed("msg_1", now(), BODY.encode(), [NEW])
    assert Webhook(NEW).verify(BODY, headers) == json.loads(BODY)


@pytest.mark.parametrize("known", [OLD, NEW])
def test_while_a_secret_is_replaced_receivers_with_either_accept_the_call(known: str) -> None:
    headers = signed("msg_1", now(), BODY.encode(), [NEW, OLD])
    assert len(headers["webhook-signature"].split(" ")) == 2
    assert Webhook(known).verify(BODY, headers)


@pytest.mark.parametrize(
    ("body", "changed"),
    [(BODY + " ", {}), (BODY, {"webhook-id": "msg_2"}), (BODY, {"webhook-timestamp": str(now() - 60)})],
    ids=["body", "id", "timestamp"],
)
def test_any_change_is_rejected(body: str, changed: dict[str, str]) -> None:
    headers = {**signed("msg_1", now(), BODY.encode(), [NEW]), **changed}
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(body, headers)


def test_a_secret_without_the_prefix_is_used_as_it_is() -> None:
    plain = "correct-horse"
    headers = signed("msg_1", now(), BODY.encode(), [plain])
    assert Webhook(base64.b64encode(plain.encode()).decode()).verify(BODY, headers)


def test_a_secret_that_is_not_base64_is_named_but_not_shown() -> None:
    with pytest.raises(PermanentError, match="signed_with") as refused:
        signed("msg_1", now(), b"", ["whsec_!!!very-private"])
    assert "private" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "expected"),
    [("invoice-42", "invoice-42"), (None, None), ("invoice.42", None), ("invoice 42", None), ("a" * 201, None)],
)
def test_the_id_is_the_jobs_own_key_if_it_is_valid(key: str | None, expected: str | None) -> None:
    """The same over attempts and replays, and without a dot, which separates the signed parts."""
    found = message_id(key, key or "job:time.5")
    assert found == (expected or found) == message_id(key, key or "job:time.5")
    assert "." not in found
