"""A real gRPC server for tests, with messages made in Python: it answers as the test says, and records the calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.message import Message
from grpc_reflection.v1alpha import reflection, reflection_pb2
from grpc_reflection.v1alpha._async import ReflectionServicer

SERVICE = "shop.v1.Orders"
Reflection = Literal["grpc.reflection.v1", "grpc.reflection.v1alpha"]
Answer = Callable[[Any, "Seen"], Awaitable[dict[str, Any]] | dict[str, Any]]


def files(*extra_fields: str) -> descriptor_pb2.FileDescriptorSet:
    """`shop/v1/orders.proto` and the file that it imports."""
    kinds = descriptor_pb2.FieldDescriptorProto
    things = descriptor_pb2.FileDescriptorProto(name="shop/v1/things.proto", package="shop.v1", syntax="proto3")
    thing = things.message_type.add(name="Thing")
    thing.field.add(name="sku", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    orders = descriptor_pb2.FileDescriptorProto(name="shop/v1/orders.proto", package="shop.v1", syntax="proto3")
    orders.dependency.extend(["google/protobuf/timestamp.proto", things.name])
    order = orders.message_type.add(name="Order")
    order.field.add(name="user_id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    order.field.add(
        name="at", number=2, type=kinds.TYPE_MESSAGE, label=kinds.LABEL_OPTIONAL, type_name=".google.protobuf.Timestamp"
    )
    order.field.add(name="things", number=3, type=kinds.TYPE_MESSAGE, label=kinds.LABEL_REPEATED, type_name=".shop.v1.Thing")
    for number, name in enumerate(extra_fields, start=10):
        order.field.add(name=name, number=number, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    receipt = orders.message_type.add(name="Receipt")
    receipt.field.add(name="charged_cents", number=1, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL)
    receipt.field.add(name="note", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    service = orders.service.add(name="Orders")
    service.method.add(name="Charge", input_type=".shop.v1.Order", output_type=".shop.v1.Receipt")
    service.method.add(name="Watch", input_type=".shop.v1.Order", output_type=".shop.v1.Receipt", server_streaming=True)
    return descriptor_pb2.FileDescriptorSet(file=[things, orders])


@dataclass
class Seen:
    """One call, as the server saw it. Use its `context` only during the call: gRPC frees it afterwards."""

    request: Message
    metadata: dict[str, str]
    context: Any
    peer: str
    time_remaining_s: float | None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Shop:
    def __init__(self, port: int) -> None:
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self.calls: list[Seen] = []
        self.asked: list[dict[str, str]] = []  # the metadata of each reflection request
        self.arrived = asyncio.Event()
        self.answer: Answer = lambda request, seen: {"charged_cents": 995, "note": "thank you"}


@asynccontextmanager
async def shop(
    *,
    reflects: Reflection | None = "grpc.reflection.v1",
    described: descriptor_pb2.FileDescriptorSet | None = None,
    credentials: grpc.ServerCredentials | None = None,
    port: int = 0,
) -> AsyncIterator[Shop]:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for file in (described or files()).file:
        pool.AddSerializedFile(file.SerializeToString())
    order, receipt = (message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.v1.{n}")) for n in ("Order", "Receipt"))
    server = grpc.aio.server()
    bound = (
        server.add_insecure_port(f"127.0.0.1:{port}")
        if credentials is None
        else server.add_secure_port(f"127.0.0.1:{port}", credentials)
    )
    made = Shop(bound)

    async def charge(request: Message, context: Any) -> Message:
        seen = Seen(request, dict(context.invocation_metadata()), context, context.peer(), context.time_remaining())
        made.calls.append(seen)
        made.arrived.set()
        try:
            answer = made.answer(request, seen)
            return receipt(**(answer if isinstance(answer, dict) else await answer))
        finally:
            seen.ended.set()

    handler = grpc.unary_unary_rpc_method_handler(
        charge, request_deserializer=order.FromString, response_serializer=receipt.SerializeToString
    )
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {"Charge": handler})])
    if reflects is not None:
        server.add_generic_rpc_handlers([_reflection(reflects, pool, made)])
    await server.start()
    try:
        yield made
    finally:
        await server.stop(None)


def _reflection(version: str, pool: descriptor_pool.DescriptorPool, made: Shop) -> grpc.GenericRpcHandler:
    servicer: Any = ReflectionServicer([SERVICE, reflection.SERVICE_NAME], pool=pool)

    async def tell(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        made.asked.append(dict(context.invocation_metadata()))
        async for answer in servicer.ServerReflectionInfo(requests, context):
            yield answer

    handler = grpc.stream_stream_rpc_method_handler(
        tell,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(f"{version}.ServerReflection", {"ServerReflectionInfo": handler})
