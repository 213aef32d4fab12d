"""The handler of jobs that call a URL: one session per worker, checked connections, a limited share of the worker per host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import aiohttp
from yarl import URL

from sexton.clock import Clock, host_now
from sexton.domain.targets import HttpTarget
from sexton.domain.targets.http import has_status
from sexton.errors import OutboundRefused, PermanentError, SextonError, Snooze
from sexton.handlers.breaker import PATIENCE, Patience
from sexton.handlers.context import Call, Context
from sexton.handlers.handle import Elsewhere, HandedOver, Handle, MakeDue, nowhere, refuse
from sexton.handlers.outbound import Outbound, trusted
from sexton.handlers.python.function import TaskHandle
from sexton.handlers.secrets import Secrets
from sexton.ids import Rng

from .answer import Answer, judge, read_body, result_of
from .error_messages import failure, named
from .headers import Sending, sending, signature
from .hosts import ROW_S, Host, Hosts, Parked

DOWN = (502, 503, 504)  # sent by a proxy in front of a host that is down
_FOLLOWED = (301, 302, 303, 307, 308)

Token = Callable[[Call], str]
Verdict = Literal["answered", "failed"]


@dataclass(slots=True)
class _Visit:
    """One call and its host, until its task is done."""

    host: Host
    began_at: float
    waiting: asyncio.Future[Parked | None] | None
    verdict: Verdict | None = None


class HttpCalls:
    """`public_url` and `token` let a target that answers 202 end its run later by calling back. `make_due` makes postponed
    runs due when their host is up again. `elsewhere` tells whether another worker may allow a call that this one refuses."""

    def __init__(
        self,
        outbound: Outbound,
        secrets: Secrets,
        *,
        clock: Clock,
        rng: Rng,
        permit_limit: int,
        patience: Patience = PATIENCE,
        proxy: str | None = None,
        ca_file: Path | None = None,
        public_url: str | None = None,
        token: Token | None = None,
        make_due: MakeDue = lambda _: None,
        elsewhere: Elsewhere = nowhere,
    ) -> None:
        self._elsewhere = elsewhere
        self._outbound, self._secrets, self._clock, self._rng = outbound, secrets, clock, rng
        self._proxy, self._trusted = proxy, trusted(ca_file)
        self._public_url = None if public_url is None else public_url.rstrip("/")
        self._token, self._make_due = token, make_due
        self._hosts = Hosts(lambda name: Host(name, permit_limit, patience, rng))
        self._session: aiohttp.ClientSession | None = None

    def start(self, call: Call, context: Context) -> Handle:
        target = call.target
        if not isinstance(target, HttpTarget):
            raise PermanentError("the job has no URL")
        url = _read(target.url)
        try:
            self._vet(url)
        except OutboundRefused as refused:
            return TaskHandle(asyncio.get_running_loop().create_task(self._refuse(call, url, refused)), context)
        now = self._clock.monotonic()
        host = self._hosts.get(_origin(url))
        host.arrived(call.run_id)
        admitted = host.admit(now)
        if isinstance(admitted, Parked):
            return _ParkedHandle(self._postponed(admitted, host, call))
        visit = _Visit(host, now, admitted)
        task = asyncio.get_running_loop().create_task(self._visit(call, context, target, url, visit))
        task.add_done_callback(lambda ended: self._end(visit, ended))
        return TaskHandle(task, context)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _visit(self, call: Call, context: Context, target: HttpTarget, url: URL, visit: _Visit) -> Any:
        if visit.waiting is not None:
            parked = await self._wait(visit, visit.waiting)
            if parked is not None:
                raise self._postponed(parked, visit.host, call)
            visit.waiting, visit.began_at = None, self._clock.monotonic()
        what = named(target.method, url)
        sent = sending(call, context, target, self._secrets, self._rng, self._callback(call, target))
        try:
            answer, is_entrusted = await self._follow(call, context, target, sent, url, visit)
        except OutboundRefused as refused:
            if visit.verdict is None:  # after an answer, a redirect was refused: the call has had its effect
                await self._refuse(call, url, refused)
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            visit.verdict = visit.verdict or "failed"
            raise failure(what, error, target.connect_timeout_s) from None
        except asyncio.CancelledError:
            waited_s = self._clock.monotonic() - visit.began_at
            if waited_s >= 0.95 * min(target.connect_timeout_s, call.timeout_s or target.connect_timeout_s):
                visit.verdict = (
                    visit.verdict or "failed"
                )  # no answer for that long is a failure of the host; an earlier stop is not
            raise
        judge(answer, target, what, sent.redacted, self._clock.database_now() or host_now())
        if answer.status == 202 and is_entrusted and self._calls_back and target.calls_back:
            raise HandedOver
        return result_of(answer, sent.redacted)

    async def _refuse(self, call: Call, url: URL, refused: OutboundRefused) -> None:
        await refuse(self._elsewhere, call.run_id, url.raw_host or "", url.port or 0, refused)

    def _postponed(self, parked: Parked, host: Host, call: Call) -> Snooze:
        host.postpone(call.run_id, call.token)
        return Snooze(parked.delay_s, parked.reason)

    async def _wait(self, visit: _Visit, waiting: asyncio.Future[Parked | None]) -> Parked | None:
        tired = asyncio.get_running_loop().call_later(ROW_S, lambda: visit.host.stop_waiting(waiting, self._clock.monotonic()))
        try:
            return await waiting
        finally:
            tired.cancel()

    async def _follow(
        self, call: Call, context: Context, target: HttpTarget, sent: Sending, url: URL, visit: _Visit
    ) -> tuple[Answer, bool]:
        """The last response, and whether it came from the job's own origin. Every redirect is checked like the first URL."""
        origin, left, is_entrusted = _origin(url), target.redirects, True
        while True:
            answer = await self._exchange(call, context, target, sent, url, is_entrusted=is_entrusted)
            visit.verdict = visit.verdict or ("failed" if answer.status in DOWN else "answered")
            location = answer.headers.get("location")
            if not left or location is None or not _leads_on(answer.status, target):
                return answer, is_entrusted
            left -= 1
            url = _read(location, url)
            self._vet(url)
            is_entrusted = is_entrusted and _origin(url) == origin
            sent = _after_redirect(sent, answer.status)

    async def _exchange(
        self, call: Call, context: Context, target: HttpTarget, sent: Sending, url: URL, *, is_entrusted: bool
    ) -> Answer:
        headers = {**sent.headers}
        if is_entrusted:
            headers |= sent.entrusted
            headers |= signature(call, context, sent, int((self._clock.database_now() or host_now()).timestamp()))
        self._outbound.calling(url.raw_host or "")
        try:
            request = self._opened().request(
                sent.method,
                url,
                headers=headers,
                data=sent.body,
                allow_redirects=False,
                timeout=_timeout(target.connect_timeout_s),
                proxy=self._proxy,
            )
            async with request as response:
                encoding = response.headers.get("Content-Encoding", "").lower()
                kept, truncated, is_all = await read_body(response.content, encoding, target.keeps_bytes)
                if not is_all:
                    response.close()
                return Answer(response.status, {name.lower(): text for name, text in response.headers.items()}, kept, truncated)
        except ValueError as error:
            if isinstance(error, aiohttp.ClientError):
                raise
            raise PermanentError(
                f"{named(sent.method, url)}: a header or the URL contains characters that cannot be sent"
            ) from None

    def _vet(self, url: URL) -> None:
        self._outbound.vet(url.raw_host or "", url.port or 0, by_proxy=self._proxy is not None)

    @property
    def _calls_back(self) -> bool:
        return self._public_url is not None and self._token is not None

    def _callback(self, call: Call, target: HttpTarget) -> Mapping[str, str]:
        if self._public_url is None or self._token is None or not target.calls_back:
            return {}
        return {"Sexton-Callback": f"{self._public_url}/v1/runs/{call.run_id}", "Sexton-Callback-Token": self._token(call)}

    def _opened(self) -> aiohttp.ClientSession:
        """No cookies, no credentials of the machine, no automatic decompression."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=self._outbound.connector(self._trusted, by_proxy=self._proxy is not None),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                skip_auto_headers=("Content-Type", "User-Agent", "Accept", "Accept-Encoding"),
            )
        return self._session

    def _end(self, visit: _Visit, ended: asyncio.Task[Any]) -> None:
        error = None if ended.cancelled() else ended.exception()
        if isinstance(error, SextonError):
            error.__traceback__ = None  # a traceback of this module does not help the user
        now = self._clock.monotonic()
        host, took_s = visit.host, now - visit.began_at
        if visit.waiting is not None:
            host.give_up(visit.waiting, now)
        elif visit.verdict == "answered":
            host.answered(now, took_s)
            if due_now := host.take_postponed():
                self._make_due(due_now)
        elif visit.verdict == "failed":
            host.failed(now, took_s)
        else:
            host.undecided(now, took_s)


class _ParkedHandle:
    """A call that was postponed before it started."""

    __slots__ = ("done",)

    def __init__(self, postponed: Snooze) -> None:
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.done.set_exception(postponed)

    @property
    def freed(self) -> asyncio.Future[Any]:
        return self.done

    def ask_to_stop(self) -> None:
        pass

    def force_stop(self) -> bool:
        return True


def _read(text: str, base: URL | None = None) -> URL:
    try:
        url = URL(text) if base is None else base.join(URL(text))
        is_http = url.scheme in ("http", "https") and bool(url.raw_host)
        has_user = url.raw_user is not None or url.raw_password is not None
    except ValueError:
        raise PermanentError("the URL is not valid") from None
    if not is_http:
        raise OutboundRefused("only http:// and https:// can be called")
    if has_user:
        raise OutboundRefused("a URL with a user or a password cannot be called; send them as a header")
    return url


def _leads_on(status: int, target: HttpTarget) -> bool:
    return status in _FOLLOWED and not has_status(target.succeeds_on, status)


def _origin(url: URL) -> str:
    return f"{url.scheme}://{url.host_port_subcomponent}"


def _after_redirect(sent: Sending, status: int) -> Sending:
    """As browsers do: a POST becomes a GET, unless the status requires the same method."""
    if status in (307, 308) or sent.method in ("GET", "HEAD"):
        return sent
    headers = {name: value for name, value in sent.headers.items() if not name.lower().startswith("content-")}
    return replace(sent, method="GET", headers=headers, body=None)


@lru_cache(maxsize=128)
def _timeout(connect_s: float) -> aiohttp.ClientTimeout:
    """Only for connecting. The run's timeout limits the whole call."""
    return aiohttp.ClientTimeout(total=None, connect=connect_s, sock_connect=connect_s)
