"""Sexton, a distributed job scheduler on PostgreSQL. This module re-exports the public names and does nothing else.

They are looked up when first used, so that a child process which runs one handler does not pay for the whole client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sexton.client.app import App
    from sexton.client.dead_letters import DeadLetters, Replayed
    from sexton.client.remote.async_client import AsyncClient, AsyncHandle
    from sexton.client.remote.client import Client, Handle
    from sexton.client.request import Request
    from sexton.client.results import Submitted
    from sexton.client.schedules import Scheduled, ScheduleRequest
    from sexton.client.task import Task
    from sexton.domain.batch import Batch
    from sexton.domain.job import Unique
    from sexton.domain.limit import Limit
    from sexton.domain.outcome import ErrorInfo
    from sexton.domain.retry import Retry
    from sexton.domain.targets import GrpcTarget, HttpTarget, ScriptTarget, SecretRef
    from sexton.errors import (
        AlreadyExists,
        AmbiguousCron,
        ApiError,
        ApiUnavailable,
        Contention,
        DatabaseUnavailable,
        EmbeddedUnavailable,
        ForeignDatabase,
        InvalidSetting,
        InvalidSubmission,
        JobFailed,
        KeyBusy,
        KeyReused,
        LeaseLost,
        LimitExceeded,
        NotAllowedIn,
        NotFound,
        PermanentError,
        ResultTimeout,
        RetryLater,
        RunFailed,
        SchemaMismatch,
        SextonError,
        Snooze,
        UnknownTask,
        VersionMismatch,
    )
    from sexton.handlers.context import Context
    from sexton.handlers.python.batch.context import BatchContext, Run
    from sexton.operations.cancel import Cancellation
    from sexton.settings import Settings
    from sexton.store.work.dead_letters import DeadLetter, Filter
    from sexton.store.work.jobs import Execution, JobView

_HOMES = {
    "sexton.client.app": ("App",),
    "sexton.client.dead_letters": (
        "DeadLetters",
        "Replayed",
    ),
    "sexton.client.remote.async_client": (
        "AsyncClient",
        "AsyncHandle",
    ),
    "sexton.client.remote.client": (
        "Client",
        "Handle",
    ),
    "sexton.client.request": ("Request",),
    "sexton.client.results": ("Submitted",),
    "sexton.client.schedules": (
        "ScheduleRequest",
        "Scheduled",
    ),
    "sexton.client.task": ("Task",),
    "sexton.domain.batch": ("Batch",),
    "sexton.domain.job": ("Unique",),
    "sexton.domain.limit": ("Limit",),
    "sexton.domain.outcome": ("ErrorInfo",),
    "sexton.domain.retry": ("Retry",),
    "sexton.domain.targets": (
        "GrpcTarget",
        "HttpTarget",
        "ScriptTarget",
        "SecretRef",
    ),
    "sexton.errors": (
        "AlreadyExists",
        "AmbiguousCron",
        "ApiError",
        "ApiUnavailable",
        "Contention",
        "DatabaseUnavailable",
        "EmbeddedUnavailable",
        "ForeignDatabase",
        "InvalidSetting",
        "InvalidSubmission",
        "JobFailed",
        "KeyBusy",
        "KeyReused",
        "LeaseLost",
        "LimitExceeded",
        "NotAllowedIn",
        "NotFound",
        "PermanentError",
        "ResultTimeout",
        "RetryLater",
        "RunFailed",
        "SchemaMismatch",
        "SextonError",
        "Snooze",
        "UnknownTask",
        "VersionMismatch",
    ),
    "sexton.handlers.context": ("Context",),
    "sexton.handlers.python.batch.context": (
        "BatchContext",
        "Run",
    ),
    "sexton.settings": ("Settings",),
    "sexton.store.work.dead_letters": (
        "DeadLetter",
        "Filter",
    ),
    "sexton.store.work.jobs": (
        "Execution",
        "JobView",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AlreadyExists",
    "AmbiguousCron",
    "ApiError",
    "ApiUnavailable",
    "App",
    "AsyncClient",
    "AsyncHandle",
    "Batch",
    "BatchContext",
    "Cancellation",
    "Client",
    "Contention",
    "Context",
    "DatabaseUnavailable",
    "DeadLetter",
    "DeadLetters",
    "EmbeddedUnavailable",
    "ErrorInfo",
    "Execution",
    "Filter",
    "ForeignDatabase",
    "GrpcTarget",
    "Handle",
    "HttpTarget",
    "InvalidSetting",
    "InvalidSubmission",
    "JobFailed",
    "JobView",
    "KeyBusy",
    "KeyReused",
    "LeaseLost",
    "Limit",
    "LimitExceeded",
    "NotAllowedIn",
    "NotFound",
    "PermanentError",
    "Replayed",
    "Request",
    "ResultTimeout",
    "Retry",
    "RetryLater",
    "Run",
    "RunFailed",
    "ScheduleRequest",
    "Scheduled",
    "SchemaMismatch",
    "ScriptTarget",
    "SecretRef",
    "Settings",
    "SextonError",
    "Snooze",
    "Submitted",
    "Task",
    "Unique",
    "UnknownTask",
    "VersionMismatch",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'sexton' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value
