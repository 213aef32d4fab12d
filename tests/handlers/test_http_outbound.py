"""Outbound safety in the handler: whatever the form of a URL and wherever it leads, the client connects only to allowed
addresses. The table of hostile URLs through the real client, redirects, and names that change their address."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import pytest

from sexton.domain.targets import HttpTarget, SecretRef
from sexton.errors import OutboundRefused, PermanentError, TargetFailed

from .http_target import Calling, Server, answer, callers, serving


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as server:
        yield server


@pytest.fixture
async def calling() -> AsyncIterator[Calling]:
    async with callers() as make:
        yield make


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every socket that is created from now on."""
    made: list[object] = []
    real = socket.socket

    class Watched(real):  # type: ignore[misc,valid-type]
        def connect(self, address: object) -> None:
            made.append(address)
            raise AssertionError(f"connected to {address}")

    monkeypatch.setattr(socket, "socket", Watched)
    return made


async def inside(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


HOSTILE = [
    "http://127.0.0.1/",
    "http://127.0.0.1:443/",
    "http://127.255.255.254/",
    "http://localhost/",
    "http://LOCALHOST/",
    "http://localhost./",
    "http://localhost.localdomain/",
    "http://0.0.0.0/",
    "http://0/",
    "http://[::]/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[0:0:0:0:0:ffff:7f00:0001]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25lo]/",
    "http://[fd00:ec2::254]/",
    "http://[ff02::1]/",
    "http://2130706433/",
    "http://017700000001/",
    "http://0x7f000001/",
    "http://0x7F.0x0.0x0.0x1/",
    "http://0177.0.0.1/",
    "http://127.1/",
    "http://127.0.1/",
    "http://127.0.0.1./",
    "http://%31%32%37.0.0.1/",
    "http://127%2e0%2e0%2e1/",
    "http://127.0.0.1%00.example.com/",
    "http://\uff11\uff12\uff17.0.0.1/",
    "http://127\u30020\u30020\u30021/",
    "http://\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3/",
    "http://\u2460\u2461\u2466.0.0.1/",
    "http://example.com@127.0.0.1/",
    "http://127.0.0.1@example.com/",
    "http://example.com:80@127.0.0.1/",
    "http://user:pass@example.com/",
    "http://127.0.0.1#@example.com/",
    "http://127.0.0.1?@example.com/",
    "http://example.com\\@127.0.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://2852039166/latest/meta-data/",
    "http://0xA9.0xFE.0xA9.0xFE/",
    "http://[::ffff:169.254.169.254]/",
    "http://100.100.100.200/",
    "http://168.63.129.16/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://192.168.0.1/",
    "http://100.64.0.1/",
    "http://192.0.2.1/",
    "http://198.18.0.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://8.8.8.8:22/",
    "http://8.8.8.8:25/",
    "http://8.8.8.8:6379/",
    "http://[::1",
    "http:///etc/passwd",
    "http://:80/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "ftp://127.0.0.1/",
    "dict://127.0.0.1:11211/",
    "unix:///var/run/docker.sock",
    "javascript:alert(1)",
    "//127.0.0.1/",
    "/relative",
    "",
]


@pytest.mark.parametrize("url", HOSTILE)
async def test_a_hostile_url_is_rejected_permanently_without_a_connection(
    calling: Calling, no_sockets: list[object], url: str
) -> None:
    """F3. Every name in the table resolves to this machine, as a name under an attacker's control may."""
    with pytest.raises(PermanentError):
        await calling(allow=(), lookup=inside).call(HttpTarget(url))
    assert no_sockets == []


async def test_a_rejection_names_the_rule_and_the_setting(calling: Calling) -> None:
    with pytest.raises(OutboundRefused, match=r"127\.0\.0\.1 is loopback; add the target to SEXTON_OUTBOUND_ALLOW"):
        await calling(allow=()).call(HttpTarget("http://127.0.0.1/?token=hush"))


class TestNames:
    async def test_a_name_that_resolves_to_an_internal_address_is_rejected(self, calling: Calling, server: Server) -> None:
        with pytest.raises(OutboundRefused, match=r"innocent\.example is at 127\.0\.0\.1, which is loopback"):
            await calling(allow=(f"10.0.0.0/8:{server.port}",), lookup=inside).call(
                HttpTarget(f"http://innocent.example:{server.port}/")
            )
        assert server.connections == 0

    async def test_of_several_addresses_only_the_allowed_ones_are_tried(self, calling: Calling, server: Server) -> None:
        """The first address is public and down, so a client would try the second, which is internal."""

        async def mixed(host: str, port: int) -> list[str]:
            return ["127.0.0.1", "169.254.169.254", "127.0.0.2"]

        caller = calling(allow=(f"127.0.0.1/32:{server.port}",), lookup=mixed)
        assert await caller.outbound.addresses("mixed.example", server.port) == ["127.0.0.1"]
        assert (await caller.call(HttpTarget(f"http://mixed.example:{server.port}/")))["status"] == 200
        assert server.received[0].headers["host"] == f"mixed.example:{server.port}"

    async def test_a_name_that_changes_its_address_after_the_check_is_harmless(self, calling: Calling, server: Server) -> None:
        """DNS rebinding: the client connects to the address that was checked, so a second answer never counts."""
        answers = iter([["127.0.0.2"], ["127.0.0.1"], ["127.0.0.1"]])
        asked: list[str] = []

        async def changing(host: str, port: int) -> list[str]:
            asked.append(host)
            return next(answers)

        caller = calling(allow=(f"127.0.0.2/32:{server.port}",), lookup=changing)
        target = HttpTarget(f"http://rebind.example:{server.port}/")
        with pytest.raises(TargetFailed, match="no connection"):  # 127.0.0.2 does not listen, and no other address is tried
            await caller.call(target)
        assert (len(asked), server.connections) == (1, 0)

    async def test_the_last_check_is_of_the_address_that_is_connected_to(
        self, calling: Calling, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It works even if every earlier check had failed."""
        caller = calling(allow=("10.0.0.0/8:*",))
        monkeypatch.setattr(caller.outbound, "vet", lambda *_, **__: None)
        for host in ("127.0.0.1", "localhost", "[::1]"):
            with pytest.raises((OutboundRefused, TargetFailed)):
                await caller.call(HttpTarget(f"http://{host}:{server.port}/"))
        assert server.connections == 0

    async def test_an_allowed_name_does_not_allow_its_literal_address(self, calling: Calling, server: Server) -> None:
        caller = calling(allow=(f"billing.internal:{server.port}",), lookup=inside)
        assert (await caller.call(HttpTarget(f"http://billing.internal:{server.port}/")))["status"] == 200
        with pytest.raises(OutboundRefused):
            await caller.call(HttpTarget(f"http://127.0.0.1:{server.port}/"))
        with pytest.raises(OutboundRefused):
            await caller.call(HttpTarget(f"http://other.internal:{server.port}/"))
        assert len(server.received) == 1


class TestRedirects:
    async def test_redirects_are_not_followed_unless_the_job_allows_it(self, calling: Calling, server: Server) -> None:
        server.says(answer(302, Location="/elsewhere"))
        with pytest.raises(PermanentError, match="answered 302; the job follows at most 0 redirects"):
            await calling().call(HttpTarget(server.url))

    @pytest.mark.parametrize("location", ["http://127.0.0.1/", "http://169.254.169.254/", "//[::1]/", "http://2130706433/"])
    async def test_a_redirect_to_an_internal_address_is_rejected(self, calling: Calling, server: Server, location: str) -> None:
        """F3: every hop is checked like the first."""
        server.says(answer(302, Location=location))
        with pytest.raises(OutboundRefused):
            await calling(allow=(f"127.0.0.1:{server.port}",)).call(HttpTarget(server.url, redirects=5))

    @pytest.mark.parametrize(
        "location", ["file:///etc/passwd", "gopher://a.example/", "http://", "http://u:p@a.example/", "http://[::1"]
    )
    async def test_a_redirect_without_a_location_is_rejected(self, calling: Calling, server: Server, location: str) -> None:
        server.says(answer(302, Location=location))
        with pytest.raises(PermanentError):
            await calling().call(HttpTarget(server.url, redirects=5))

    async def test_a_redirect_to_a_name_that_resolves_to_an_internal_address_is_rejected(
        self, calling: Calling, server: Server
    ) -> None:
        server.says(answer(307, Location="http://innocent.example/"))
        with pytest.raises(OutboundRefused, match=r"innocent\.example is at 127\.0\.0\.1|is not open"):
            await calling(allow=(f"127.0.0.1:{server.port}",), lookup=inside).call(HttpTarget(server.url, redirects=1))

    async def test_a_redirect_loop_ends(self, calling: Calling, server: Server) -> None:
        server.says(answer(302, Location="/again"))
        with pytest.raises(PermanentError, match="the job follows at most 3 redirects"):
            await calling().call(HttpTarget(server.url, redirects=3))
        assert len(server.received) == 4

    @pytest.mark.parametrize(
        ("status", "method", "then"),
        [
            (301, "POST", "GET"),
            (302, "POST", "GET"),
            (303, "PUT", "GET"),
            (307, "POST", "POST"),
            (308, "PUT", "PUT"),
            (302, "HEAD", "HEAD"),
        ],
    )
    async def test_method_and_body_after_a_redirect_are_as_in_browsers(
        self, calling: Calling, server: Server, status: int, method: str, then: str
    ) -> None:
        server.says(answer(status, Location="/next?a=1"), answer(200))
        await calling().call(HttpTarget(f"{server.url}/first", method=method, redirects=1))
        got = server.received[1]
        assert (got.method, got.path) == (then, "/next?a=1")
        assert (got.body, "content-type" in got.headers) == ((b'{"n":1}', True) if then in ("POST", "PUT") else (b"", False))
        assert got.headers["idempotency-key"] == server.received[0].headers["idempotency-key"]

    async def test_another_origin_gets_neither_secrets_nor_a_signature(self, calling: Calling, server: Server) -> None:
        caller = calling(secrets={"STRIPE": "hush", "HOOKS": "whisper"})
        target = HttpTarget(
            server.url,
            headers={"Authorization": "Basic abc", "X-Key": SecretRef("stripe"), "Cookie": "a=1", "X-Plain": "yes"},
            signed_with=("hooks",),
            redirects=2,
        )
        async with serving() as other:
            server.says(answer(307, Location=f"{other.url}/there"), answer(200))
            other.says(answer(307, Location=f"{server.url}/back"))
            await caller.call(target)
            there, back = other.received[0].headers, server.received[1].headers
            for got in (there, back):  # after one redirect to another origin, no further hop gets them
                assert not {"authorization", "x-key", "cookie", "webhook-signature"} & got.keys()
                assert got["x-plain"] == "yes"
        assert server.received[0].headers["x-key"] == "hush"
        assert "webhook-signature" in server.received[0].headers

    async def test_the_same_origin_gets_them_again_with_a_matching_signature(self, calling: Calling, server: Server) -> None:
        caller = calling(secrets={"HOOKS": "whisper"})
        server.says(answer(303, Location="/next"), answer(200))
        await caller.call(HttpTarget(server.url, signed_with=("hooks",), redirects=1))
        first, second = (got.headers["webhook-signature"] for got in server.received)
        assert first != second


class TestAProxy:
    """Then the proxy resolves hosts, and only the URL's text is checked."""

    async def test_calls_go_through_the_proxy(self, calling: Calling, server: Server) -> None:
        caller = calling(allow=(), proxy=server.url)
        assert (await caller.call(HttpTarget("http://a.example/path")))["status"] == 200
        assert server.received[0].path == "http://a.example/path"

    @pytest.mark.parametrize("url", ["http://127.0.0.1/", "http://localhost/", "http://2130706433/", "http://8.8.8.8:22/"])
    async def test_the_url_is_still_checked(self, calling: Calling, server: Server, url: str) -> None:
        with pytest.raises(OutboundRefused):
            await calling(allow=(), proxy=server.url).call(HttpTarget(url))
        assert server.connections == 0

    async def test_proxy_variables_of_the_environment_are_ignored(
        self, calling: Calling, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        assert (await calling().call(HttpTarget(server.url)))["status"] == 200
