"""C2, C6, F3: calls to a real gRPC server: what is sent, what the answers mean, and which servers are allowed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import grpc
import pytest
import trustme
import uvloop
from google.protobuf import any_pb2, descriptor_pb2, duration_pb2, json_format

from sexton.clock import ManualClock
from sexton.domain.outbound import Allowed, Ports, Rules
from sexton.domain.targets import GrpcTarget, SecretRef
from sexton.errors import OutboundRefused, PermanentError, RetryLater, Snooze, TargetFailed
from sexton.handlers.breaker import Patience
from sexton.handlers.context import Call, Context, live_output_of
from sexton.handlers.grpc import GrpcCalls
from sexton.handlers.grpc.channels import CHANNEL_LIMIT, IDLE_S, MESSAGE_BYTES_LIMIT
from sexton.handlers.outbound import Outbound
from sexton.handlers.secrets import Secrets
from sexton.handlers.targets import TargetHandlers
from sexton.settings import Settings
from tests.handlers.grpc_server import Reflection, Shop, files, shop

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LONG_S = 20.0
METHOD = "shop.v1.Orders/Charge"
Code = grpc.StatusCode


async def at_home(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


class Caller:
    """A handler, and what one call with it needs."""

    def __init__(self, *, allow: tuple[str, ...] = ("127.0.0.0/8:*",), lookup: Any = at_home, **options: Any) -> None:
        self.clock = ManualClock(NOON)
        rules = Rules(tuple(Allowed.of(entry) for entry in allow), Ports.of(["443"]))
        self.outbound = Outbound(rules, lookup)
        secrets = Secrets({"SEXTON_SECRET_SHOP": "s3cret-token", "SEXTON_SECRET_ODD": "schlüssel", "SEXTON_SECRET_PIN": "4711"})
        self.calls = GrpcCalls(self.outbound, secrets, clock=self.clock, rng=Random(1), **options)
        self.context: Context | None = None

    def start(self, target: GrpcTarget, payload: Any = None, **facts: Any) -> Any:
        call = Call(
            UUID(int=1),
            UUID(int=2),
            3,
            "sexton.grpc",
            None,
            "acme",
            "default",
            NOON,
            NOON,
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            facts.pop("key", None),
            {},
            target=target,
            payload_json=json.dumps(payload),
            **facts,
        )
        self.context = Context(call)
        return self.calls.start(call, self.context)

    async def call(self, server: Shop | str, payload: Any = None, **options: Any) -> Any:
        address = server if isinstance(server, str) else server.address
        facts = {name: options.pop(name) for name in ("key", "timeout_s") if name in options}
        target = GrpcTarget(address, **{"method": METHOD, "tls": False, **options})
        async with asyncio.timeout(LONG_S):
            return await self.start(target, payload, **facts).done


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Caller]]:
    made: list[Caller] = []

    def caller(**options: Any) -> Caller:
        made.append(Caller(**options))
        return made[-1]

    yield caller
    for one in made:
        await one.calls.close()
        one.outbound.close()


@pytest.fixture
async def caller(make: Callable[..., Caller]) -> Caller:
    return make()


class TestWhatIsSent:
    @pytest.mark.parametrize("reflects", ["grpc.reflection.v1", "grpc.reflection.v1alpha"])
    async def test_the_payload_is_the_request_and_the_answer_is_the_result(self, caller: Caller, reflects: Reflection) -> None:
        """Its messages come from the server's reflection, including those of imported files."""
        async with shop(reflects=reflects) as server:
            payload = {"userId": 42, "at": "2026-03-01T12:00:00Z", "things": [{"sku": "a"}, {"sku": "ü"}]}
            assert await caller.call(server, payload) == {"chargedCents": 995, "note": "thank you"}
            (seen,) = server.calls
        request: Any = seen.request
        assert (request.user_id, request.at.seconds) == (42, int(NOON.timestamp()))
        assert [thing.sku for thing in request.things] == ["a", "ü"]

    async def test_messages_may_be_registered(self, make: Callable[..., Caller], tmp_path: Path) -> None:
        (tmp_path / "shop.pb").write_bytes(files().SerializeToString())
        caller = make(descriptors={"shop": tmp_path / "shop.pb"})
        async with shop(reflects=None) as server:
            assert (await caller.call(server, {"user_id": 7}, descriptors="shop"))["chargedCents"] == 995
            with pytest.raises(PermanentError, match="does not support reflection"):
                await caller.call(server, {"user_id": 7})

    async def test_the_metadata_identifies_the_run(self, caller: Caller) -> None:
        """C6 (b): the key is the same for every attempt of a run."""
        metadata: Mapping[str, str | SecretRef] = {"x-team": "billing", "authorization": SecretRef("shop", "Bearer ")}
        async with shop() as server:
            await caller.call(server, metadata=metadata)
            await caller.call(server, key="Rechnung 42 ü", metadata={"x-team": "billing"})
            first, second = (seen.metadata for seen in server.calls)
        expected = {
            "x-team": "billing",
            "authorization": "Bearer s3cret-token",
            "idempotency-key": f"{UUID(int=1)}:2026-03-01T12:00:00+00:00",
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "sexton-job": str(UUID(int=1)),
            "sexton-run": str(UUID(int=2)),
            "sexton-attempt": "3",
            "sexton-scheduled-for": "2026-03-01T12:00:00Z",
        }
        (asked,) = server.asked  # once, then the descriptors are cached
        assert asked["authorization"] == "Bearer s3cret-token"
        assert {name: first[name] for name in expected} == expected
        assert first["user-agent"].startswith("Sexton")
        assert second["idempotency-key"] == "Rechnung%2042%20%C3%BC"

    async def test_no_payload_is_an_empty_request(self, caller: Caller) -> None:
        async with shop() as server:
            await caller.call(server, None)
            await caller.call(server, {})
            assert [seen.request.ByteSize() for seen in server.calls] == [0, 0]

    async def test_the_server_gets_the_timeout(self, caller: Caller) -> None:
        async with shop() as server:
            await caller.call(server, timeout_s=30.0)
            assert server.calls[0].time_remaining_s == pytest.approx(30.5, abs=1)

    async def test_missing_and_unknown_fields_of_a_payload_are_named(self, caller: Caller) -> None:
        async with shop() as server:
            for payload, words in [
                ({"colour": "red"}, 'payload: .*no field named "colour"'),
                ({"user_id": "many"}, "payload: .*user_id"),
                ([1], "payload: "),
                ("text", "payload: "),
            ]:
                with pytest.raises(PermanentError, match=words):
                    await caller.call(server, payload)
            assert server.calls == []

    async def test_a_field_that_the_server_has_added_since_is_sent(self, caller: Caller) -> None:
        async with shop() as server:
            await caller.call(server, {"user_id": 1})
            port = server.port
        caller.clock.move(timedelta(seconds=1))
        async with shop(described=files("colour"), port=port) as server:
            assert await call(caller, server, {"user_id": 1, "colour": "red"})
            assert server.calls[-1].request.colour == "red"  # type: ignore[attr-defined]


async def call(caller: Caller, server: Shop, payload: Any) -> Any:
    """Of a server that was down a moment ago."""
    async with asyncio.timeout(LONG_S):
        while True:
            try:
                return await caller.call(server, payload)
            except TargetFailed:
                await asyncio.sleep(0.05)


class TestWhatItsAnswerMeans:
    PERMANENT = (
        Code.INVALID_ARGUMENT,
        Code.NOT_FOUND,
        Code.ALREADY_EXISTS,
        Code.PERMISSION_DENIED,
        Code.UNAUTHENTICATED,
        Code.FAILED_PRECONDITION,
        Code.OUT_OF_RANGE,
        Code.UNIMPLEMENTED,
        Code.DATA_LOSS,
    )

    @pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK], ids=lambda code: code.name)
    async def test_every_status_is_permanent_or_transient(self, caller: Caller, code: grpc.StatusCode) -> None:
        async with shop() as server:
            server.answer = lambda request, seen: seen.context.abort(code, "no \x00 luck")
            with pytest.raises((PermanentError, TargetFailed)) as failure:
                await caller.call(server)
        assert type(failure.value) is (PermanentError if code in self.PERMANENT else TargetFailed)
        assert str(failure.value) == f"{server.address} {METHOD}: {code.name}: no ␀ luck"

    @pytest.mark.parametrize(
        ("metadata", "delay_s"),
        [
            ([("retry-after", "7")], 7),
            ([("grpc-retry-pushback-ms", "2500")], 2.5),
            ([("retry-after", "7"), ("grpc-retry-pushback-ms", "9000")], 9),
            ([("retry-after", "999999999")], 86_400),
            ([("grpc-status-details-bin", "retry info")], 11.5),
            ([("retry-after", "-1")], None),
            ([("retry-after", "nan")], None),
            ([("retry-after", "soon")], None),
            ([("grpc-status-details-bin", "garbage")], None),
        ],
    )
    async def test_a_retry_info_of_the_server_is_a_lower_bound(
        self, caller: Caller, metadata: list[tuple[str, str]], delay_s: float | None
    ) -> None:
        special = {"retry info": retry_info(11.5), "garbage": b"\xff\xff"}
        trailing = [(key, special.get(value, value)) for key, value in metadata]
        async with shop() as server:
            server.answer = lambda request, seen: seen.context.abort(Code.UNAVAILABLE, "busy", tuple(trailing))
            with pytest.raises(RetryLater if delay_s is not None else TargetFailed) as failure:
                await caller.call(server)
        assert getattr(failure.value, "delay_s", None) == delay_s

    async def test_a_huge_answer_is_rejected_and_the_call_is_not_repeated(self, caller: Caller) -> None:
        """Its effect has happened."""
        async with shop() as server:
            server.answer = lambda request, seen: {"note": "x" * MESSAGE_BYTES_LIMIT}
            with pytest.raises(PermanentError, match="the response is too large"):
                await caller.call(server)

    async def test_an_answer_that_cannot_be_stored_is_still_a_success(self, caller: Caller) -> None:
        async with shop() as server:
            server.answer = lambda request, seen: {"note": "x" * 70_000}
            assert await caller.call(server) is None
        live = live_output_of(caller.context) if caller.context else None
        assert live is not None
        assert "is not stored" in (live.output or "")

    async def test_a_secret_in_the_answer_is_not_kept(self, caller: Caller) -> None:
        """F3."""
        metadata = {"authorization": SecretRef("shop", "Bearer ")}
        async with shop() as server:
            server.answer = lambda request, seen: {"note": f"you sent {seen.metadata['authorization']}"}
            assert (await caller.call(server, metadata=metadata))["note"] == "you sent Bearer [secret]"
            server.answer = lambda request, seen: seen.context.abort(Code.UNKNOWN, seen.metadata["authorization"])
            with pytest.raises(TargetFailed, match=r"UNKNOWN: Bearer \[secret\]$"):
                await caller.call(server, metadata=metadata)

    async def test_an_answer_that_cannot_be_decoded_does_not_fail_the_run(
        self, caller: Caller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """D2: its effect has happened. For example, a message of a type that the server does not describe."""

        def undescribed(*_: object, **__: object) -> None:
            raise TypeError("Can not find message descriptor by type_url: type.googleapis.com/a.B")

        monkeypatch.setattr(json_format, "MessageToDict", undescribed)
        async with shop() as server:
            assert await caller.call(server) is None
            assert len(server.calls) == 1
        live = live_output_of(caller.context) if caller.context else None
        assert live is not None
        assert "cannot be encoded as JSON" in (live.output or "")

    async def test_a_number_that_looks_like_a_secret_is_a_number(self, caller: Caller) -> None:
        metadata = {"authorization": SecretRef("pin", "Bearer ")}
        async with shop() as server:
            server.answer = lambda request, seen: {"charged_cents": 4711, "note": "4711"}
            assert await caller.call(server, metadata=metadata) == {"chargedCents": 4711, "note": "[secret]"}

    async def test_a_secret_that_cannot_be_sent_is_not_shown(self, caller: Caller) -> None:
        async with shop() as server:
            with pytest.raises(PermanentError, match=r"metadata.x-key: its secret contains") as failure:
                await caller.call(server, metadata={"x-key": SecretRef("odd")})
        assert "schl" not in str(failure.value)

    @pytest.mark.parametrize(
        ("method", "words"),
        [
            ("shop.v1.Nothing/Charge", "the server does not know shop.v1.Nothing"),
            ("shop.v1.Orders/Refund", "shop.v1.Orders has no method 'Refund'; it has Charge, Watch"),
            ("shop.v1.Orders/Watch", "is a stream"),
        ],
    )
    async def test_an_unknown_method_is_named(self, caller: Caller, method: str, words: str) -> None:
        async with shop() as server:
            with pytest.raises(PermanentError, match=words):
                await caller.call(server, method=method)

    async def test_asked_to_stop_the_call_is_cancelled_on_both_sides(self, caller: Caller) -> None:
        async with shop() as server:
            server.answer = lambda request, seen: asyncio.sleep(1000, {})
            handle = caller.start(GrpcTarget(server.address, METHOD, tls=False))
            async with asyncio.timeout(LONG_S):
                await server.arrived.wait()
                handle.ask_to_stop()
                with pytest.raises(asyncio.CancelledError):
                    await handle.done
                await server.calls[0].ended.wait()


def retry_info(delay_s: float) -> bytes:
    """A `google.rpc.Status` with a `google.rpc.RetryInfo` in it, written by hand."""
    delay = duration_pb2.Duration()
    delay.FromTimedelta(timedelta(seconds=delay_s))
    info = b"\x0a" + bytes([delay.ByteSize()]) + delay.SerializeToString()  # retry_delay = 1
    detail = any_pb2.Any(type_url="type.googleapis.com/google.rpc.RetryInfo", value=info)
    return b"\x08\x0e\x1a" + bytes([detail.ByteSize()]) + detail.SerializeToString()  # code = 1, details = 3


class TestDescriptorSets:
    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (None, "cannot be read: No such file"),
            (b"\xff\xff", "are not a file written by protoc"),
            (b"", "descriptors contain no service shop.v1.Orders"),
            (descriptor_pb2.FileDescriptorSet(file=files().file[1:]).SerializeToString(), "are inconsistent"),
        ],
        ids=["missing", "garbage", "empty", "without imports"],
    )
    async def test_an_invalid_descriptor_is_named(
        self, make: Callable[..., Caller], tmp_path: Path, data: bytes | None, words: str
    ) -> None:
        if data is not None:
            (tmp_path / "shop.pb").write_bytes(data)
        caller = make(descriptors={"shop": tmp_path / "shop.pb"})
        async with shop() as server:
            with pytest.raises(PermanentError, match=words):
                await caller.call(server, descriptors="shop")
            with pytest.raises(PermanentError, match="'other' are unknown to this worker; add them to SEXTON_GRPC_DESCRIPTORS"):
                await caller.call(server, descriptors="other")

    async def test_files_that_import_each_other_are_rejected(self, make: Callable[..., Caller], tmp_path: Path) -> None:
        circle = files()
        circle.file[0].dependency.append(circle.file[1].name)
        (tmp_path / "shop.pb").write_bytes(circle.SerializeToString())
        async with shop() as server:
            with pytest.raises(PermanentError, match="are inconsistent"):
                await make(descriptors={"shop": tmp_path / "shop.pb"}).call(server, descriptors="shop")


class TestWhomItMayBe:
    async def test_the_call_connects_to_the_address_that_was_checked(self, make: Callable[..., Caller]) -> None:
        """F3: a name is resolved once, by the worker; orders.example exists only in the test's resolver."""
        asked: list[str] = []

        async def lookup(host: str, port: int) -> list[str]:
            asked.append(host)
            return ["127.0.0.1"]

        caller = make(lookup=lookup)
        async with shop() as server:
            await caller.call(f"orders.example:{server.port}")
            await caller.call(f"orders.example:{server.port}")
            assert asked == ["orders.example"]
            caller.clock.move(timedelta(seconds=10))
            await caller.call(f"orders.example:{server.port}")
            assert asked == ["orders.example"] * 2

    async def test_the_proxy_settings_of_the_machine_are_ignored(self, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
        """F3: a proxy could connect to any address."""
        for name in ("http_proxy", "https_proxy", "grpc_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        async with shop() as server:
            assert await caller.call(f"orders.example:{server.port}")

    @pytest.mark.parametrize("found", ["169.254.169.254", "10.0.0.1", "::1", "::ffff:127.0.0.1"])
    async def test_a_name_that_resolves_to_a_private_address_is_rejected(self, make: Callable[..., Caller], found: str) -> None:
        """F3."""

        async def lookup(host: str, port: int) -> list[str]:
            return [found]

        with pytest.raises(OutboundRefused):
            await make(allow=(), lookup=lookup).call("orders.example:443")

    @pytest.mark.parametrize(
        "address", ["127.0.0.1:443", "[::1]:443", "169.254.169.254:443", "2130706433:443", "0x7f.1:443", "203.1.2.3:22"]
    )
    async def test_an_address_that_is_not_allowed_is_rejected_before_anything_is_sent(
        self, make: Callable[..., Caller], address: str
    ) -> None:
        with pytest.raises(OutboundRefused):
            await make(allow=()).call(address)

    @pytest.mark.parametrize("address", ["unix:/run/docker.sock", "dns:///orders.example:443", "orders.example", "a b:443"])
    async def test_no_other_name_scheme_is_accepted(self, caller: Caller, address: str) -> None:
        with pytest.raises(PermanentError, match=r"handler.address: .*is not an address"):
            await caller.call(address)

    async def test_a_host_that_cannot_be_resolved_is_transient(self, make: Callable[..., Caller]) -> None:
        async def lookup(host: str, port: int) -> list[str]:
            raise OSError(-2, "Name or service not known")

        with pytest.raises(TargetFailed, match="the host name cannot be resolved: Name or service not known"):
            await make(lookup=lookup).call("orders.example:443")

    async def test_tls_verifies_the_name(self, make: Callable[..., Caller], tmp_path: Path) -> None:
        authority, other = trustme.CA(), trustme.CA()
        certificate = authority.issue_cert("orders.example")
        credentials = grpc.ssl_server_credentials(
            [(certificate.private_key_pem.bytes(), b"".join(blob.bytes() for blob in certificate.cert_chain_pems))]
        )
        authority.cert_pem.write_to_path(tmp_path / "roots.pem")
        other.cert_pem.write_to_path(tmp_path / "others.pem")
        async with shop(credentials=credentials) as server:
            trusting = make(roots=tmp_path / "roots.pem")
            assert await trusting.call(f"orders.example:{server.port}", tls=True)
            for caller, host in [
                (trusting, "elsewhere.example"),
                (trusting, "127.0.0.1"),
                (make(roots=tmp_path / "others.pem"), "orders.example"),
                (make(), "orders.example"),
                (make(roots=tmp_path / "missing.pem"), "orders.example"),
            ]:
                with pytest.raises(TargetFailed, match=r"UNAVAILABLE|cannot be read"):
                    await caller.call(f"{host}:{server.port}", tls=True)
            assert len(server.calls) == 1


class TestConnections:
    async def _until_it_answers(self, caller: Caller, server: Shop) -> Any:
        """gRPC itself waits a moment before it reconnects to an address that has refused a connection."""
        for _ in range(100):
            try:
                return await caller.call(server)
            except TargetFailed:
                caller.clock.move(timedelta(seconds=120))
                await asyncio.sleep(0.1)
        raise AssertionError("it never answered")

    async def test_a_server_that_is_down_is_not_called_and_its_runs_wait(self, make: Callable[..., Caller]) -> None:
        """Waiting spends no attempt."""
        caller = make(patience=Patience(failures=2, rest_s=10, rest_max_s=60))
        async with shop() as server:
            port = server.port
        for _ in range(2):
            with pytest.raises(TargetFailed, match="UNAVAILABLE"):
                await caller.call(f"127.0.0.1:{port}")
        with pytest.raises(Snooze) as snoozed:
            await caller.call(f"127.0.0.1:{port}")
        assert 8 <= snoozed.value.delay_s <= 15
        assert snoozed.value.reason == f"127.0.0.1:{port} is down"
        caller.clock.move(timedelta(seconds=15))
        async with shop(port=port) as server:
            assert await self._until_it_answers(caller, server)
            assert await caller.call(server)

    async def test_calls_share_a_connection_until_it_is_idle(self, caller: Caller) -> None:
        async with shop() as server, shop() as other:
            await asyncio.gather(*(caller.call(server) for _ in range(20)))
            assert len({seen.peer for seen in server.calls}) == 1
            await caller.call(other)
            assert len(caller.calls._channels) == 2
            caller.clock.move(timedelta(seconds=IDLE_S))
            await caller.call(other)
            assert len(caller.calls._channels) == 1
            await caller.call(server)
            assert len({seen.peer for seen in server.calls}) == 2

    async def test_the_number_of_connections_is_bounded(self, caller: Caller) -> None:
        async with shop() as server:
            for number in range(CHANNEL_LIMIT + 10):
                await caller.call(f"host-{number}.example:{server.port}")
                assert len(caller.calls._channels) <= CHANNEL_LIMIT

    def test_it_works_on_uvloop(self) -> None:
        async def main() -> Any:
            caller = Caller()
            async with shop() as server:
                answer = await caller.call(server)
            await caller.calls.close()
            return answer

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            assert runner.run(main()) == {"chargedCents": 995, "note": "thank you"}


async def test_a_worker_without_the_extra_does_not_know_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule "claim only known tasks": such a job waits for a worker that can call it."""

    async def tasks() -> set[str]:
        targets = TargetHandlers(Settings(), clock=ManualClock(NOON), rng=Random(1))
        await targets.close()
        return set(targets.handlers)

    assert "sexton.grpc" in await tasks()
    monkeypatch.setitem(sys.modules, "grpc_reflection", None)
    assert "sexton.grpc" not in await tasks()
