"""What a job calls instead of a Python function: a URL, a gRPC method, an allowed command.

A target is part of a job's policy, so every version of the job and every claim of its runs contains it. The task name of such
a job is reserved. By rule "claim only known tasks", only workers that can call a target claim its runs.
"""

from __future__ import annotations

from sexton.domain.fault import Invalid

from .grpc import GrpcTarget
from .http import HttpTarget
from .script import ScriptTarget
from .secret import SecretRef

Target = HttpTarget | GrpcTarget | ScriptTarget

RESERVED = "sexton."  # no Python task has a name that starts with this
HTTP_TASK = "sexton.http"
GRPC_TASK = "sexton.grpc"
SCRIPT_TASK = "sexton.script:"  # followed by the command's name: a worker knows the commands of its own list


def task_of(target: Target) -> str:
    match target:
        case HttpTarget():
            return HTTP_TASK
        case GrpcTarget():
            return GRPC_TASK
        case ScriptTarget(name=name):
            return SCRIPT_TASK + name


def needs_of(target: Target | None) -> set[str]:
    """The secrets and the permission that a worker needs for the call, as it names them when it lacks them."""
    match target:
        case HttpTarget():
            refs = [value.secret for value in target.headers.values() if isinstance(value, SecretRef)]
            return {f"secret {name}" for name in [*refs, *target.signed_with]} | {f"outbound {target.host_and_port}"}
        case GrpcTarget():
            secrets = {f"secret {value.secret}" for value in target.metadata.values() if isinstance(value, SecretRef)}
            return secrets | {f"outbound {':'.join(map(str, target.host_and_port))}"}
        case _:
            return set()


def in_place_of(old: Target | None, new: Target | None) -> Target:
    """The target of an edited job. The task decides which workers claim its runs, so the task cannot change."""
    if old is None or new is None or task_of(old) != task_of(new):
        raise Invalid("handler", "the kind of handler and the name of the task or script cannot be changed; submit a new job")
    return new


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
    "in_place_of",
    "needs_of",
    "task_of",
]
