"""The load during the faults: every way to submit and every kind of job, at a steady rate.

A submission with an idempotency key is repeated until it is acknowledged. One without a key is sent once, because the job might
already exist.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import httpx

from sexton import App
from sexton.domain.schedule.overlap import Policy
from sexton.errors import SextonError

from .submissions import Submissions, Way

RECURRING = "recurring"
SLOTS = 3  # of the limited kind
SERIAL = ("serial one", "serial two")  # kinds that run one at a time
AGAIN_S = 0.5  # between two tries of one submission
PATIENCE_S = 5.0  # for one HTTP answer
TENANTS = ("amber", "birch", "cedar")  # each submits every kind of job, and has its own schedules
OVERLAPS: tuple[Policy, ...] = ("skip", "queue", "parallel", "replace")


class Job(NamedTuple):
    task: str
    payload: Mapping[str, Any]
    options: Mapping[str, Any]


class Kind(NamedTuple):
    """`share` of the rate. One call submits `batch` jobs at once; over HTTP with a batch of 1 it is a single POST."""

    name: str
    share: float
    make: Callable[[Random], Job]
    way: Way = "sdk"
    batch: int = 5
    keyed: bool = False
    cancelled: bool = False


def _nap(rng: Random, longest_s: float = 0.2) -> dict[str, float]:
    return {"seconds": round(rng.uniform(0, longest_s), 3)}


def _limited(rng: Random) -> Job:
    return Job("nap", {"seconds": 0.05}, {"limit": {"key": "limited", "running": SLOTS}})


def _serial(name: str) -> Kind:
    limit = {"key": name, "ordered": True}
    return Kind(name, 0.02, lambda rng: Job("nap", {"seconds": 0.02}, {"limit": limit}), batch=2)


# A job with an HTTP target belongs here once there is one.
KINDS = (
    Kind("now", 0.21, lambda rng: Job("nap", _nap(rng), {}), batch=10),
    Kind("delayed", 0.20, lambda rng: Job("nap", _nap(rng), {"delay": round(rng.uniform(0.5, 12), 2)}), batch=10, keyed=True),
    Kind("http", 0.10, lambda rng: Job("nap", _nap(rng), {}), way="http", batch=1, keyed=True),
    Kind("http batch", 0.10, lambda rng: Job("nap", _nap(rng), {"delay": round(rng.uniform(0, 4), 2)}), way="http", batch=10),
    Kind("long", 0.03, lambda rng: Job("nap", {"seconds": round(rng.uniform(2, 6), 2)}, {}), batch=2),
    Kind("flaky", 0.08, lambda rng: Job("flaky", {}, {})),
    Kind("cancelled", 0.05, lambda rng: Job("nap", {"seconds": 1.5}, {"delay": round(rng.uniform(0, 6), 2)}), cancelled=True),
    Kind("limited", 0.08, _limited),
    *map(_serial, SERIAL),
    Kind("effect", 0.08, lambda rng: Job("effect", {}, {})),
    Kind("once", 0.03, lambda rng: Job("once", _nap(rng), {}), batch=2),
)


class Load:
    def __init__(self, app: App, api_url: str, submissions: Submissions, *, rate: float, rng: Random) -> None:
        self._app, self._submissions, self._rate, self._rng = app, submissions, rate, rng
        self._http = httpx.AsyncClient(base_url=api_url, timeout=PATIENCE_S)
        self._cancels: set[asyncio.Task[None]] = set()
        self._number = 0
        self._until = float("inf")

    async def close(self) -> None:
        for cancel in self._cancels:
            cancel.cancel()
        await asyncio.gather(*self._cancels, return_exceptions=True)
        await self._http.aclose()

    async def schedule(self, count: int, *, begin_s: float, seconds: float) -> None:
        """Recurring jobs that fire every second, with every overlap policy. All end when the load ends."""
        begin = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=begin_s)
        requests = [
            self._app.schedule_request(
                "nap",
                {"seconds": (0.05, 0.3)[number % 2]},
                name=f"schedule-{number}",
                tenant=TENANTS[number % len(TENANTS)],
                every=1,
                anchor_at=begin,
                start_at=begin,
                end_at=begin + timedelta(seconds=int(seconds)),
                overlap=OVERLAPS[number % len(OVERLAPS)],
                # One policy catches up with all fires of an outage, the other with the latest. The ledger records the rest.
                catch_up={"policy": "all" if number % 3 else "latest", "window": "10m"},
                max_lost=1_000,
            )
            for number in range(count)
        ]
        self._submissions.asked(RECURRING, count)
        written = await self._app.schedule_many(requests)
        self._submissions.acknowledge(RECURRING, "sdk", [one.id for one in written])

    async def run(self) -> None:
        """Submits until the time given to `end_at`, then repeats the submissions with a key until they are acknowledged."""
        async with asyncio.TaskGroup() as streams:
            for kind in KINDS:
                streams.create_task(self._stream(kind, Random(self._rng.random())), name=kind.name)
        await asyncio.gather(*self._cancels, return_exceptions=True)

    def end_at(self, until: float) -> None:
        """A monotonic time."""
        self._until = until

    async def _stream(self, kind: Kind, rng: Random) -> None:
        pause_s = kind.batch / (self._rate * kind.share)
        next_at = time.monotonic() + rng.uniform(0, pause_s)
        while next_at < self._until:
            await asyncio.sleep(max(0.0, next_at - time.monotonic()))
            await self._send(kind, [kind.make(rng) for _ in range(kind.batch)], rng)
            # After a delay the stream skips what it could not send: catching up would flood the service.
            next_at = max(next_at + pause_s, time.monotonic())

    async def _send(self, kind: Kind, jobs: Sequence[Job], rng: Random) -> None:
        self._submissions.asked(kind.name, len(jobs))
        self._number += 1
        keys = [f"{kind.name}-{self._number}-{index}" if kind.keyed else None for index in range(len(jobs))]
        jobs = [job._replace(options={**job.options, "tenant": rng.choice(TENANTS)}) for job in jobs]
        ids = await self._insist(kind, jobs, keys)
        self._submissions.acknowledge(kind.name, kind.way, ids)
        if kind.cancelled:
            for job_id in ids:
                cancel = asyncio.create_task(self._cancel(job_id, rng.uniform(0, 7), over_http=rng.random() < 0.3))
                self._cancels.add(cancel)
                cancel.add_done_callback(self._cancels.discard)

    async def _insist(self, kind: Kind, jobs: Sequence[Job], keys: Sequence[str | None]) -> list[UUID]:
        """Returns None if there was no answer and another try might submit the job twice."""
        send = self._over_http if kind.way == "http" else self._over_sdk
        while True:
            try:
                return await send(jobs, keys)
            except Exception as error:  # every error belongs in the report
                self._failed(f"{kind.way}: {_words(error)}", error)
            if not kind.keyed or time.monotonic() > self._until + 60:
                return []
            await asyncio.sleep(AGAIN_S)

    async def _over_sdk(self, jobs: Sequence[Job], keys: Sequence[str | None]) -> list[UUID]:
        requests = [
            self._app.request(job.task, job.payload, key=key, **job.options) for job, key in zip(jobs, keys, strict=True)
        ]
        return [job.id for job in await self._app.submit_many(requests)]

    async def _over_http(self, jobs: Sequence[Job], keys: Sequence[str | None]) -> list[UUID]:
        bodies = [{"handler": job.task, "payload": job.payload, **job.options} for job in jobs]
        if len(jobs) == 1:
            headers = {"Idempotency-Key": keys[0]} if keys[0] else {}
            answer = (await self._http.post("/v1/jobs", json=bodies[0], headers=headers)).raise_for_status().json()
            return [UUID(answer["id"])]
        answer = (await self._http.post("/v1/jobs/batch", json=bodies)).raise_for_status().json()
        return [UUID(item["id"]) for item in answer["items"]]

    async def _cancel(self, job_id: UUID, after_s: float, *, over_http: bool) -> None:
        """Asks once. From now on the job may end as cancelled, even if the answer does not arrive."""
        await asyncio.sleep(after_s)
        self._submissions.cancel_asked.add(job_id)
        try:
            if over_http:
                (await self._http.delete(f"/v1/jobs/{job_id}")).raise_for_status()
                return
            answer = await self._app.cancel(job_id)
            self._submissions.cancel_acknowledged(job_id, never_starts=answer.ended_count > 0 and answer.asked_count == 0)
        except Exception as error:
            self._failed(f"cancel: {_words(error)}", error)

    def _failed(self, words: str, error: Exception) -> None:
        self._submissions.failed[words] += 1
        if not is_foreseen(error):
            self._submissions.unforeseen[f"{words} ({error!r})"[:300]] += 1


def is_foreseen(error: Exception) -> bool:
    """Errors that a caller may see: Sexton's own, and those of a broken connection. An error of the driver or a 500 is a
    defect."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code != 500
    return isinstance(error, SextonError | httpx.HTTPError | OSError)


def _words(error: BaseException) -> str:
    """The error as a short text, so that equal errors are counted together."""
    if isinstance(error, httpx.HTTPStatusError):
        return str(error.response.status_code)
    return f"{type(error).__name__}: {str(error).partition(':')[0]}"[:80]
