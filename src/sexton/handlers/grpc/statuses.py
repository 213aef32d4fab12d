"""What a status other than OK means for the run: whether another attempt may help, and how soon it may start."""

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

# Permanent: the request is wrong, or the server will never accept it. All others may succeed later: the server is down or
# overloaded, it lost a race, or its own code failed (UNKNOWN and INTERNAL).
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
# Sent by a proxy in front of a server that is down, or raised by the client itself.
DOWN = frozenset({Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED})


def failure(what: str, error: grpc.aio.AioRpcError, secrets: Sequence[str]) -> SextonError:
    code, details = error.code(), hidden(storable(error.details() or ""), secrets)[:DETAILS_LIMIT]
    message = f"{what}: {code.name}" + (f": {details}" if details else "")
    if code in PERMANENT:
        return PermanentError(message)
    if _is_too_large(
        code, details
    ):  # raised by this client: the call has had its effect, and another attempt would only repeat it
        return PermanentError(f"{what}: the response is too large: {details}")
    metadata = dict(error.trailing_metadata() or ())
    delay_s = _retry_after_s(metadata)
    return TargetFailed(message) if delay_s is None else RetryLater(message, delay_s=delay_s)


def _is_too_large(code: Code, details: str) -> bool:
    return code is Code.RESOURCE_EXHAUSTED and "larger than max" in details and "eceived message" in details


def _retry_after_s(metadata: Mapping[str, str | bytes]) -> float | None:
    """The longest delay that the server asks for, in any of the three ways that servers use."""
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
    """Only the two public messages that are needed here; their package would add a hundred more."""
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
