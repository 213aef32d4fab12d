"""Jobs that call a gRPC method. Needs the extra `grpc`. No module outside this folder may import gRPC."""

from __future__ import annotations

import os

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # gRPC reads it on import; by default it logs every lost connection

from .calls import GrpcCalls

__all__ = ["GrpcCalls"]
