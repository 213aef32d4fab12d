"""What a status other than OK means for the run: that another attempt may help, or cannot; and how soon it may come."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import grpc
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, duration_pb2, message_factory
from google.protobuf.message import DecodeError

from sexton.domain.outcome import storable
from sexton.errors import PermanentError, RetryLater, SextonError, TargetFailed
from sexton.handlers.redaction import hidden

DETAILS_LIMIT = 300
RETRY_AFTER_S_MAX = 86_400.0

Metadata = Iterable[tuple[str, str | bytes]]
Code = grpc.StatusCode

# The caller is wrong, or the server will never do it. All others may pass: a server that is away or overloaded, one that lost a
# race, and UNKNOWN and INTERNAL, which is what a server says whose own code failed.
PERMANENT = frozenset(
    {
        Code.INVALID_ARGUMENT,
        Code.NOT_FOUND,
        Code.ALREADY_EXISTS,
        Code.PERMISSION_DENIED,
        Code.UNAUTHENTICATED,
        Code.FAILED_PRECONDITION,
        Code.OUT_OF_RANGE,
        Code.UNIMPLEMENTED,
        Code.DATA_LOSS,
    }
)
# LiveOutput by whoever stands before a server that is not there, or by our own side.
DOWN = frozenset({Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED})


def failure(what: str, error: grpc.aio.AioRpcError, secrets: Sequence[str]) -> SextonError:
    code, details = error.code(), hidden(storable(error.details() or ""), secrets)[:DETAILS_LIMIT]
    words = f"{what}: {code.name}" + (f": {details}" if details else "")
    if code in PERMANENT:
        return PermanentError(words)
    if _is_too_large(code, details):  # our own verdict on an answer: it has acted, and another attempt would only repeat that
        return PermanentError(f"{what}: the answer is too large: {details}")
    metadata = dict(error.trailing_metadata() or ())
    delay_s = _retry_after_s(metadata)
    return TargetFailed(words) if delay_s is None else RetryLater(words, delay_s=delay_s)


def _is_too_large(code: Code, details: str) -> bool:
    return code is Code.RESOURCE_EXHAUSTED and "larger than max" in details and "eceived message" in details


def _retry_after_s(metadata: Mapping[str, str | bytes]) -> float | None:
    """The longest of what the server asks for, in any of the three ways that are in use."""
    asked = [
        _number(metadata.get("retry-after")),
        _number(metadata.get("grpc-retry-pushback-ms"), 0.001),
        _retry_info_s(metadata.get("grpc-status-details-bin")),
    ]
    known = [delay_s for delay_s in asked if delay_s is not None]
    return min(max(known), RETRY_AFTER_S_MAX) if known else None


def _number(text: str | bytes | None, unit_s: float = 1.0) -> float | None:
    try:
        value = float(text or "") * unit_s
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _retry_info_s(data: str | bytes | None) -> float | None:
    """`google.rpc.RetryInfo` in a `google.rpc.Status`."""
    if not isinstance(data, bytes):
        return None
    try:
        for detail in _Status.FromString(data).details:  # type: ignore[attr-defined]
            if detail.type_url.endswith("/google.rpc.RetryInfo"):
                delay = _RetryInfo.FromString(detail.value).retry_delay  # type: ignore[attr-defined]
                return float(max(delay.seconds + delay.nanos / 1e9, 0.0))
    except DecodeError:
        pass
    return None


def _google_rpc() -> descriptor_pool.DescriptorPool:
    """The two messages that we read, as they are public; their package would bring a hundred more."""
    pool = descriptor_pool.DescriptorPool()
    for known in (any_pb2, duration_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(name="google/rpc/status.proto", package="google.rpc", syntax="proto3")
    file.dependency.extend([any_pb2.DESCRIPTOR.name, duration_pb2.DESCRIPTOR.name])
    field = descriptor_pb2.FieldDescriptorProto
    status = file.message_type.add(name="Status")
    status.field.add(name="code", number=1, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    status.field.add(name="message", number=2, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    status.field.add(
        name="details", number=3, type=field.TYPE_MESSAGE, label=field.LABEL_REPEATED, type_name=".google.protobuf.Any"
    )
    info = file.message_type.add(name="RetryInfo")
    info.field.add(
        name="retry_delay", number=1, type=field.TYPE_MESSAGE, label=field.LABEL_OPTIONAL, type_name=".google.protobuf.Duration"
    )
    pool.AddSerializedFile(file.SerializeToString())
    return pool


_pool = _google_rpc()
_Status = message_factory.GetMessageClass(_pool.FindMessageTypeByName("google.rpc.Status"))
_RetryInfo = message_factory.GetMessageClass(_pool.FindMessageTypeByName("google.rpc.RetryInfo"))
