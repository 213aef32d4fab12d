"""The remote client, asynchronous and synchronous: against the real API on a real socket, and against failing networks."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx
import msgspec
import pytest

from sexton import (
    AlreadyExists,
    ApiError,
    ApiUnavailable,
    App,
    AsyncClient,
    Client,
    Context,
    DatabaseUnavailable,
    InvalidSubmission,
    JobFailed,
    KeyReused,
    NotAllowedIn,
    NotFound,
    PermanentError,
    ResultTimeout,
    Retry,
    SchemaMismatch,
    Settings,
    Unique,
    VersionMismatch,
    testing,
)
from sexton.api.app import create
from sexton.api.process import ApiProcess
from sexton.api.resources.events import written
from sexton.client.remote import calls, retries
from sexton.client.remote.waiting import WAIT_S_MAX, Patience
from sexton.clock import SystemClock
from sexton.domain.schedule import Jitter, Window
from sexton.domain.schedule.catch_up import CatchUp
from sexton.ids import entropy
from sexton.store.database import Postgres
from sexton.store.views.transitions import Transition
from sexton.wire import Stats

Drain = Callable[[], Awaitable[None]]
UNKNOWN_ID = UUID("0199a1b2-0000-7000-8000-000000000000")


class Face:
    """One of the two clients, called in the same way. An iterator is read to its end, or up to `first` items."""

    def __init__(self, client: Client | AsyncClient) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def called(*args: Any, first: int | None = None, **kwargs: Any) -> Any:
            if isinstance(self.client, Client):
                return await asyncio.to_thread(self._called, name, args, kwargs, first)
            answer = getattr(self.client, name)(*args, **kwargs)
            if not hasattr(answer, "__aiter__"):
                return await answer
            items = []
            async for item in answer:
                items.append(item)
                if len(items) == first:
                    break
            return items

        return called

    async def result(self, handle: Any, timeout: Any = None) -> Any:  # noqa: ASYNC109
        if isinstance(self.client, Client):
            return await asyncio.to_thread(handle.result, timeout)
        return await handle.result(timeout)

    def _called(self, name: str, args: Any, kwargs: Any, first: int | None) -> Any:
        answer = getattr(self.client, name)(*args, **kwargs)
        if not inspect.isgenerator(answer):
            return answer
        items = []
        for item in answer:
            items.append(item)
            if len(items) == first:
                break
        answer.close()
        return items


@pytest.fixture
async def address(database: Postgres) -> AsyncIterator[str]:
    """A real API on a socket of its own."""
    stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
    process = ApiProcess(database, Settings(api_port=0), clock=SystemClock(), emit=lambda _: None, rng=entropy())
    serving = asyncio.create_task(process.run(stop, ready=listening.set_result))
    yield await listening
    stop.set()
    await serving


@pytest.fixture(params=["sync", "async"])
async def face(request: pytest.FixtureRequest, address: str) -> AsyncIterator[Face]:
    if request.param == "sync":
        with Client(address) as client:
            yield Face(client)
    else:
        async with AsyncClient(address) as client:
            yield Face(client)


@pytest.fixture
async def drain(database_url: str) -> AsyncIterator[Drain]:
    """Runs all due jobs, through the real pipeline."""
    app = App(database_url)

    @app.task(name="echo")
    async def echo(ctx: Context, /, **payload: Any) -> dict[str, Any]:
        return payload

    @app.task(name="fail")
    async def fail(ctx: Context) -> None:
        raise PermanentError("no use")

    async def drained() -> None:
        async with testing.pipeline(app, start=datetime.now(UTC) + timedelta(seconds=1)) as pipeline:
            await pipeline.drain()

    yield drained
    await app.close()


async def test_a_job_is_submitted_and_its_result_returned(face: Face, drain: Drain) -> None:
    """A1, A8, A9, A10, C14."""
    handle = await face.submit(
        "echo",
        {"n": 2**70, "none": None},
        name="welcome",
        tenant="acme",
        priority="high",
        timeout=timedelta(seconds=7),
        retry=Retry.linear(base="3s", max_attempts=2),
        unique=Unique.of("task", "name"),
        tags=["a", "b"],
        key="k-1",
    )
    job = handle.job
    assert (handle.id, handle.created, job.status) == (job.id, True, "pending")
    assert (job.name, job.tenant, job.priority, job.timeout_s, job.tags) == ("welcome", "acme", "high", 7.0, ["a", "b"])
    assert (job.retry.max_attempts, job.retry.backoff, job.retry.base) == (2, "linear", 3.0)
    assert job.warnings  # no worker knows the task yet

    again = await face.submit(
        "echo",
        {"n": 2**70, "none": None},
        name="welcome",
        tenant="acme",
        priority="high",
        timeout=timedelta(seconds=7),
        retry=Retry.linear(base="3s", max_attempts=2),
        unique=Unique.of("task", "name"),
        tags=["a", "b"],
        key="k-1",
    )
    assert (again.id, again.created) == (handle.id, False)
    with pytest.raises(KeyReused):
        await face.submit("echo", {"other": 1}, tenant="acme", key="k-1")
    with pytest.raises(ResultTimeout):
        await face.result(handle, "10ms")

    await drain()
    assert await face.result(handle, "5s") == {"n": 2**70, "none": None}
    assert (await face.job(handle.id)).status == "completed"
    (execution,) = await face.executions(handle.id)
    assert (await face.execution(execution.id)).status == "succeeded"
    assert [found.id for found in await face.executions(tenant="acme", status="succeeded")] == [execution.id]


async def test_an_invalid_request_raises_the_same_error_as_in_the_sdk(face: Face, drain: Drain) -> None:
    """A5, F2: with a pointer to the fault, and the API's problem document."""
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"delay": "soon"}, "/delay"),
        ({"run_at": datetime(2026, 1, 1)}, "/run_at"),  # noqa: DTZ001
        ({"delay": 1, "run_at": datetime(2026, 1, 1, tzinfo=UTC)}, "/delay"),
        ({"priority": "urgent"}, "/priority"),
        ({"tags": ["x"] * 1000}, "/tags"),
        ({"retry": Retry.linear(base="1s").on(ValueError, "never")}, "/retry/rules"),
        ({"submitted_by": "me"}, "/submitted_by"),
    ]
    for options, pointer in wrong:
        with pytest.raises(InvalidSubmission) as raised:
            await face.submit("echo", {}, **options)
        assert raised.value.field == pointer
    for payload in ({"text": "\0"}, "x" * 300_000, {1, object()}):
        with pytest.raises(InvalidSubmission) as raised:
            await face.submit("echo", payload)
        assert raised.value.field == "/payload"
    with pytest.raises(InvalidSubmission) as raised:
        await face.jobs(status="odd")
    assert (raised.value.field, getattr(raised.value.problem, "status", None)) == ("?status", 422)
    for call in (face.job, face.cancel, face.retry, face.pause, face.execution, face.dead_letter):
        for unknown in (UNKNOWN_ID, "not/an?id"):
            with pytest.raises(NotFound):
                await call(unknown)
    handle = await face.submit("fail", retry=Retry.never())
    await drain()
    with pytest.raises(JobFailed, match="no use"):
        await face.result(handle)
    with pytest.raises(NotAllowedIn, match="failed"):
        await face.cancel(handle.id)


async def test_a_list_is_read_over_all_its_pages(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    """A13."""
    monkeypatch.setattr("sexton.client.remote.sender.PAGE", 7)
    requests = [face.client.request("echo", {"n": n}, delay="1h", tags=["odd"] if n % 2 else None) for n in range(30)]
    items = await face.submit_many(requests)
    ids = [item.id for item in items]
    assert [job.id for job in await face.jobs()] == ids[::-1]
    assert [job.id for job in await face.jobs(tag="odd", status="pending")] == ids[1::2][::-1]
    assert [job.id for job in await face.jobs(limit=9)] == ids[::-1][:9]
    since = datetime.now(UTC) + timedelta(hours=1)
    assert await face.jobs(submitted_from=since) == []


async def test_a_large_submission_goes_in_chunks_and_is_counted_as_one(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    """A11."""
    monkeypatch.setattr(calls, "BATCH_LIMIT", 4)
    good = [face.client.request("echo", {"n": n}, key=f"k{n}") for n in range(6)]
    items = await face.submit_many(good)
    assert [(item.index, item.created) for item in items] == [(n, True) for n in range(6)]
    bad = msgspec.structs.replace(good[0], delay="soon", idempotency_key=None)
    with pytest.raises(InvalidSubmission) as raised:
        await face.submit_many([*good, bad])
    assert raised.value.field == "/6/delay"
    items = await face.submit_many([*good, bad], partial=True)
    assert [item.index for item in items] == list(range(7))
    assert items[6].problem is not None
    assert len(await face.jobs()) == 6


async def test_a_payload_over_many_lines_stays_one_payload(face: Face) -> None:
    """A11, F2: batches are sent line by line, and a payload as it was written; a line of it was once taken for a job."""
    payload = msgspec.Raw(b'[\n{"handler": "evil"},\n1.0000000000000000001\n]')
    (item,) = await face.submit_many([face.client.request("echo", payload)], partial=True)
    assert item.created
    (job,) = await face.jobs()
    assert (job.handler, msgspec.json.decode(job.payload)[0]) == ("echo", {"handler": "evil"})


async def test_a_job_can_be_edited_paused_resumed_and_cancelled(face: Face) -> None:
    """A5, A6, A7."""
    handle = await face.submit("echo", {"a": 1}, delay="1h", name="old")
    edited = await face.edit(handle.id, version=1, payload={"a": 2}, name=None, delay=timedelta(hours=2), tags=["x"])
    assert (edited.version, msgspec.json.decode(edited.payload), edited.name, edited.tags) == (2, {"a": 2}, None, ["x"])
    with pytest.raises(VersionMismatch):
        await face.edit(handle.id, version=1, queue="other")
    with pytest.raises(InvalidSubmission) as raised:
        await face.edit(handle.id, handler="other")
    assert raised.value.field == "/handler"
    paused = await face.pause(handle.id, note="wait for it")
    assert (paused.status, paused.note) == ("paused", "wait for it")
    assert (await face.resume(handle.id)).status == "pending"
    cancelled = await face.cancel(handle.id)
    assert (cancelled.job.status, cancelled.ended_count) == ("cancelled", 1)


async def test_dead_letters_are_listed_replayed_and_discarded(face: Face, drain: Drain) -> None:
    """A7, C7."""
    first, second = [await face.submit("fail", queue=queue) for queue in ("a", "b")]
    await drain()
    letters = await face.dead_letters()
    assert [letter.job_id for letter in letters] == [second.id, first.id]
    (letter,) = await face.dead_letters(queue="a")
    assert (await face.dead_letter(letter.id)).reason == letter.reason
    assert (await face.replay(queue="a", dry_run=True)).matched_count == 1
    replayed = await face.replay([letter.id])
    assert list(replayed.replayed) == [first.id]
    await drain()
    assert (await face.retry(second.id)).status == "pending"
    await drain()
    assert (await face.discard(handler="fail", permanent=True)).matched_count == 2
    assert await face.dead_letters() == []
    with pytest.raises(InvalidSubmission):  # choosing nothing does not mean everything
        await face.discard()


async def test_the_fleet_and_the_statistics_are_returned(face: Face) -> None:
    """C11, E7."""
    await face.submit("echo", tenant="acme/1", queue="a.b/c")
    assert (await face.stats()).ready_count == 1
    assert [queue.name for queue in await face.queues()] == ["a.b/c"]
    assert (await face.queue("a.b/c")).ready_count == 1
    assert [tenant.name for tenant in await face.tenants()] == ["acme/1"]
    assert (await face.tenant("acme/1")).ready_count == 1
    assert (await face.workers(), await face.nodes()) == ([], [])
    assert (await face.ready()).ready


async def test_events_arrive_as_they_happen(face: Face) -> None:
    """A8."""
    listening: asyncio.Future[Any] = asyncio.ensure_future(face.events(handler="echo", first=2))
    handles: list[Any] = []
    while not listening.done():  # each iteration submits one more, until two events were received
        handles.append(await face.submit("echo", {"n": len(handles)}))
        await asyncio.wait([listening], timeout=0.2)
        assert len(handles) < 100
    events = await listening
    assert [event.type for event in events] == ["submitted", "submitted"]
    assert {event.job_id for event in events} <= {handle.id for handle in handles}


class Lossy(httpx.ASGITransport):
    """Delivers every request, and loses the first reply."""

    def __init__(self, app: Any) -> None:
        super().__init__(app)
        self.lost = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        if self.lost == 0:
            self.lost += 1
            raise httpx.ReadError("connection reset")
        return response


async def test_a_submission_whose_reply_was_lost_is_sent_again_and_is_one_job(
    database: Postgres, connection: asyncpg.Connection[Any]
) -> None:
    """A1, A10: without the client's own key there would be two."""
    app = create(database, Settings(), clock=SystemClock(), emit=lambda _: None, rng=entropy())
    lossy = Lossy(app)
    async with AsyncClient("http://api.invalid", transport=lossy) as client:
        handle = await client.submit("echo", {"a": 1})
    assert lossy.lost == 1
    assert await connection.fetchval("SELECT array_agg(id) FROM sexton.jobs") == [handle.id]
    await app.state["api"].close()


class Network:
    """Gives the prepared answers in turn, and records the requests."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers, self.asked = list(answers), list[httpx.Request]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, content=answer.content, headers=answer.headers)


@pytest.fixture
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "PAUSE_S_MIN", 0.0)
    monkeypatch.setattr(retries, "PAUSE_S_MAX", 0.0)


def problem(status: int, code: str, **headers: str) -> httpx.Response:
    document = {"type": f"urn:{code}", "title": "T", "status": status, "detail": "the detail", "code": code}
    return httpx.Response(status, json=document, headers={name.replace("_", "-"): value for name, value in headers.items()})


def faces(network: Network, **options: Any) -> Iterable[Face]:
    transport = httpx.MockTransport(network)
    return Face(Client("http://api", transport=transport, **options)), Face(
        AsyncClient("http://api", transport=transport, **options)
    )


BROKEN, REFUSED = httpx.ReadError("reset"), httpx.ConnectError("refused")
READY = httpx.Response(200, json={"ready": True, "checks": {}})
STATS = httpx.Response(
    200,
    content=msgspec.json.encode(
        Stats(
            at=datetime(2026, 3, 1, tzinfo=UTC),
            ready_count=0,
            running_count=0,
            waiting_count=0,
            paused_count=0,
            capped=False,
            oldest_ready_s=None,
            next_due_at=None,
            dead_letter_count=0,
            worker_count=0,
            node_count=0,
            slot_count=0,
            ended_last_minute={},
        )
    ),
)
CHANGES: list[tuple[str, Any]] = [
    ("cancel", UNKNOWN_ID),
    ("retry", UNKNOWN_ID),
    ("replay", [UNKNOWN_ID]),
    ("discard", [UNKNOWN_ID]),
]
GONE = problem(404, "not_found")


@pytest.mark.usefixtures("_no_pauses")
class TestPersistence:
    """A10: which calls are repeated, and which must not be."""

    async def test_a_read_is_tried_again_a_bounded_number_of_times(self) -> None:
        busy = problem(503, "overloaded", Retry_After="9")
        stories: list[list[httpx.Response | Exception]] = [[BROKEN, REFUSED, READY], [busy, BROKEN, STATS]]
        for answers in stories:
            for place in (0, 1):
                network = Network(*answers)
                face = list(faces(network))[place]
                await (face.ready() if answers[-1] is READY else face.stats())
                assert network.answers == []
        network = Network(*[REFUSED] * 9)
        for face in faces(network, retries=2):
            before = len(network.asked)
            with pytest.raises(ApiUnavailable, match="sexton api"):
                await face.stats()
            assert len(network.asked) - before == 3

    async def test_a_submission_keeps_its_key_through_every_try(self) -> None:
        for place in (0, 1):
            network = Network(BROKEN, problem(409, "idempotency_key_busy", Retry_After="1"), problem(422, "invalid"))
            with pytest.raises(InvalidSubmission):
                await list(faces(network))[place].submit("a")
            keys = {msgspec.json.decode(request.content)["idempotency_key"] for request in network.asked}
            assert (len(network.asked), len(keys)) == (3, 1)

    async def test_without_retries_it_sends_no_key_of_its_own_and_nothing_twice(self) -> None:
        for place in (0, 1):
            network = Network(BROKEN)
            with pytest.raises(ApiUnavailable, match="may have been processed"):
                await list(faces(network, retries=0))[place].submit("a")
            assert msgspec.json.decode(network.asked[0].content) == {"handler": "a", "payload": {}}

    async def test_a_call_that_may_have_succeeded_is_not_repeated(self) -> None:
        for place in (0, 1):
            for name, argument in CHANGES:
                network = Network(BROKEN, BROKEN)
                with pytest.raises(ApiUnavailable, match="may have been processed"):
                    await getattr(list(faces(network))[place], name)(argument)
                assert len(network.asked) == 1
                network = Network(REFUSED, GONE)  # this one never arrived
                with pytest.raises(NotFound):
                    await getattr(list(faces(network))[place], name)(argument)

    async def test_a_bulk_submission_is_sent_again_only_if_every_job_has_a_key(self) -> None:
        request = calls.request
        for place in (0, 1):
            network = Network(BROKEN, problem(422, "invalid"))
            with pytest.raises(ApiUnavailable):
                await list(faces(network))[place].submit_many([request("a", key="k"), request("a")])
            network = Network(BROKEN, problem(422, "invalid"))
            with pytest.raises(InvalidSubmission):
                await list(faces(network))[place].submit_many([request("a", key="k")])

    async def test_a_broken_stream_continues_where_it_broke(self) -> None:
        def event(number: int) -> str:
            document = {
                "type": "submitted",
                "at": "2026-03-01T09:00:00Z",
                "job_id": str(UNKNOWN_ID),
                "handler": f"h{number}",
                "queue": "q",
                "tenant": "t",
            }
            return f": beat\n\nevent: submitted\nid: {number}\ndata: {msgspec.json.encode(document).decode()}\n\n"

        for place in (0, 1):
            network = Network(
                httpx.Response(200, text=event(1) + 'id: 9\ndata: {"half'),
                BROKEN,
                httpx.Response(200, text=event(2)),
                httpx.Response(200, text=event(3)),
            )
            events = await list(faces(network))[place].events(first=3)
            assert [event.handler for event in events] == ["h1", "h2", "h3"]
            assert [request.headers.get("Last-Event-ID") for request in network.asked] == [None, "1", "1", "2"]


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (problem(503, "database_unavailable"), DatabaseUnavailable, "the detail"),
        (problem(503, "not_ready"), SchemaMismatch, "the detail"),
        (problem(503, "overloaded"), ApiUnavailable, "the detail"),
        (problem(500, "internal"), ApiError, "T: the detail"),
        (problem(418, "new_in_v9"), ApiError, "T: the detail"),
        (httpx.Response(502, text="<html>"), ApiUnavailable, "502"),
        (httpx.Response(404, text="<html>"), ApiError, "is it Sexton's API"),
        (httpx.Response(200, text="<html>"), ApiError, "is it Sexton's API"),
        (httpx.Response(200, json={"ready": 1}), ApiError, "is it Sexton's API"),
    ],
)
async def test_every_answer_has_an_error_with_advice(answer: httpx.Response, kind: type[Exception], words: str) -> None:
    """F2."""
    for face in faces(Network(answer, answer), retries=0):
        with pytest.raises(kind, match=words):
            await face.stats()


async def test_not_ready_is_an_answer_and_not_an_error() -> None:
    """E7."""
    document = {"ready": False, "checks": {"database": {"ok": False, "detail": "away"}}}
    for face in faces(Network(*[httpx.Response(503, json=document)] * 2)):
        assert not (await face.ready()).ready


@pytest.mark.parametrize("url", ["", "hunter2", "ftp://u:hunter2@host", "http://"])
def test_an_invalid_address_is_reported_without_its_password(url: str) -> None:
    """F5."""
    for kind in (Client, AsyncClient):
        with pytest.raises(ApiUnavailable) as raised:
            kind(url)
        assert "hunter2" not in str(raised.value)


async def test_a_password_in_the_address_is_not_in_the_error() -> None:
    """F5."""
    async with AsyncClient("http://ada:hunter2@127.0.0.1:1", retries=0) as client:
        with pytest.raises(ApiUnavailable) as raised:
            await client.stats()
    assert "hunter2" not in str(raised.value)
    assert "127.0.0.1:1" in str(raised.value)


def test_both_clients_have_the_same_calls() -> None:
    """A1."""

    def public(kind: type) -> dict[str, list[str]]:
        functions = inspect.getmembers(kind, inspect.isfunction)
        return {name: list(inspect.signature(found).parameters) for name, found in functions if not name.startswith("_")}

    assert public(Client) == public(AsyncClient)


async def test_a_schedule_is_written_previewed_edited_paused_and_explained(face: Face) -> None:
    """A2, A3, A6, A7: with the names of the SDK."""
    job = await face.schedule(
        "echo",
        {"n": 1},
        cron="0 9 * * MON-FRI",
        timezone="America/New_York",
        name="report",
        dst={"gap": "skip"},
        jitter=Jitter(30.0, both=True),
        exclude=["2030-12-25", Window(datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 2, 1, tzinfo=UTC))],
        overlap={"policy": "queue", "max_queued": 3},
        catch_up=CatchUp("all", 60.0),
        timeout=timedelta(seconds=7),
        retry=Retry(max_attempts=2),
    )
    assert (job.created, job.schedule.cron, job.schedule.dst.gap, job.schedule.jitter.both) == (
        True,
        "0 9 * * MON-FRI",
        "skip",
        True,
    )
    assert (job.overlap.max_queued, job.catch_up.window, job.timeout_s, len(job.schedule.exclude)) == (3, 60.0, 7.0, 2)
    with pytest.raises(AlreadyExists):
        await face.schedule("echo", cron="@daily", name="report")
    again = await face.schedule("echo", every=timedelta(hours=1), name="report", on_name="update")
    assert (again.id, again.created, again.version, again.schedule.every) == (job.id, False, 2, 3600.0)
    told = await face.preview(job.id, count=3)
    assert [later - earlier for earlier, later in pairwise(told.fires)] == [timedelta(hours=1)] * 2
    told = await face.preview(cron="0 9 * * *", timezone="Europe/Berlin", after=datetime(2026, 7, 1, tzinfo=UTC), count=1)
    assert list(told.fires) == [datetime(2026, 7, 1, 7, tzinfo=UTC)]
    assert len((await face.preview_edit(job.id, every="30m")).removed) == 0
    edited = await face.edit(job.id, version=2, every=None, cron="@daily", overlap="parallel", jitter=timedelta(seconds=1))
    assert (edited.schedule.cron, edited.overlap.policy, edited.version) == ("@daily", "parallel", 3)
    paused = await face.pause(job.id, note="x", resume_at=datetime(2100, 1, 1, tzinfo=UTC))
    assert (paused.status, paused.resume_at.year) == ("paused", 2100)
    assert (await face.why(job.id)).answer.startswith("It is paused since")
    assert len((await face.preview_resume(job.id)).fires) == 1
    assert (await face.run(job.id)).status == "paused"
    assert [one.id for one in await face.jobs(kind="recurring")] == [job.id]
    with pytest.raises(InvalidSubmission, match="/cron"):
        await face.schedule("echo", cron="x")
    with pytest.raises(InvalidSubmission, match="/dst"):
        await face.schedule("echo", cron="@daily", dst={"gap": "never"})
    with pytest.raises(InvalidSubmission, match="/colour"):
        await face.preview(colour="red")


async def test_many_schedules_are_created_and_updated_in_one_call(face: Face) -> None:
    """A11."""
    requests = [calls.schedule_request("echo", every="1h", name=f"s{n}", tenant=f"t{n}") for n in range(20)]
    first = await face.submit_many([*requests, calls.request("echo")], on_name="update")
    again = await face.submit_many(requests, on_name="update")
    assert [item.created for item in first] == [True] * 21
    assert [(item.id, item.created) for item in again] == [(item.id, False) for item in first[:20]]


def test_a_schedule_is_sent_again_only_if_that_is_harmless() -> None:
    """It has no idempotency key; its name makes a repetition safe if the schedule may be updated."""
    named, unnamed = calls.schedule_request("a", cron="@daily", name="x"), calls.schedule_request("a", cron="@daily")
    assert calls.submit(named, own_key=True, on_name="update").repeatable
    assert not calls.submit(named, own_key=True).repeatable
    assert not calls.submit(unnamed, own_key=True, on_name="update").repeatable
    assert b"idempotency_key" not in (calls.submit(unnamed, own_key=True).body or b"")
    ((_, batch),) = calls.batches([named, calls.request("a", key="k")], partial=False, on_name="update")
    assert batch.repeatable
    ((_, batch),) = calls.batches([named, unnamed], partial=False, on_name="update")
    assert not batch.repeatable


def test_a_call_that_waits_is_answered_before_the_clients_timeout() -> None:
    """C14: with a client timeout shorter than the server's wait, a healthy job once looked like an unreachable API."""
    assert Patience("a", None, 0.0).wait_s(0.0) == WAIT_S_MAX
    assert Patience("a", None, 0.0, patience_s=5.0).wait_s(0.0) == 2.5
    assert Patience("a", "2s", 0.0, patience_s=5.0).wait_s(1.0) == 1.0


def test_an_event_is_one_line_for_every_reader() -> None:
    """A14: Unicode has more line ends than the protocol."""
    at = datetime(2026, 3, 1, tzinfo=UTC)
    reason = "a\u2028b\u2029c\x85d"
    event = Transition(
        key="k", type="retrying", at=at, job_id=uuid4(), task="a", queue="q", tenant="t", status="snoozed", reason=reason
    )
    lines = written(event).decode().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["id", "event", "data", ""]
    assert msgspec.json.decode(lines[2].removeprefix("data: "))["reason"] == reason
