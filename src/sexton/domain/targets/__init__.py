"""What a job calls outside of Python: a URL, a gRPC method, an allowed command.

A target is part of a job's policy, so it travels with every version of the job and every claim of its runs. The task of such a
job is reserved: workers claim only tasks that they know (rule 18), so only those that can reach a target claim its runs.
"""

from __future__ import annotations

from .grpc import GrpcTarget
from .http import HttpTarget
from .script import ScriptTarget
from .secret import SecretRef

Target = HttpTarget | GrpcTarget | ScriptTarget

RESERVED = "sexton."  # no Python task is named like this
HTTP_TASK = "sexton.http"
GRPC_TASK = "sexton.grpc"
SCRIPT_TASK = "sexton.script:"  # and the command's name: a worker knows those on its own list


def task_of(target: Target) -> str:
    match target:
        case HttpTarget():
            return HTTP_TASK
        case GrpcTarget():
            return GRPC_TASK
        case ScriptTarget(name=name):
            return SCRIPT_TASK + name


__all__ = [
    "GRPC_TASK",
    "HTTP_TASK",
    "RESERVED",
    "SCRIPT_TASK",
    "GrpcTarget",
    "HttpTarget",
    "ScriptTarget",
    "SecretRef",
    "Target",
    "task_of",
]
