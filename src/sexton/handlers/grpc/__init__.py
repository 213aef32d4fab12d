"""Jobs that call a gRPC method. Needs the extra `grpc`; nothing outside of this folder imports gRPC."""

from __future__ import annotations

import os

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # it is read when gRPC is loaded; by default it talks of every lost connection

from .calls import GrpcCalls

__all__ = ["GrpcCalls"]
