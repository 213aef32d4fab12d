"""The request and response messages of a method: from a registered descriptor set, or from the server's reflection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grpc
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError, Message
from grpc_reflection.v1alpha import reflection_pb2

from sexton.clock import Clock
from sexton.domain.targets import GrpcTarget
from sexton.errors import PermanentError

FRESH_S = 300.0
REMEMBERED_LIMIT = 1_000
FILE_LIMIT = 500
REFLECTION_S = 10.0
VERSIONS = ("grpc.reflection.v1", "grpc.reflection.v1alpha")  # the same messages under two names

Files = dict[str, descriptor_pb2.FileDescriptorProto]

_WELL_KNOWN: Files = {}
for _module in (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2):
    _WELL_KNOWN[_module.DESCRIPTOR.name] = descriptor_pb2.FileDescriptorProto.FromString(_module.DESCRIPTOR.serialized_pb)


@dataclass(frozen=True, slots=True)
class Method:
    path: str
    request: type[Message]
    answer: type[Message]
    pool: descriptor_pool.DescriptorPool
    found_at: float  # monotonic


class Methods:
    """`descriptors` are files of `protoc --include_imports --descriptor_set_out`, by the names that jobs use."""

    def __init__(self, descriptors: Mapping[str, Path], *, clock: Clock) -> None:
        self._descriptors = descriptors
        self._clock = clock
        self._known: dict[tuple[str, bool, str, str | None], Method] = {}

    async def find(
        self, target: GrpcTarget, channel: grpc.aio.Channel, metadata: grpc.aio.Metadata, *, newer_than: float | None = None
    ) -> Method:
        """Cached for a while. It is looked up again if the cached one is not newer than `newer_than`. The job's `metadata` is
        sent along, because a server may require a token for reflection."""
        key = (target.address, target.tls, target.method, target.descriptors)
        now, known = self._clock.monotonic(), self._known.get(key)
        if known is not None and now - known.found_at < FRESH_S and (newer_than is None or known.found_at > newer_than):
            return known
        service, method = target.service_and_method
        name = target.descriptors
        files = await _ask(channel, service, metadata) if name is None else self._registered(name)
        found = _method(files, service, method, now)
        if len(self._known) >= REMEMBERED_LIMIT:
            self._known.clear()
        self._known[key] = found
        return found

    def _registered(self, name: str) -> Files:
        path = self._descriptors.get(name)
        if path is None:
            raise PermanentError(f"descriptors {name!r} are unknown to this worker; add them to SEXTON_GRPC_DESCRIPTORS")
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file
        except OSError as error:
            raise PermanentError(f"descriptors {name!r} cannot be read: {error.strerror}") from None
        except DecodeError:
            raise PermanentError(f"descriptors {name!r} are not a file written by protoc --descriptor_set_out") from None
        return {file.name: file for file in files}


async def _ask(channel: grpc.aio.Channel, service: str, metadata: grpc.aio.Metadata) -> Files:
    for version in VERSIONS:
        try:
            return await _ask_in(version, channel, service, metadata)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
    raise PermanentError("the server does not support reflection; register a descriptor set for it")


async def _ask_in(version: str, channel: grpc.aio.Channel, service: str, metadata: grpc.aio.Metadata) -> Files:
    stub = channel.stream_stream(
        f"/{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    stream = stub(timeout=REFLECTION_S, metadata=metadata)
    files: Files = {}
    wanted = reflection_pb2.ServerReflectionRequest(file_containing_symbol=service)
    try:
        while True:
            await stream.write(wanted)
            answer = await stream.read()
            if not isinstance(answer, reflection_pb2.ServerReflectionResponse):
                raise PermanentError(f"the server ended the reflection of {service} early")
            files |= _files_of(answer, service)
            missing = next(_missing(files), None)
            if missing is None:
                return files
            if len(files) > FILE_LIMIT:
                raise PermanentError(f"{service} needs more than {FILE_LIMIT} descriptor files")
            wanted = reflection_pb2.ServerReflectionRequest(file_by_filename=missing)
    finally:
        stream.cancel()


def _files_of(answer: reflection_pb2.ServerReflectionResponse, service: str) -> Files:
    if answer.HasField("error_response"):
        raise PermanentError(f"the server does not know {service}")
    try:
        given = answer.file_descriptor_response.file_descriptor_proto
        return {file.name: file for file in map(descriptor_pb2.FileDescriptorProto.FromString, given)}
    except DecodeError:
        raise PermanentError(f"the server's description of {service} cannot be read") from None


def _missing(files: Files) -> Iterator[str]:
    for file in files.values():
        yield from (name for name in file.dependency if name not in files and name not in _WELL_KNOWN)


def _method(files: Files, service: str, method: str, now: float) -> Method:
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in _in_order(files):
            pool.AddSerializedFile(file.SerializeToString())
        described = pool.FindServiceByName(service)
    except KeyError:
        raise PermanentError(f"the descriptors contain no service {service}") from None
    except (TypeError, CycleError) as error:
        raise PermanentError(f"the messages of {service} are inconsistent: {error}") from None
    found = described.methods_by_name.get(method)
    if found is None:
        known = ", ".join(described.methods_by_name) or "none"
        raise PermanentError(f"{service} has no method {method!r}; it has {known}")
    if found.client_streaming or found.server_streaming:
        raise PermanentError(f"{service}/{method} is a stream; a job can only call methods with one request and one response")
    return Method(
        f"/{service}/{method}",
        message_factory.GetMessageClass(found.input_type),
        message_factory.GetMessageClass(found.output_type),
        pool,
        now,
    )


def _in_order(files: Files) -> Iterator[descriptor_pb2.FileDescriptorProto]:
    """Each file after the files that it imports."""
    known = _WELL_KNOWN | files
    for name in TopologicalSorter({name: file.dependency for name, file in known.items()}).static_order():
        if name in known:  # otherwise the pool reports the missing file
            yield known[name]
