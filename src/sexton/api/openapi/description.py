"""An operation of the API, declared beside its handler: `document.py` makes the OpenAPI document of these declarations."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import wraps
from typing import Any

import msgspec
from litestar import HttpMethod as Method
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from litestar.types import Empty

from sexton.api.answers.problems import Refused
from sexton.api.locked_requests import LockedOut, changed_by
from sexton.api.requests.bodies import JSON
from sexton.api.requests.parameters import no_query
from sexton.api.state import ON_SEAT, ApiRequest, state_of
from sexton.errors import Contention, KeyBusy
from sexton.store.database import Database

Handle = Callable[[ApiRequest], Awaitable[Response[Any]]]

WORDS_OF_HEADERS = {
    "Idempotency-Key": "The same as `idempotency_key`, bare or quoted: a repeated request returns the first job.",
    "traceparent": "W3C Trace Context; stored with the job. Ignored if it is malformed.",
    "If-Match": "The ETag of the job as you know it (only its version counts), or `*`.",
    "If-None-Match": "The ETag you have; 304 if nothing has changed.",
    "Authorization": "`Bearer` and the lease of the run, if the body does not show it.",
    "Last-Event-ID": "The `id` of the last event you received, to resume there.",
}
WORDS_OF_ANSWERS = {
    "Location": "The address of the job.",
    "ETag": "Version and digest of the job.",
    "Idempotent-Replayed": "`true` if the key or an equal job already existed, and no job was created.",
}


@dataclass(frozen=True)
class Body:
    """`kinds` by media type; the first is that of the examples."""

    kinds: Mapping[str, Any]
    examples: Mapping[str, Any] = field(default_factory=dict)
    required: bool = True
    limit: int | None = None  # bytes; None: the limit of the app, for short bodies


@dataclass(frozen=True)
class Answer:
    description: str
    kind: Any = None  # None: no body; a tuple: one of them
    media_type: str = JSON
    headers: tuple[str, ...] = ()
    example: Any = None


@dataclass(frozen=True)
class Operation:
    """Decorates the function that answers it, and creates the Litestar handler. Every operation must give the fields without a
    default. The function's docstring is the summary and, after an empty line, the description."""

    route: str  # method and path: "GET /v1/jobs"
    _: KW_ONLY
    id: str
    tag: str
    answers: Mapping[int, Answer]
    summary: str = ""  # for operations that are created in code and have no docstring
    description: str = ""
    query: type[msgspec.Struct] | None = None  # None: a request with a query is rejected
    any_query: bool = False  # a query is ignored
    body: Body | None = None
    headers: tuple[str, ...] = ()
    problems: tuple[int, ...] = ()  # in addition to those of a query, a body or a change
    documented_path: str | None = None  # as callers write it, if the route itself is wider

    @property
    def method(self) -> Method:
        return Method(self.route.partition(" ")[0])

    @property
    def path(self) -> str:
        return self.route.partition(" ")[2]

    def __call__(self, handle: Handle) -> HTTPRouteHandler:
        return HTTPRouteHandler(
            self.path,
            http_method=self.method,
            status_code=200,  # a response that has its own status keeps it
            request_max_body_size=Empty if self.body is None or self.body.limit is None else self.body.limit,
            opt={"operation": self if self.summary else self._said_by(handle)},
        )(_waiting_alone(handle if self.any_query or self.query is not None else _without_query(handle)))

    def _said_by(self, handle: Handle) -> Operation:
        summary, _, description = inspect.cleandoc(handle.__doc__ or self.id).partition("\n\n")
        return replace(self, summary=summary.removesuffix("."), description=" ".join(description.split()))


def _without_query(handle: Handle) -> Handle:
    @wraps(handle)
    async def checked(request: ApiRequest) -> Response[Any]:
        no_query(request)
        return await handle(request)

    return checked


def _waiting_alone(handle: Handle) -> Handle:
    """Rule "a waiting caller leaves the group": a request that meets a lock on the shared connections starts again in the
    waiting pool, and one that would meet a lock that is known starts there."""

    @wraps(handle)
    async def answered(request: ApiRequest) -> Response[Any]:
        waiting, resource = state_of(request).locked_requests, changed_by(request)
        refusal: Refused | None = None
        if resource is not None:
            await request.body()  # a caller that sends it slowly keeps no other waiting
        try:
            async with waiting.tried(resource):
                return await handle(request)
        except (Contention, KeyBusy) as error:
            if isinstance(error, LockedOut):
                resource, refusal = error.resource, error.refusal
        try:
            async with waiting.turn(resource) as database:
                return await _on_seat(request, handle, database)
        except Contention as error:
            if isinstance(error, LockedOut):
                refusal = error.refusal or refusal
            if refusal is not None:
                raise refusal from None
            raise

    return answered


async def _on_seat(request: ApiRequest, handle: Handle, database: Database) -> Response[Any]:
    scope: Any = request.scope
    scope[ON_SEAT] = state_of(request).on_seat(database)
    try:
        return await handle(request)
    finally:
        del scope[ON_SEAT]


def body(kind: Any, *, limit: int | None = None, **examples: Any) -> Body:
    return Body({JSON: kind}, examples, limit=limit)


def ok(description: str, kind: Any, **more: Any) -> dict[int, Answer]:
    """The answers of an operation with one answer."""
    return {200: Answer(description, kind, **more)}
