"""The messages between a worker and a process of its pool: JSON documents, each after its length in four bytes.

JSON, because arguments come from JSON and results are stored as JSON. So arguments and results do not depend on where a
function runs, and nothing is unpickled.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec

from sexton.domain.outcome import ErrorInfo
from sexton.errors import PermanentError, RetryLater, Snooze
from sexton.handlers.context import Call, Stopped

FRAME_LIMIT = 64 * 1024 * 1024
LENGTH_BYTES = 4


class Hello(msgspec.Struct, tag=True):
    """The first message to a new process: it makes imports work as in the worker."""

    search_path: list[str]
    argv: list[str]


class Start(msgspec.Struct, tag=True):
    module: str
    file: str | None  # the script to load if the module is `__main__`
    qualname: str
    call: Call


class StartBatch(msgspec.Struct, tag=True):
    """One call for several runs."""

    module: str
    file: str | None
    qualname: str
    runs: list[Call]
    left: list[int]  # those that the call is not to decide any more


class StopRun(msgspec.Struct, tag=True):
    """This run of a batch has left the call."""

    index: int


class Stop(msgspec.Struct, tag=True):
    """Refers to the last `Start`, even if its answer was already sent."""


class Alive(msgspec.Struct, tag=True):
    pass


class Progressed(msgspec.Struct, tag=True):
    progress: msgspec.Raw


class Logged(msgspec.Struct, tag=True):
    text: str


class Returned(msgspec.Struct, tag=True):
    result: Any


class Raised(msgspec.Struct, tag=True):
    kind: Literal["error", "permanent", "retry_later", "snooze", "stopped"]
    info: ErrorInfo
    delay_s: float = 0.0

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        info = ErrorInfo.of(error)
        match error:
            case Snooze():
                return cls("snooze", info, error.delay_s)
            case RetryLater():
                return cls("retry_later", info, error.delay_s)
            case PermanentError():
                return cls("permanent", info)
            case Stopped() | asyncio.CancelledError():
                return cls("stopped", info)
            case _:
                return cls("error", info)


Word = Alive | Progressed | Logged | Returned | Raised


class OfRun(msgspec.Struct, tag=True):
    """About one run of a batch: its output, or the handler's decision."""

    index: int
    what: Word


ToChild = Hello | Start | StartBatch | Stop | StopRun
ToParent = Word | OfRun

_encode = msgspec.json.Encoder().encode
_to_child: msgspec.json.Decoder[ToChild] = msgspec.json.Decoder(ToChild)
_to_parent: msgspec.json.Decoder[ToParent] = msgspec.json.Decoder(ToParent)


def frame(message: ToChild | ToParent) -> bytes:
    body = _encode(message)
    if len(body) > FRAME_LIMIT:
        raise ValueError(f"the message has {len(body):,} bytes; the limit is {FRAME_LIMIT:,}")
    return len(body).to_bytes(LENGTH_BYTES) + body


def body_length(header: bytes) -> int:
    return int.from_bytes(header)


def for_child(body: bytes) -> ToChild:
    return _to_child.decode(body)


def for_parent(body: bytes) -> ToParent:
    return _to_parent.decode(body)
