"""The headers that Sexton adds to a call: the caller, the fire, the idempotency key, the trace, the signature."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from urllib.parse import quote

from sexton.domain.targets import HttpTarget, SecretRef
from sexton.domain.targets.http import BODILESS, is_reserved
from sexton.handlers.context import Call, Context
from sexton.handlers.redaction import to_hide
from sexton.handlers.secrets import Secrets
from sexton.handlers.signature import message_id, signed
from sexton.ids import Rng

AGENT = "Sexton"
_TRACE = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(-.*)?")
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '%"')  # the rest of a key is percent-encoded


@dataclass(frozen=True, slots=True)
class Sending:
    """One call as it is sent; after a redirect, with fewer headers."""

    method: str
    headers: Mapping[str, str]  # for every origin
    entrusted: Mapping[str, str]  # only for the job's own origin
    body: bytes | None
    signed_with: tuple[str, ...]  # values
    redacted: tuple[str, ...]  # values that must not be shown if a response contains them


def sending(
    call: Call, context: Context, target: HttpTarget, secrets: Secrets, rng: Rng, entrusted: Mapping[str, str]
) -> Sending:
    """`entrusted` are Sexton's headers for the job's own origin only. Reserved headers of the job are left out: only a
    submission that was not checked can contain them."""
    plain: dict[str, str] = {"User-Agent": AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
    kept: dict[str, str] = {}
    bare: list[str] = []
    body = _body(call, target)
    if body is not None:
        plain["Content-Type"] = "application/json" if target.body is None else "text/plain; charset=utf-8"
    for name, value in target.headers.items():
        if is_reserved(name):
            continue
        for ours in [ours for ours in plain if ours.lower() == name.lower()]:
            del plain[ours]
        if isinstance(value, SecretRef):
            kept[name] = secrets.reveal(value)
            bare.append(kept[name].removeprefix(value.prefix))
        elif name.lower() in ("authorization", "cookie"):
            kept[name] = value
        else:
            plain[name] = value
    plain |= {
        "Idempotency-Key": quote(context.idempotency_key, safe=_SAFE, errors="backslashreplace"),
        "traceparent": trace_of(call, rng),
        "Sexton-Job": str(call.job_id),
        "Sexton-Run": str(call.run_id),
        "Sexton-Attempt": str(call.attempt),
        "Sexton-Scheduled-For": call.fire_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    }
    signing = tuple(value for name in target.signed_with for value in secrets.all_of(name))
    trusted = {**kept, **entrusted}
    return Sending(target.method, plain, trusted, body, signing, to_hide([*trusted.values(), *bare]))


def signature(call: Call, context: Context, sent: Sending, timestamp: int) -> dict[str, str]:
    if not sent.signed_with:
        return {}
    return signed(message_id(call.key, context.idempotency_key), timestamp, sent.body or b"", sent.signed_with)


def trace_of(call: Call, rng: Rng) -> str:
    """A new span for each call, in the submitter's trace if there is one, else in a trace of the run."""
    found = _TRACE.fullmatch(call.trace or "")
    trace, flags = (found[1], found[2]) if found else (call.run_id.hex, "00")
    return f"00-{trace}-{rng.getrandbits(64) or 1:016x}-{flags}"


def _body(call: Call, target: HttpTarget) -> bytes | None:
    if target.body is not None:
        return target.body.encode()
    if target.method in BODILESS or call.payload_json is None:
        return None
    return call.payload_json.encode()
