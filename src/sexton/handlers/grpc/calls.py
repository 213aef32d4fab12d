"""The handler of jobs that call a gRPC method: one unary call per attempt, with request and response as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import grpc
import msgspec
from google.protobuf import json_format
from google.protobuf.message import Message

from sexton.clock import Clock
from sexton.domain.fault import Invalid
from sexton.domain.job import RESULT_BYTES_LIMIT
from sexton.domain.targets import GrpcTarget, SecretRef
from sexton.errors import OutboundRefused, PermanentError, Snooze, TargetFailed
from sexton.handlers.breaker import Breaker, Patience
from sexton.handlers.context import Call, Context
from sexton.handlers.handle import Elsewhere, Handle, nowhere, refuse
from sexton.handlers.python.function import TaskHandle
from sexton.handlers.redaction import hidden, hidden_within, to_hide
from sexton.ids import Rng

from .channels import Channels, Where
from .methods import Method, Methods
from .statuses import DOWN, failure

DEADLINE_SLACK_S = 0.5  # the server gets the run's timeout plus this, so that the worker times out first
BREAKER_LIMIT = 10_000
PLACE_LIMIT = 1_000
REMEMBERED_S = 10.0  # resolved addresses of a host
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '%"')  # the rest of a key is percent-encoded


class WayOut(Protocol):
    def vet(self, host: str, port: int) -> None:
        """Checks a host before it is resolved."""

    def addresses(self, host: str, port: int) -> Awaitable[Sequence[str]]:
        """Its addresses; only those that may be called."""


class Revealing(Protocol):
    def reveal(self, ref: SecretRef) -> str: ...


class GrpcCalls:
    """`descriptors` are files that jobs may name, `roots` the CA certificates for servers. `elsewhere` tells whether
    another worker may allow a call that this one refuses."""

    def __init__(
        self,
        outbound: WayOut,
        secrets: Revealing,
        *,
        clock: Clock,
        rng: Rng,
        patience: Patience | None = None,
        descriptors: Mapping[str, Path] | None = None,
        roots: Path | None = None,
        elsewhere: Elsewhere = nowhere,
    ) -> None:
        self._elsewhere = elsewhere
        self._outbound, self._secrets, self._clock, self._rng = outbound, secrets, clock, rng
        self._patience = patience or Patience()
        self._channels = Channels(roots, clock=clock)
        self._methods = Methods(descriptors or {}, clock=clock)
        self._places: dict[tuple[str, bool], tuple[float, Where]] = {}
        self._breakers: dict[str, Breaker] = {}

    def start(self, call: Call, context: Context) -> Handle:
        target = call.target
        if not isinstance(target, GrpcTarget):
            raise PermanentError("the job has no gRPC method")
        try:
            target.check()
        except Invalid as fault:
            raise PermanentError(f"handler.{fault}") from None
        return TaskHandle(asyncio.get_running_loop().create_task(self._call(call, context, target)), context)

    async def close(self) -> None:
        await self._channels.close()

    async def _call(self, call: Call, context: Context, target: GrpcTarget) -> Any:
        try:
            return await self._allowed(call, context, target)
        except OutboundRefused as refused:  # before any call
            await refuse(self._elsewhere, call.run_id, *target.host_and_port, refused)

    async def _allowed(self, call: Call, context: Context, target: GrpcTarget) -> Any:
        self._outbound.vet(*target.host_and_port)
        breaker = self._breaker(target.address)
        rest_s = breaker.rest_left_s(self._clock.monotonic())
        if rest_s > 0:
            raise Snooze(rest_s * self._rng.uniform(1.0, 1.2), f"{target.address} is down")
        what = f"{target.address} {target.method}"
        secrets = self._revealed(target)
        breaker.begun()
        try:
            answer, method = await self._exchange(call, target, _metadata(call, context, target, secrets))
        except grpc.aio.AioRpcError as error:
            if error.code() in DOWN:
                breaker.failed(self._clock.monotonic())
            else:
                breaker.answered()
            raise failure(what, error, _bare(target, secrets)) from None
        except OSError as error:
            breaker.failed(self._clock.monotonic())
            raise TargetFailed(f"{what}: the host name cannot be resolved: {error.strerror}") from None
        except BaseException:
            breaker.undecided()
            raise
        breaker.answered()
        return _result(answer, method, context, _bare(target, secrets))

    async def _exchange(self, call: Call, target: GrpcTarget, metadata: grpc.aio.Metadata) -> tuple[Message, Method]:
        async with self._channels.channel(await self._where(target)) as channel:
            request, method = await self._request(call, target, channel, metadata)
            stub = channel.unary_unary(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.answer.FromString,
            )
            limit_s = None if call.timeout_s is None else call.timeout_s + DEADLINE_SLACK_S
            return await stub(request, timeout=limit_s, metadata=metadata), method

    async def _where(self, target: GrpcTarget) -> Where:
        """Resolved, checked and cached for a short time, because many calls come at once."""
        now, known = self._clock.monotonic(), self._places.get((target.address, target.tls))
        if known is None or now - known[0] >= REMEMBERED_S:
            host, port = target.host_and_port
            known = (now, Where.of(host, port, target.tls, await self._outbound.addresses(host, port)))
            if len(self._places) >= PLACE_LIMIT:
                self._places.clear()
            self._places[target.address, target.tls] = known
        return known[1]

    async def _request(
        self, call: Call, target: GrpcTarget, channel: grpc.aio.Channel, metadata: grpc.aio.Metadata
    ) -> tuple[Message, Method]:
        """A payload that does not match the cached messages may match the current ones of the server."""
        asked_at = self._clock.monotonic()
        method = await self._methods.find(target, channel, metadata)
        try:
            return _parsed(call, method), method
        except json_format.ParseError:
            method = await self._methods.find(target, channel, metadata, newer_than=asked_at)
        try:
            return _parsed(call, method), method
        except json_format.ParseError as error:
            raise PermanentError(f"payload: {error}") from None

    def _revealed(self, target: GrpcTarget) -> dict[str, str]:
        secrets = {key: self._secrets.reveal(ref) for key, ref in target.metadata.items() if isinstance(ref, SecretRef)}
        for key, value in secrets.items():
            if not (value.isascii() and value.isprintable()):  # the error of gRPC would contain the secret
                raise PermanentError(f"metadata.{key}: its secret contains a character that is not printable ASCII")
        return secrets

    def _breaker(self, address: str) -> Breaker:
        if address not in self._breakers and len(self._breakers) >= BREAKER_LIMIT:
            self._breakers.clear()  # dropped breakers only have to count failures again
        return self._breakers.setdefault(address, Breaker(self._patience, self._rng))


def _parsed(call: Call, method: Method) -> Message:
    text = call.payload_json or "{}"
    return json_format.Parse("{}" if text == "null" else text, method.request(), descriptor_pool=method.pool)


def _metadata(call: Call, context: Context, target: GrpcTarget, secrets: dict[str, str]) -> grpc.aio.Metadata:
    own = {
        "idempotency-key": _printable(context.idempotency_key),
        "sexton-job": str(call.job_id),
        "sexton-run": str(call.run_id),
        "sexton-attempt": str(call.attempt),
        "sexton-scheduled-for": call.fire_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    }
    trace = {} if call.trace is None else {"traceparent": _printable(call.trace)}
    plain = {key: value for key, value in target.metadata.items() if isinstance(value, str)}
    return grpc.aio.Metadata(*(plain | secrets | own | trace).items())


def _bare(target: GrpcTarget, secrets: Mapping[str, str]) -> Sequence[str]:
    """The secrets without their prefixes. They must not be shown if a response contains them."""
    refs = {key: ref for key, ref in target.metadata.items() if isinstance(ref, SecretRef)}
    return to_hide(secrets[key].removeprefix(ref.prefix) for key, ref in refs.items())


def _printable(text: str) -> str:
    return quote(text, safe=_SAFE, errors="backslashreplace")


def _result(answer: Message, method: Method, context: Context, secrets: Sequence[str]) -> Any:
    """No response makes the run fail here, because the call has already had its effect."""
    try:
        result = hidden_within(json_format.MessageToDict(answer, descriptor_pool=method.pool), secrets)
        size = len(msgspec.json.encode(result))
    except Exception as error:  # for example, a message of an unknown type
        context.log(hidden(f"the response is not stored, because it cannot be encoded as JSON: {error}", secrets))
        return None
    if size > RESULT_BYTES_LIMIT:
        context.log(f"the response of {size:,} bytes is not stored; the limit is {RESULT_BYTES_LIMIT:,} bytes")
        return None
    return result
