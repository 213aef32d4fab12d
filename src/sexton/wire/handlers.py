"""What runs a job: a Python task by its name, a URL, a gRPC method, an allowed command. The same in requests and in answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, assert_never

from msgspec import Meta, field

from sexton.domain.duration import seconds
from sexton.domain.fault import Invalid
from sexton.domain.targets import GrpcTarget, HttpTarget, ScriptTarget, SecretRef, Target

from .kinds import Request, Span, Word

Text = Annotated[str, Meta(max_length=65_536, extra_json_schema={"pattern": "^[^\\u0000]*$"})]
Url = Annotated[str, Meta(min_length=1, max_length=2_048, extra_json_schema={"format": "uri"})]
Statuses = Annotated[tuple[Word, ...], Meta(max_length=20, description="Status codes: `204`, or a class of them: `2xx`.")]


class SecretValue(Request, frozen=True, kw_only=True):
    """A secret by its name, which only the worker that calls can read, with an optional prefix such as `"Bearer "`."""

    secret: Word
    prefix: Text = ""


Value = Text | SecretValue
Values = Annotated[dict[Word, Value], Meta(max_length=50)]


class PythonHandler(Request, tag_field="type", tag="python", frozen=True, kw_only=True):
    """A Python task, by its name; the same as giving the name alone."""

    task: Word


class HttpHandler(Request, tag_field="type", tag="http", frozen=True, kw_only=True):
    """A call to a URL. Without a `body`, the payload is sent, as JSON. The worker rejects hosts that are not public."""

    url: Url
    method: Word = "POST"
    headers: Values = field(default_factory=dict)
    body: Text | None = None
    succeeds_on: Statuses = ("2xx",)
    retries_on: Statuses = ("408", "425", "429", "5xx")
    connect_timeout: Span = 5.0
    redirects: Annotated[int, Meta(ge=0, le=20)] = 0
    keeps_bytes: Annotated[int, Meta(ge=0, le=49_152)] = 16_384
    signed_with: Annotated[tuple[Word, ...], Meta(max_length=5)] = ()
    calls_back: Annotated[bool, Meta(description="A target that answers 202 may end the run later.")] = True

    def to_domain(self) -> HttpTarget:
        target = HttpTarget(
            url=self.url,
            method=self.method.upper(),
            headers=_refs(self.headers),
            body=self.body,
            succeeds_on=self.succeeds_on,
            retries_on=self.retries_on,
            connect_timeout_s=seconds(self.connect_timeout, field="connect_timeout"),
            redirects=self.redirects,
            keeps_bytes=self.keeps_bytes,
            signed_with=self.signed_with,
            calls_back=self.calls_back,
        )
        target.check()
        return target


class GrpcHandler(Request, tag_field="type", tag="grpc", frozen=True, kw_only=True):
    """A unary gRPC call; the payload is the request, as JSON."""

    address: Annotated[Word, Meta(description="host:port")]
    method: Annotated[Word, Meta(description="In full: package.Service/Method.")]
    tls: bool = True
    metadata: Values = field(default_factory=dict)
    descriptors: (
        Annotated[Word, Meta(description="A registered descriptor set; without it, the server's reflection is used.")] | None
    ) = None

    def to_domain(self) -> GrpcTarget:
        target = GrpcTarget(
            address=self.address,
            method=self.method,
            tls=self.tls,
            metadata=_refs(self.metadata),
            descriptors=self.descriptors,
        )
        target.check()
        return target


class ScriptHandler(Request, tag_field="type", tag="script", frozen=True, kw_only=True):
    """A command of the workers' allow-list, by its name; it gets the payload on its standard input, as JSON."""

    name: Word

    def to_domain(self) -> ScriptTarget:
        target = ScriptTarget(name=self.name)
        target.check()
        return target


TargetHandler = HttpHandler | GrpcHandler | ScriptHandler
Handler = Word | PythonHandler | TargetHandler


def task_or_target(handler: Handler) -> str | Target:
    """The form that `domain.job.submission` takes; `Invalid` names the field as it is spelled here."""
    match handler:
        case str():
            return handler
        case PythonHandler():
            return handler.task
        case _:
            try:
                return handler.to_domain()
            except Invalid as fault:
                raise Invalid(f"handler.{fault.field.removesuffix('_s')}", fault.message) from None


def handler_of(target: Target) -> TargetHandler:
    match target:
        case HttpTarget():
            return HttpHandler(
                url=target.url,
                method=target.method,
                headers=_values(target.headers),
                body=target.body,
                succeeds_on=target.succeeds_on,
                retries_on=target.retries_on,
                connect_timeout=target.connect_timeout_s,
                redirects=target.redirects,
                keeps_bytes=target.keeps_bytes,
                signed_with=target.signed_with,
                calls_back=target.calls_back,
            )
        case GrpcTarget():
            return GrpcHandler(
                address=target.address,
                method=target.method,
                tls=target.tls,
                metadata=_values(target.metadata),
                descriptors=target.descriptors,
            )
        case ScriptTarget():
            return ScriptHandler(name=target.name)
        case _:
            assert_never(target)


def words_of(handler: Handler) -> str:
    """For a table, or for a sentence."""
    match handler:
        case str():
            return handler
        case PythonHandler():
            return handler.task
        case HttpHandler():
            return f"{handler.method} {handler.url}"
        case GrpcHandler():
            return f"{handler.address} {handler.method}"
        case ScriptHandler():
            return f"script {handler.name}"
        case _:
            assert_never(handler)


def _refs(values: dict[str, str | SecretValue]) -> dict[str, str | SecretRef]:
    return {name: value if isinstance(value, str) else SecretRef(value.secret, value.prefix) for name, value in values.items()}


def _values(refs: Mapping[str, str | SecretRef]) -> dict[str, str | SecretValue]:
    return {
        name: ref if isinstance(ref, str) else SecretValue(secret=ref.secret, prefix=ref.prefix) for name, ref in refs.items()
    }
