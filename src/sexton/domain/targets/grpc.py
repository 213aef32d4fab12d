"""One unary gRPC call, as a job describes it, and its checks. The payload is the request, as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from sexton.domain.fault import Invalid

from .secret import SecretRef, check_name

ADDRESS_LIMIT = 300
METADATA_LIMIT = 50
VALUE_LIMIT = 4_096

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\[\]:/@\s\x00-\x1f\x7f]+)):(?P<port>\d{1,5})")
_METHOD = re.compile(r"(?P<service>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)/(?P<method>[A-Za-z_]\w*)", re.ASCII)
_KEY = re.compile(r"[a-z0-9_.-]{1,100}")
_PRINTABLE = re.compile(r"[\x20-\x7e]*")
# Set by Sexton or by gRPC: a job that could set them could give a false identity of the caller.
_RESERVED = frozenset(["connection", "content-type", "host", "idempotency-key", "te", "traceparent", "tracestate"])
_RESERVED_PREFIXES = ("grpc-", "sexton-")


class GrpcTarget(msgspec.Struct, tag_field="type", tag="grpc", frozen=True, omit_defaults=True):
    """`method` in full: `package.Service/Method`. `descriptors` names a registered descriptor set; without one, the worker
    asks the server by reflection."""

    address: str  # host:port
    method: str
    tls: bool = True
    metadata: Mapping[str, str | SecretRef] = msgspec.field(default_factory=dict)
    descriptors: str | None = None

    def check(self) -> None:
        """`Invalid` names the field and the fix. Not called for stored targets, which may come from an older version."""
        _ = self.host_and_port, self.service_and_method
        if len(self.metadata) > METADATA_LIMIT:
            raise Invalid("metadata", f"has {len(self.metadata)} entries; the limit is {METADATA_LIMIT}")
        for key, value in self.metadata.items():
            _check_entry(key, value)

    @property
    def host_and_port(self) -> tuple[str, int]:
        found = _ADDRESS.fullmatch(self.address)
        if found is None or not 1 <= int(found["port"]) <= 65_535 or len(self.address) > ADDRESS_LIMIT:
            raise Invalid("address", f"{self.address[:100]!r} is not an address; write host:port, such as billing.example:443")
        return found["v6"] or found["host"], int(found["port"])

    @property
    def service_and_method(self) -> tuple[str, str]:
        found = _METHOD.fullmatch(self.method.removeprefix("/"))
        if found is None:
            raise Invalid("method", f"{self.method!r} is not a method; write its full name: package.Service/Method")
        return found["service"], found["method"]


def _check_entry(key: str, value: str | SecretRef) -> None:
    field = f"metadata.{key}"
    if not _KEY.fullmatch(key):
        raise Invalid("metadata", f"{key!r} is not a valid key; use lowercase letters, digits, '-', '_' and '.'")
    if key in _RESERVED or key.startswith(_RESERVED_PREFIXES):
        raise Invalid(field, "is set by Sexton or by gRPC; remove it")
    if key.endswith("-bin"):
        raise Invalid(field, "binary metadata is not supported; remove it")
    if isinstance(value, SecretRef):
        check_name(value.secret, field=field)
    text = value.prefix if isinstance(value, SecretRef) else value
    if not _PRINTABLE.fullmatch(text):
        raise Invalid(field, "contains a character that is not printable ASCII")
    if len(text) > VALUE_LIMIT:
        raise Invalid(field, f"has {len(text):,} characters; the limit is {VALUE_LIMIT:,}")
