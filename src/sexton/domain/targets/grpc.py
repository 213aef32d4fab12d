"""One unary gRPC call, as a job describes it. The payload is the request, as JSON."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .secret import SecretRef


class GrpcTarget(msgspec.Struct, tag_field="type", tag="grpc", frozen=True, omit_defaults=True):
    """`method` in full: `package.Service/Method`. `descriptors` names a registered descriptor set; without one, the server is
    asked by reflection."""

    address: str  # host:port
    method: str
    tls: bool = True
    metadata: Mapping[str, str | SecretRef] = msgspec.field(default_factory=dict)
    descriptors: str | None = None
