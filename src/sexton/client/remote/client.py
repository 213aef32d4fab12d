"""The API for programs without an event loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Self, TypeVar, Unpack
from uuid import UUID

import httpx

from sexton import wire
from sexton.client.options import Options, ScheduleOptions
from sexton.domain.duration import Duration
from sexton.domain.schedule.backfill import SPACING_S
from sexton.domain.schedule.backfill import Fires as BackfillFires
from sexton.domain.schedule.backfill import Overlap as BackfillOverlap
from sexton.domain.schedule.document import OnName
from sexton.domain.targets import Target
from sexton.errors import InvalidSubmission
from sexton.ids import entropy

from . import calls, sharing, subscriptions
from .address import DEFAULT_URL, TIMEOUT_S, is_local, shown, timeouts, validated
from .call import Call
from .calls import PAGE, EventFilters, ExecutionFilters, JobFilters, LetterFilters
from .persistence import RETRIES, Persistence
from .problems import error_in
from .sharing import LimitWords, QueueWords, TenantWords
from .stream import READ_TIMEOUT_S, EventStream
from .subscriptions import DeliveryFilters, SubscriptionWords
from .waiting import BREATH_S, ENDED, Patience, result_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Handle:
    """A submitted job."""

    job: wire.Submitted
    _client: Client = field(repr=False, compare=False)

    @property
    def id(self) -> UUID:
        return self.job.id

    @property
    def created(self) -> bool:
        """False: an idempotency key or a unique job stood already, and this is its job."""
        return self.job.created

    def result(self, timeout: Duration | None = None) -> Any:
        return self._client.result(self.id, timeout)


class Client:
    """The API from Python: `with Client("http://127.0.0.1:8474") as client: …`. Safe to share between threads.

    Reads and submissions are tried again (`retries` times) when the connection breaks or the server is busy. A submission
    without a key gets a random one for that, so it cannot become two jobs; `retries=0` sends neither key nor repetition.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        timeout_s: float = TIMEOUT_S,
        retries: int = RETRIES,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._http = httpx.Client(
            base_url=validated(url), timeout=timeouts(timeout_s), transport=transport, trust_env=not is_local(url)
        )
        self._address, self._retries, self._dice = shown(url), retries, entropy()

    def submit(self, handler: str | Target, payload: Any = None, **options: Unpack[Options]) -> Handle:
        return self.submit_request(calls.request(handler, payload, **options))

    def submit_request(self, request: wire.JobRequest) -> Handle:
        return Handle(self._send(calls.submit(request, own_key=self._retries > 0)), self)

    def schedule(
        self, handler: str | Target, payload: Any = None, *, on_name: OnName = "refuse", **options: Unpack[ScheduleOptions]
    ) -> wire.Submitted:
        """A recurring job: `client.schedule("report", cron="0 9 * * MON-FRI", timezone="America/New_York", name="report")`. One
        whose name stands already is refused (`AlreadyExists`), or with `on_name="update"` brought up to date."""
        asked = calls.schedule_request(handler, payload, **options)
        return self._send(calls.submit(asked, own_key=False, on_name=on_name))

    def schedule_request(
        self, handler: str | Target, payload: Any = None, **options: Unpack[ScheduleOptions]
    ) -> wire.JobRequest:
        """The same, not sent yet: for `submit_many`."""
        return calls.schedule_request(handler, payload, **options)

    def request(self, handler: str | Target, payload: Any = None, **options: Unpack[Options]) -> wire.JobRequest:
        """The same, not sent yet: for `submit_many`."""
        return calls.request(handler, payload, **options)

    def submit_many(
        self, requests: Iterable[wire.JobRequest], *, partial: bool = False, on_name: OnName = "refuse"
    ) -> list[wire.BatchItem]:
        """In order. All or none for up to 10,000 jobs and 8 MiB; beyond that each such chunk by itself. With `partial` what is
        wrong with one job stops no other, and is said in its item. With `on_name="update"` named schedules are created or
        brought up to date."""
        return [item for chunk in self.submit_chunks(requests, partial=partial, on_name=on_name) for item in chunk]

    def submit_chunks(
        self, requests: Iterable[wire.JobRequest], *, partial: bool = False, on_name: OnName = "refuse"
    ) -> Iterator[list[wire.BatchItem]]:
        """The same, chunk by chunk, for whoever shows progress."""
        for first, call in calls.batches(requests, partial=partial, on_name=on_name):
            try:
                yield calls.shifted((self._send(call)).items, first)
            except InvalidSubmission as error:
                raise calls.shifted_fault(error, first) from None

    def job(self, job_id: UUID | str) -> wire.Job:
        return self._send(calls.job(job_id))

    def jobs(self, *, limit: int | None = None, **filters: Unpack[JobFilters]) -> Iterator[wire.Job]:
        """Newest first, over all pages."""
        return self._walk(lambda cursor, size: calls.jobs(filters, cursor, size), limit)

    def edit(self, job_id: UUID | str, *, version: int | None = None, **changes: Any) -> wire.Job:
        """Changes a job that has not begun. With `version`, only if nobody has edited it since: `VersionMismatch` otherwise."""
        return self._send(calls.edit(job_id, calls.changes(changes), version))

    def preview_edit(self, job_id: UUID | str, **changes: Any) -> wire.EditPreview:
        """Which fires of a recurring job such an edit would add and remove; nothing is changed."""
        return self._send(calls.preview_edit(job_id, calls.changes(changes)))

    def pause(self, job_id: UUID | str, *, note: str | None = None, resume_at: datetime | None = None) -> wire.Job:
        """A recurring job may go on by itself at `resume_at`."""
        change = wire.StatusChange(status="paused", note=note, resume_at=resume_at)
        return self._send(calls.set_status(job_id, change))

    def resume(self, job_id: UUID | str) -> wire.Job:
        return self._send(calls.set_status(job_id, wire.StatusChange(status="active")))

    def preview_resume(self, job_id: UUID | str) -> wire.ResumePreview:
        """What a paused recurring job would fire if it were resumed now; nothing is changed."""
        return self._send(calls.preview_resume(job_id))

    def cancel(self, job_id: UUID | str) -> wire.Cancelled:
        return self._send(calls.cancel(job_id))

    def retry(self, job_id: UUID | str) -> wire.Job:
        return self._send(calls.retry(job_id))

    def run(self, job_id: UUID | str, payload: Any = None) -> wire.Job:
        """A recurring job fires now, beside its schedule; a pending one-time job is due now. A `payload` is of that run of a
        recurring job alone: of its retries, its dead letter and the replay of that."""
        return self._send(calls.run(job_id, payload))

    def backfill(
        self,
        job_id: UUID | str,
        from_at: datetime,
        until: datetime | None = None,
        *,
        fires: BackfillFires = "missing",
        spacing: Duration = SPACING_S,
        overlap: BackfillOverlap = "queue",
        dry_run: bool = False,
        version: int | None = None,
    ) -> wire.Backfill:
        """Runs the past fires of a recurring job from `from_at` to before `until` (now, if left out), oldest first, each due
        `spacing` after the one before. With `version`, only if nobody has edited the job since."""
        return self._send(
            calls.backfill(
                job_id,
                from_at,
                until,
                fires=fires,
                spacing=spacing,
                overlap=overlap,
                dry_run=dry_run,
                version=version,
            )
        )

    def stop_backfill(self, job_id: UUID | str) -> wire.BackfillStopped:
        """What of it waits never starts; what runs goes on."""
        return self._send(calls.stop_backfill(job_id))

    def why(self, job_id: UUID | str) -> wire.Why:
        """Why it has or has not run."""
        return self._send(calls.why(job_id))

    def preview(
        self, job_id: UUID | str | None = None, *, after: datetime | None = None, count: int = 10, **schedule: Any
    ) -> wire.Preview:
        """The next fires of a job, or of a schedule that need not exist: `client.preview(cron="0 9 * * *")`."""
        return self._send(calls.preview(job_id, after, count, schedule))

    def result(self, job_id: UUID | str, timeout: Duration | None = None) -> Any:
        """What the handler returned. `JobFailed` if the job ended otherwise, `ResultTimeout` if it has not ended yet."""
        return result_of(self.ended(job_id, timeout))

    def ended(self, job_id: UUID | str, timeout: Duration | None = None) -> wire.Job:
        """The job once it has ended, however it did."""
        now = time.monotonic
        patience = Patience(job_id, timeout, now(), patience_s=self._timeout_s)
        while True:
            job = self._send(calls.job(job_id, wait_s=patience.wait_s(now())))
            if job.status in ENDED:
                return job
            patience.check(now())
            time.sleep(BREATH_S)

    def executions(
        self, job_id: UUID | str | None = None, *, limit: int | None = None, **filters: Unpack[ExecutionFilters]
    ) -> Iterator[wire.Execution]:
        """The tries of one job, or of all that match."""
        if job_id is not None:
            return self._walk(lambda cursor, size: calls.executions_of(job_id, cursor, size), limit)
        return self._walk(lambda cursor, size: calls.executions(filters, cursor, size), limit)

    def execution(self, execution_id: UUID | str) -> wire.Execution:
        return self._send(calls.execution(execution_id))

    def dead_letters(self, *, limit: int | None = None, **filters: Unpack[LetterFilters]) -> Iterator[wire.DeadLetter]:
        return self._walk(lambda cursor, size: calls.dead_letters(filters, cursor, size), limit)

    def dead_letter(self, letter_id: UUID | str) -> wire.DeadLetter:
        return self._send(calls.dead_letter(letter_id))

    def replay(
        self,
        ids: Iterable[UUID] | None = None,
        *,
        dry_run: bool = False,
        keep_key: bool = True,
        limit: int = 10_000,
        **filters: Unpack[LetterFilters],
    ) -> wire.Replay:
        return self._send(calls.replay(ids, filters, dry_run=dry_run, keep_key=keep_key, limit=limit))

    def discard(
        self,
        ids: Iterable[UUID] | None = None,
        *,
        dry_run: bool = False,
        limit: int = 10_000,
        **filters: Unpack[LetterFilters],
    ) -> wire.Discard:
        return self._send(calls.discard(ids, filters, dry_run=dry_run, limit=limit))

    def workers(self) -> list[wire.Worker]:
        return list((self._send(calls.workers())).items)

    def nodes(self) -> list[wire.Node]:
        return list((self._send(calls.nodes())).items)

    def queues(self) -> list[wire.QueueView]:
        return list((self._send(calls.queues())).items)

    def queue(self, name: str) -> wire.QueueView:
        return self._send(calls.queue(name))

    def tenants(self) -> list[wire.TenantView]:
        return list((self._send(calls.tenants())).items)

    def tenant(self, name: str) -> wire.TenantView:
        return self._send(calls.tenant(name))

    def set_tenant(self, name: str, **settings: Unpack[TenantWords]) -> wire.TenantView:
        """Replaces what was set for it: its weight, and its limits."""
        return self._send(sharing.set_tenant(name, settings))

    def pause_tenant(self, name: str, *, note: str | None = None) -> wire.TenantView:
        """None of its runs starts before it is resumed; what runs goes on."""
        return self._send(sharing.tenant_status(name, wire.ShareStatusChange(status="paused", note=note)))

    def resume_tenant(self, name: str) -> wire.TenantView:
        return self._send(sharing.tenant_status(name, wire.ShareStatusChange(status="active")))

    def remove_tenant(self, name: str) -> wire.Removed:
        """It has the defaults again."""
        return self._send(sharing.remove_tenant(name))

    def set_queue(self, name: str, **settings: Unpack[QueueWords]) -> wire.QueueView:
        """Replaces what was set for it: its pace, ageing, and the defaults of its jobs."""
        return self._send(sharing.set_queue(name, settings))

    def pause_queue(self, name: str, *, note: str | None = None) -> wire.QueueView:
        """Nothing in it starts before it is resumed; what runs goes on."""
        return self._send(sharing.queue_status(name, wire.ShareStatusChange(status="paused", note=note)))

    def resume_queue(self, name: str) -> wire.QueueView:
        return self._send(sharing.queue_status(name, wire.ShareStatusChange(status="active")))

    def remove_queue(self, name: str) -> wire.Removed:
        """It has the defaults again."""
        return self._send(sharing.remove_queue(name))

    def limits(self, prefix: str | None = None, *, limit: int | None = None) -> Iterator[wire.LimitView]:
        """By key, without their holders."""
        return self._walk(lambda cursor, size: sharing.limits(prefix, cursor, size), limit)

    def limit(self, key: str) -> wire.LimitView:
        """With who holds it, and how many wait."""
        return self._send(sharing.limit(key))

    def set_limit(self, key: str, **numbers: Unpack[LimitWords]) -> wire.LimitView:
        """Makes it or replaces its numbers: `running` at once, or `count` starts `per` span, or both."""
        return self._send(sharing.set_limit(key, numbers))

    def remove_limit(self, key: str) -> wire.Removed:
        """`NotAllowedIn` while runs wait for it."""
        return self._send(sharing.remove_limit(key))

    def set_subscription(self, name: str, url: str, **settings: Unpack[SubscriptionWords]) -> wire.SubscriptionView:
        """Makes it or replaces all of it: the URL is told what becomes of runs. `tenant`, `run_queue` and `job_id` say of
        which."""
        return self._send(subscriptions.put(name, url, settings))

    def subscriptions(self, *, limit: int | None = None) -> Iterator[wire.SubscriptionView]:
        """By name."""
        return self._walk(subscriptions.subscriptions, limit)

    def subscription(self, name: str) -> wire.SubscriptionView:
        return self._send(subscriptions.subscription(name))

    def remove_subscription(self, name: str) -> wire.SubscriptionRemoved:
        """What it has not delivered yet is cancelled."""
        return self._send(subscriptions.remove(name))

    def deliveries(self, name: str, *, limit: int | None = None, **filters: Unpack[DeliveryFilters]) -> Iterator[wire.Delivery]:
        """The log of a subscription, newest first."""
        return self._walk(lambda cursor, size: subscriptions.deliveries(name, filters, cursor, size), limit)

    def replay_delivery(self, name: str, delivery_id: UUID | str) -> wire.DeliveriesReplayed:
        """Sends it again, under the id the message had. `NotAllowedIn` while it is on its way."""
        return self._send(subscriptions.replay(name, delivery_id))

    def replay_deliveries(
        self,
        name: str,
        *,
        status: Literal["failed", "completed", "cancelled"] | None = "failed",
        from_at: datetime | None = None,
        until: datetime | None = None,
        dry_run: bool = False,
        limit: int = 1_000,
    ) -> wire.DeliveriesReplayed:
        """Sends those again that ended so, the newest first; with `status=None` all that have ended."""
        return self._send(
            subscriptions.replay_many(name, status=status, from_at=from_at, until=until, dry_run=dry_run, limit=limit)
        )

    def stats(self) -> wire.Stats:
        return self._send(calls.stats())

    def ready(self) -> wire.Readiness:
        return self._send(calls.ready())

    def events(self, **filters: Unpack[EventFilters]) -> Iterator[wire.Event]:
        """One per transition, as they happen; after a broken connection it goes on where it was. Ends when you stop it."""
        stream = EventStream(calls.query(**filters))
        call = Call("GET", "/v1/events", wire.Event, repeatable=True)
        persistence = Persistence(call, self._retries, self._dice, self._address)
        while True:
            try:
                with self._http.stream(
                    "GET", "/v1/events", params=stream.query, headers=stream.headers(), timeout=timeouts(READ_TIMEOUT_S)
                ) as response:
                    if not response.is_success:
                        response.read()
                        again_s = persistence.after_answer(response)
                        if again_s is None:
                            raise error_in(response)
                        pause_s = again_s
                    else:
                        stream.opened()
                        for line in response.iter_lines():
                            event = stream.heard(line)
                            if event is not None:
                                persistence = Persistence(call, self._retries, self._dice, self._address)
                                yield event
                        pause_s = persistence.after_failure(httpx.ReadError("the stream ended"))
            except httpx.RequestError as error:
                pause_s = persistence.after_failure(error)
            time.sleep(pause_s)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _walk(self, page: Callable[[str | None, int], Call[wire.Page[T]]], limit: int | None) -> Iterator[T]:
        cursor, left = None, float("inf") if limit is None else limit
        while left > 0:
            answer = self._send(page(cursor, int(min(left, PAGE))))
            yield from answer.items
            left -= len(answer.items)
            cursor = answer.next_cursor
            if cursor is None:
                return

    def _send(self, call: Call[T]) -> T:
        persistence = Persistence(call, self._retries, self._dice, self._address)
        while True:
            try:
                response = self._http.request(**call.request())
            except httpx.RequestError as error:
                pause_s = persistence.after_failure(error)
            else:
                again_s = persistence.after_answer(response)
                if again_s is None:
                    return call.read(response)
                pause_s = again_s
            time.sleep(pause_s)
