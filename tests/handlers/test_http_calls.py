"""C2: jobs that call a URL: what is sent, what an answer means, and invalid behaviour of servers. The servers are real."""

from __future__ import annotations

import asyncio
import base64
import gzip
import zlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from standardwebhooks import Webhook

from sexton.domain.job import has_escaped_nul
from sexton.domain.targets import HttpTarget, SecretRef
from sexton.errors import NotHere, PermanentError, RetryLater, SextonError, TargetFailed
from sexton.handlers.context import Context
from sexton.handlers.handle import HandedOver
from sexton.worker.execution import encoded_result

from .http_target import Caller, Calling, Received, Server, answer, call_of, callers, serving

LONG_S = 10.0


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as server:
        yield server


@pytest.fixture
async def calling() -> AsyncIterator[Calling]:
    """Creates callers, and closes their connections at the end."""
    async with callers() as make:
        yield make


@pytest.fixture
def caller(calling: Calling) -> Caller:
    return calling(secrets={"STRIPE": "sk_live_hush", "HOOKS": "new-secret old-secret", "SLASHED": "sk/live+hush"})


class TestWhatIsSent:
    async def test_the_payload_is_sent_as_json_with_the_user_agent(self, server: Server, caller: Caller) -> None:
        await caller.call(HttpTarget(f"{server.url}/send?to=you"), attempt=3, fire_at=datetime(2026, 3, 1, 9, 30, tzinfo=UTC))
        (got,) = server.received
        assert (got.method, got.path, got.body) == ("POST", "/send?to=you", b'{"n":1}')
        assert got.headers["content-type"] == "application/json"
        assert got.headers["sexton-job"] == "00000000-0000-0000-0000-000000000001"
        assert got.headers["sexton-run"] == "00000000-0000-0000-0000-000000000002"
        assert got.headers["sexton-attempt"] == "3"
        assert got.headers["sexton-scheduled-for"] == "2026-03-01T09:30:00Z"
        assert got.headers["idempotency-key"] == "00000000-0000-0000-0000-000000000001:2026-03-01T09:30:00+00:00"

    async def test_every_attempt_has_the_same_key_and_its_own_span(self, server: Server, caller: Caller) -> None:
        trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        for attempt in (1, 2):
            await caller.call(HttpTarget(server.url), attempt=attempt, trace=trace)
        first, second = (got.headers for got in server.received)
        assert first["idempotency-key"] == second["idempotency-key"]
        assert first["traceparent"] != second["traceparent"]
        for got in (first, second):
            version, trace_id, span_id, flags = got["traceparent"].split("-")
            assert (version, trace_id, flags) == ("00", "4bf92f3577b34da6a3ce929d0e0e4736", "01")
            assert span_id != "00f067aa0ba902b7"

    @pytest.mark.parametrize("trace", [None, "nonsense", "00-" + "0" * 32 + "-00f067aa0ba902b7-01"])
    async def test_without_a_trace_it_begins_a_new_one(self, server: Server, caller: Caller, trace: str | None) -> None:
        await caller.call(HttpTarget(server.url), trace=trace)
        assert server.received[0].headers["traceparent"].startswith("00-" + "0" * 31 + "2-")

    async def test_the_jobs_own_key_is_sent_whatever_it_contains(self, server: Server, caller: Caller) -> None:
        await caller.call(HttpTarget(server.url), key="invoice 42\r\nX-Evil: Zoë")
        assert server.received[0].headers["idempotency-key"] == "invoice%2042%0D%0AX-Evil:%20Zo%C3%AB"
        assert "x-evil" not in server.received[0].headers

    @pytest.mark.parametrize(("method", "body"), [("GET", b""), ("DELETE", b""), ("PUT", b'{"n":1}'), ("PATCH", b'{"n":1}')])
    async def test_a_method_without_a_body_sends_none(self, server: Server, caller: Caller, method: str, body: bytes) -> None:
        await caller.call(HttpTarget(server.url, method=method))
        assert (server.received[0].method, server.received[0].body) == (method, body)
        assert ("content-type" in server.received[0].headers) is bool(body)

    async def test_a_body_is_sent_unchanged(self, server: Server, caller: Caller) -> None:
        target = HttpTarget(server.url, body="<é/>", headers={"content-type": "application/xml", "User-Agent": "mine"})
        await caller.call(target)
        got = server.received[0]
        assert (got.body, got.headers["content-type"], got.headers["user-agent"]) == (
            "<é/>".encode(),
            "application/xml",
            "mine",
        )

    async def test_reserved_headers_of_an_unchecked_submission_are_left_out(self, server: Server, caller: Caller) -> None:
        forged = {"Sexton-Run": "forged", "Host": "elsewhere", "Idempotency-Key": "forged", "Transfer-Encoding": "chunked"}
        await caller.call(HttpTarget(server.url, headers={**forged, "X-Mine": "yes"}))
        headers = server.received[0].headers
        assert "forged" not in headers.values()
        assert headers["host"] == f"127.0.0.1:{server.port}"
        assert headers["x-mine"] == "yes"

    async def test_a_header_that_would_become_two_is_never_sent(self, server: Server, caller: Caller) -> None:
        with pytest.raises(PermanentError, match="cannot be sent"):
            await caller.call(HttpTarget(server.url, headers={"X-A": "1\r\nX-B: 2"}))
        assert server.received == []

    async def test_a_secret_is_sent_by_its_name(self, server: Server, caller: Caller) -> None:
        await caller.call(HttpTarget(server.url, headers={"Authorization": SecretRef("stripe", "Bearer ")}))
        assert server.received[0].headers["authorization"] == "Bearer sk_live_hush"

    async def test_an_unknown_secret_is_noticed_before_anything_is_sent(self, server: Server, caller: Caller) -> None:
        with pytest.raises(NotHere, match="SEXTON_SECRET_NOBODY"):
            await caller.call(HttpTarget(server.url, headers={"Authorization": SecretRef("nobody")}))
        assert server.received == []

    async def test_no_cookie_of_one_job_is_sent_by_another(self, server: Server, caller: Caller) -> None:
        server.says(answer(200, Set_Cookie="session=1"))
        for _ in range(2):
            await caller.call(HttpTarget(server.url))
        assert "cookie" not in server.received[1].headers

    async def test_calls_share_a_connection(self, server: Server, caller: Caller) -> None:
        for _ in range(5):
            await caller.call(HttpTarget(server.url))
        assert server.connections == 1


class TestSignatures:
    """Verified with an independent implementation of Standard Webhooks."""

    @pytest.mark.parametrize("known", ["new-secret", "old-secret"])
    async def test_a_receiver_with_either_secret_accepts_the_call(self, server: Server, caller: Caller, known: str) -> None:
        await caller.call(HttpTarget(server.url, signed_with=("hooks",)), payload_json='{"type":"invoice"}')
        (got,) = server.received
        assert Webhook(base64.b64encode(known.encode()).decode()).verify(got.body, got.headers) == {"type": "invoice"}

    async def test_the_id_stays_the_same_over_attempts(self, server: Server, caller: Caller) -> None:
        for attempt in (1, 2):
            await caller.call(HttpTarget(server.url, signed_with=("hooks",)), attempt=attempt, key="evt_1")
        assert {got.headers["webhook-id"] for got in server.received} == {"evt_1"}

    async def test_a_call_without_a_signature_has_no_webhook_headers(self, server: Server, caller: Caller) -> None:
        await caller.call(HttpTarget(server.url))
        assert not [name for name in server.received[0].headers if name.startswith("webhook")]


class TestWhatAnAnswerMeans:
    @pytest.mark.parametrize("status", [200, 201, 204, 226])
    async def test_success(self, server: Server, caller: Caller, status: int) -> None:
        server.says(answer(status))
        assert (await caller.call(HttpTarget(server.url)))["status"] == status

    @pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
    async def test_transient(self, server: Server, caller: Caller, status: int) -> None:
        server.says(answer(status, b"try later"))
        with pytest.raises(TargetFailed, match=rf"POST {server.url}/a answered {status}: try later"):
            await caller.call(HttpTarget(f"{server.url}/a?token=hush"))

    @pytest.mark.parametrize("status", [304, 400, 401, 403, 404, 409, 410, 422, 451])
    async def test_permanent(self, server: Server, caller: Caller, status: int) -> None:
        server.says(answer(status, b"" if status == 304 else b"no"))
        with pytest.raises(PermanentError, match=f"answered {status}"):
            await caller.call(HttpTarget(server.url))

    @pytest.mark.parametrize(
        ("status", "options", "kind"),
        [
            (404, {"succeeds_on": ("2xx", "404")}, None),
            (200, {"succeeds_on": ("204",)}, PermanentError),
            (409, {"retries_on": ("409",)}, TargetFailed),
            (404, {"retries_on": ("4xx",)}, TargetFailed),
            (503, {"retries_on": ("429",)}, PermanentError),
            (302, {"succeeds_on": ("3xx",)}, None),
        ],
    )
    async def test_a_job_may_set_which_statuses_succeed(
        self, server: Server, caller: Caller, status: int, options: dict[str, Any], kind: type[SextonError] | None
    ) -> None:
        server.says(answer(status))
        if kind is None:
            assert (await caller.call(HttpTarget(server.url, **options)))["status"] == status
        else:
            with pytest.raises(kind):
                await caller.call(HttpTarget(server.url, **options))

    async def test_retry_after_in_seconds(self, server: Server, caller: Caller) -> None:
        server.says(answer(429, Retry_After="120"))
        with pytest.raises(RetryLater) as later:
            await caller.call(HttpTarget(server.url))
        assert later.value.delay_s == 120

    async def test_retry_after_as_a_date_uses_the_targets_clock(self, server: Server, caller: Caller) -> None:
        server.says(answer(503, Retry_After="Sun, 01 Mar 2026 12:05:00 GMT", Date="Sun, 01 Mar 2026 12:00:00 GMT"))
        with pytest.raises(RetryLater) as later:
            await caller.call(HttpTarget(server.url))
        assert later.value.delay_s == 300

    async def test_retry_after_as_a_date_uses_the_workers_clock_if_the_target_sends_no_date(
        self, server: Server, caller: Caller
    ) -> None:
        at = datetime.now(UTC) + timedelta(minutes=10)
        server.says(answer(503, Retry_After=at.strftime("%a, %d %b %Y %H:%M:%S GMT")))
        with pytest.raises(RetryLater) as later:
            await caller.call(HttpTarget(server.url))
        assert 590 <= later.value.delay_s <= 600

    @pytest.mark.parametrize(
        ("text", "delay_s"),
        [
            ("99999999999999", 86_400),
            ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400),
            ("soon", None),
            ("-5", None),
            ("1e9", None),
            ("Sun, 01 Mar 2020 12:00:00 GMT", None),
            ("Sun, 99 Foo 2026", None),
            ("\u0663", None),
        ],
    )
    async def test_retry_after_is_bounded_and_ignored_if_invalid(
        self, server: Server, caller: Caller, text: str, delay_s: float | None
    ) -> None:
        server.says(b"HTTP/1.1 429 Slow\r\nContent-Length: 0\r\nRetry-After: " + text.encode() + b"\r\n\r\n")
        with pytest.raises(RetryLater if delay_s else TargetFailed) as later:
            await caller.call(HttpTarget(server.url))
        assert getattr(later.value, "delay_s", None) == delay_s


class TestWhatIsKept:
    async def test_json_is_kept_as_json(self, server: Server, caller: Caller) -> None:
        server.says(answer(200, b'{"id": 7}', Content_Type="application/problem+json; charset=utf-8", ETag='"1"', X_Other="no"))
        assert await caller.call(HttpTarget(server.url)) == {
            "status": 200,
            "headers": {"content-type": "application/problem+json; charset=utf-8", "etag": '"1"'},
            "body": {"id": 7},
            "truncated": False,
        }

    @pytest.mark.parametrize(
        ("body", "content_type", "kept"),
        [
            (b"plain", "text/plain", {"body": "plain"}),
            ("Zoë".encode("latin-1"), "text/plain; charset=latin-1", {"body": "Zoë"}),
            (b"\xff\xfe\xfd", "text/plain", {"body_base64": "//79"}),
            (b"x", "text/plain; charset=no-such-thing", {"body_base64": "eA=="}),
            (b"41", "text/plain; charset=hex", {"body_base64": "NDE="}),
            (zlib.compress(bytes(99)), "text/plain; charset=zlib", {"body_base64": "eJxjYKA5AAAAYwAB"}),
            (b"{broken", "application/json", {"body": "{broken"}),
            (b'{"a":"\\u0000"}', "application/json", {"body": '{"a":"\\u0000"}'}),
            (b"a\x00b", "text/plain", {"body": "a␀b"}),
            (b"1e999999", "application/json", {"body": "1e999999"}),
            (b"[" * 5000 + b"]" * 5000, "application/json", {"body": "[" * 5000 + "]" * 5000}),
        ],
    )
    async def test_any_answer_becomes_something_that_can_be_stored(
        self, server: Server, caller: Caller, body: bytes, content_type: str, kept: dict[str, str]
    ) -> None:
        server.says(answer(200, body, Content_Type=content_type))
        result = await caller.call(HttpTarget(server.url))
        assert {name: result[name] for name in result if name.startswith("body")} == kept
        assert not has_escaped_nul(bytes(encoded_result(result)))

    async def test_only_the_allowed_size_is_kept(self, server: Server, caller: Caller) -> None:
        server.says(answer(200, "é".encode() * 100, Content_Type="text/plain"))
        result = await caller.call(HttpTarget(server.url, keeps_bytes=11))
        assert (result["body"], result["truncated"]) == ("é" * 5, True)

    async def test_a_body_of_exactly_that_size_is_kept(self, server: Server, caller: Caller) -> None:
        server.says(answer(200, b"12345"))
        result = await caller.call(HttpTarget(server.url, keeps_bytes=5))
        assert (result["body"], result["truncated"]) == ("12345", False)

    async def test_no_body_is_kept_if_the_job_wants_none(self, server: Server, caller: Caller) -> None:
        server.says(answer(200, b"12345"))
        result = await caller.call(HttpTarget(server.url, keeps_bytes=0))
        assert (result["body"], result["truncated"]) == ("", True)

    async def test_a_result_is_never_too_large_for_a_run_whose_effect_has_happened(
        self, server: Server, caller: Caller
    ) -> None:
        server.says(answer(200, b"\x01" * 49_152, Content_Type="text/plain"))
        result = await caller.call(HttpTarget(server.url, keeps_bytes=49_152))
        assert len(encoded_result(result)) <= 65_536
        assert result["truncated"]

    @pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
    async def test_a_compressed_body_is_kept_unpacked(
        self, server: Server, caller: Caller, encoding: str, pack: Callable[[bytes], bytes]
    ) -> None:
        server.says(answer(200, pack(b"hello"), Content_Encoding=encoding, Content_Type="text/plain"))
        assert (await caller.call(HttpTarget(server.url)))["body"] == "hello"
        assert server.received[0].headers["accept-encoding"] == "identity"

    async def test_a_decompression_bomb_is_not_unpacked(self, server: Server, caller: Caller) -> None:
        """50 MB in 50 KB: the memory never holds more than the part that is kept."""
        packer = zlib.compressobj(9, wbits=31)
        bomb = b"".join(packer.compress(bytes(1_000_000)) for _ in range(50)) + packer.flush()
        server.says(answer(200, bomb, Content_Encoding="gzip"))
        result = await caller.call(HttpTarget(server.url, keeps_bytes=1_000))
        assert (len(result["body"]), result["truncated"]) == (1_000, True)

    async def test_an_endless_body_is_cut_off(self, server: Server, caller: Caller) -> None:
        async def endless(_: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                writer.write(b"10000\r\n" + bytes(65_536) + b"\r\n")
                await writer.drain()

        server.answering = endless
        async with asyncio.timeout(LONG_S):
            result = await caller.call(HttpTarget(server.url, keeps_bytes=10))
        assert (len(result["body"]), result["truncated"]) == (10, True)

    async def test_a_secret_that_the_target_sends_back_is_hidden(self, server: Server, caller: Caller) -> None:
        echoed = b'{"Authorization": "Bearer sk_live_hush"}'
        target = HttpTarget(server.url, headers={"Authorization": SecretRef("stripe", "Bearer ")})
        server.says(answer(200, echoed, Content_Type="application/json", Location="/?Bearer sk_live_hush"))
        assert "hush" not in str(await caller.call(target))
        server.says(answer(500, echoed))
        with pytest.raises(TargetFailed) as failed:
            await caller.call(target)
        assert "hush" not in str(failed.value)

    @pytest.mark.parametrize("form", ["sk/live+hush", "sk\\/live+hush", "sk/live\\u002Bhush", "sk\\u002flive\\u002bhush"])
    async def test_a_secret_is_hidden_without_its_prefix(self, server: Server, caller: Caller, form: str) -> None:
        """F3: also in the escaped forms of PHP, .NET and others."""
        target = HttpTarget(server.url, headers={"Authorization": SecretRef("slashed", "Bearer ")})
        server.says(answer(200, f'{{"no such key": ["{form}"], "{form}": 1}}'.encode(), Content_Type="application/json"))
        assert (await caller.call(target))["body"] == {"no such key": ["[secret]"], "[secret]": 1}
        server.says(answer(401, f'{{"no such key": "{form}"}}'.encode()))
        with pytest.raises(PermanentError, match=r'"no such key": "\[secret\]"'):
            await caller.call(target)


class TestWhatServersDoWrong:
    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            (b"", "closed without a response"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", "response was incomplete"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", "response was incomplete"),
            (b"SSH-2.0-OpenSSH_9.6\r\n", "not HTTP"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "not HTTP"),
            (b"HTTP/1.1 200 OK\r\nX-Long: " + b"a" * 100_000 + b"\r\n\r\n", "not HTTP"),
        ],
        ids=["nothing", "wrong length", "cut chunk", "another protocol", "no length", "long header"],
    )
    async def test_an_answer_that_is_not_http_is_transient(
        self, server: Server, caller: Caller, answer: bytes, words: str
    ) -> None:
        async def wrong(_: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(answer)
            await writer.drain()
            writer.close()

        server.answering = wrong
        with pytest.raises(TargetFailed, match=words):
            await caller.call(HttpTarget(server.url))

    async def test_a_connection_that_is_reset_is_transient(self, server: Server, caller: Caller) -> None:
        async def reset(_: Received, writer: asyncio.StreamWriter) -> None:
            writer.transport.abort()

        server.answering = reset
        with pytest.raises(TargetFailed, match=r"closed without a response|connection broke"):
            await caller.call(HttpTarget(server.url))

    async def test_a_closed_port_is_transient(self, server: Server, caller: Caller) -> None:
        with pytest.raises(TargetFailed, match="no connection"):
            await caller.call(HttpTarget("http://127.0.0.1:1/"))

    async def test_a_name_that_does_not_exist_is_transient(self, calling: Calling) -> None:
        async def unknown(host: str, port: int) -> list[str]:
            raise OSError(-2, "Name or service not known")

        with pytest.raises(TargetFailed, match="cannot be resolved: Name or service not known"):
            await calling(lookup=unknown).call(HttpTarget("http://nobody.example/"))

    async def test_a_name_without_an_address_is_transient(self, calling: Calling) -> None:
        async def nowhere(host: str, port: int) -> list[str]:
            return []

        with pytest.raises(TargetFailed, match="cannot be resolved: the host has no address"):
            await calling(lookup=nowhere).call(HttpTarget("http://nowhere.example/"))

    async def test_a_host_that_drops_connections_ends_with_the_connect_timeout(self, calling: Calling) -> None:
        async def never(host: str, port: int) -> list[str]:
            await asyncio.sleep(LONG_S)
            return []

        with pytest.raises(TargetFailed, match=r"no connection within 0.05 s"):
            await calling(lookup=never).call(HttpTarget("http://slow.example/", connect_timeout_s=0.05))

    @pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal"])
    async def test_a_slow_answer_ends_when_the_run_is_stopped(self, server: Server, caller: Caller, begun: bytes) -> None:
        """In the headers or in the body: the run's own timeout cancels the call, and its connection is not reused."""
        reached = asyncio.Event()

        async def slow(_: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(begun)
            await writer.drain()
            reached.set()
            await asyncio.sleep(LONG_S)

        server.answering = slow
        handle = caller.start(HttpTarget(server.url))
        await reached.wait()
        handle.ask_to_stop()
        with pytest.raises(asyncio.CancelledError):
            await handle.done
        server.says(answer(200))
        await caller.call(HttpTarget(server.url))
        assert server.connections == 2


class TestLongJobs:
    """A target that answers 202 may end the run later, with the token from the call."""

    async def test_the_target_gets_the_callback_url_and_the_token(self, server: Server, calling: Calling) -> None:
        caller = calling(public_url="https://sexton.example/", token=lambda call: f"token-of-{call.run_id.int}")
        server.says(answer(202))
        with pytest.raises(HandedOver):
            await caller.call(HttpTarget(server.url))
        headers = server.received[0].headers
        assert headers["sexton-callback"] == "https://sexton.example/v1/runs/00000000-0000-0000-0000-000000000002"
        assert headers["sexton-callback-token"] == "token-of-2"

    async def test_without_a_callback_url_202_is_the_end(self, server: Server, caller: Caller) -> None:
        server.says(answer(202))
        assert (await caller.call(HttpTarget(server.url)))["status"] == 202
        assert not [name for name in server.received[0].headers if name.startswith("sexton-callback")]

    async def test_200_ends_the_run_at_once(self, server: Server, calling: Calling) -> None:
        caller = calling(public_url="https://sexton.example", token=lambda call: "token")
        assert (await caller.call(HttpTarget(server.url)))["status"] == 200

    async def test_a_redirect_to_another_origin_does_not_get_the_token(self, server: Server, calling: Calling) -> None:
        caller = calling(public_url="https://sexton.example", token=lambda call: "token")
        async with serving() as other:
            other.says(answer(202))
            server.says(answer(307, Location=other.url))
            assert (await caller.call(HttpTarget(server.url, redirects=1)))["status"] == 202
            assert "sexton-callback-token" not in other.received[0].headers


async def test_a_job_without_a_url_is_a_permanent_failure(calling: Calling) -> None:
    call = msgspec.structs.replace(call_of(HttpTarget("https://a.example")), target=None)
    with pytest.raises(PermanentError, match="has no URL"):
        calling().calls.start(call, Context(call))


async def test_signatures_have_the_real_time(server: Server, caller: Caller) -> None:
    await caller.call(HttpTarget(server.url, signed_with=("hooks",)))
    assert abs(int(server.received[0].headers["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < 60


async def test_a_job_may_treat_202_as_a_success(server: Server, calling: Calling) -> None:
    caller = calling(public_url="https://sexton.example", token=lambda call: "token")
    server.says(answer(202))
    assert (await caller.call(HttpTarget(server.url, calls_back=False)))["status"] == 202
    assert "sexton-callback" not in server.received[0].headers
