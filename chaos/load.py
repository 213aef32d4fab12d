"""The work that goes on while things break: every way to submit and every kind of job, at a steady pace.

What carries an idempotency key is sent again until it is acknowledged; what carries none is not, because it might be there.
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
SERIAL = ("serial one", "serial two")  # kinds of one at a time
AGAIN_S = 0.5  # between two tries of one submission
PATIENCE_S = 5.0  # for one HTTP answer
OVERLAPS: tuple[Policy, ...] = ("skip", "queue", "parallel", "replace")


class Job(NamedTuple):
    task: str
    payload: Mapping[str, Any]
    options: Mapping[str, Any]


class Kind(NamedTuple):
    """`share` of the rate; one call brings `batch` jobs at once (a single POST, where the way is HTTP and it is 1)."""

    name: str
    share: float
    make: Callable[[Random], Job]
    way: Way = "sdk"
    batch: int = 5
    keyed: bool = False
    cancelled: bool = False


def _nap(dice: Random, longest_s: float = 0.2) -> dict[str, float]:
    return {"seconds": round(dice.uniform(0, longest_s), 3)}


def _limited(dice: Random) -> Job:
    return Job("nap", {"seconds": 0.05}, {"limit": {"key": "limited", "running": SLOTS}})


def _serial(name: str) -> Kind:
    limit = {"key": name, "ordered": True}
    return Kind(name, 0.02, lambda dice: Job("nap", {"seconds": 0.02}, {"limit": limit}), batch=2)


# A job with an HTTP target belongs here as soon as there are such.
KINDS = (
    Kind("now", 0.21, lambda dice: Job("nap", _nap(dice), {}), batch=10),
    Kind(
        "delayed", 0.20, lambda dice: Job("nap", _nap(dice), {"delay": round(dice.uniform(0.5, 12), 2)}), batch=10, keyed=True
    ),
    Kind("http", 0.10, lambda dice: Job("nap", _nap(dice), {}), way="http", batch=1, keyed=True),
    Kind(
        "http batch", 0.10, lambda dice: Job("nap", _nap(dice), {"delay": round(dice.uniform(0, 4), 2)}), way="http", batch=10
    ),
    Kind("long", 0.03, lambda dice: Job("nap", {"seconds": round(dice.uniform(2, 6), 2)}, {}), batch=2),
    Kind("flaky", 0.08, lambda dice: Job("flaky", {}, {})),
    Kind("cancelled", 0.05, lambda dice: Job("nap", {"seconds": 1.5}, {"delay": round(dice.uniform(0, 6), 2)}), cancelled=True),
    Kind("limited", 0.08, _limited),
    *map(_serial, SERIAL),
    Kind("effect", 0.08, lambda dice: Job("effect", {}, {})),
    Kind("once", 0.03, lambda dice: Job("once", _nap(dice), {}), batch=2),
)


class Load:
    def __init__(self, app: App, api_url: str, submissions: Submissions, *, rate: float, dice: Random) -> None:
        self._app, self._submissions, self._rate, self._dice = app, submissions, rate, dice
        self._http = httpx.AsyncClient(base_url=api_url, timeout=PATIENCE_S)
        self._cancels: set[asyncio.Task[None]] = set()
        self._number = 0

    async def close(self) -> None:
        for cancel in self._cancels:
            cancel.cancel()
        await asyncio.gather(*self._cancels, return_exceptions=True)
        await self._http.aclose()

    async def schedule(self, count: int, *, begin_s: float, seconds: float) -> None:
        """Recurring jobs, each every second, with every overlap policy among them; all are over when the load is."""
        begin = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=begin_s)
        requests = [
            self._app.schedule_request(
                "nap",
                {"seconds": (0.05, 0.3)[number % 2]},
                name=f"schedule-{number}",
                every=1,
                anchor_at=begin,
                start_at=begin,
                end_at=begin + timedelta(seconds=int(seconds)),
                overlap=OVERLAPS[number % len(OVERLAPS)],
                # One policy catches up with all of an outage, the other with the latest fire; the ledger has the rest.
                catch_up={"policy": "all" if number % 3 else "latest", "window": "10m"},
                max_lost=1_000,
            )
            for number in range(count)
        ]
        self._submissions.asked(RECURRING, count)
        written = await self._app.schedule_many(requests)
        self._submissions.acknowledge(RECURRING, "sdk", [one.id for one in written])

    async def run(self, until: float) -> None:
        """Until that monotonic time; what has been sent by then and carries a key is brought to an answer."""
        async with asyncio.TaskGroup() as streams:
            for kind in KINDS:
                streams.create_task(self._stream(kind, Random(self._dice.random()), until), name=kind.name)
        await asyncio.gather(*self._cancels, return_exceptions=True)

    async def _stream(self, kind: Kind, dice: Random, until: float) -> None:
        pause_s = kind.batch / (self._rate * kind.share)
        next_at = time.monotonic() + dice.uniform(0, pause_s)
        while next_at < until:
            await asyncio.sleep(max(0.0, next_at - time.monotonic()))
            await self._send(kind, [kind.make(dice) for _ in range(kind.batch)], dice, until)
            # A stream that was held up leaves out what it could not send: a harness that makes up for it is a flood.
            next_at = max(next_at + pause_s, time.monotonic())

    async def _send(self, kind: Kind, jobs: Sequence[Job], dice: Random, until: float) -> None:
        self._submissions.asked(kind.name, len(jobs))
        self._number += 1
        keys = [f"{kind.name}-{self._number}-{index}" if kind.keyed else None for index in range(len(jobs))]
        ids = await self._insist(kind, jobs, keys, until)
        self._submissions.acknowledge(kind.name, kind.way, ids)
        if kind.cancelled:
            for job_id in ids:
                cancel = asyncio.create_task(self._cancel(job_id, dice.uniform(0, 7), over_http=dice.random() < 0.3))
                self._cancels.add(cancel)
                cancel.add_done_callback(self._cancels.discard)

    async def _insist(self, kind: Kind, jobs: Sequence[Job], keys: Sequence[str | None], until: float) -> list[UUID]:
        """None, if there was no answer and asking again might submit twice."""
        send = self._over_http if kind.way == "http" else self._over_sdk
        while True:
            try:
                return await send(jobs, keys)
            except Exception as error:  # whatever it is, it belongs in the report
                self._failed(f"{kind.way}: {_words(error)}", error)
            if not kind.keyed or time.monotonic() > until + 60:
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
        """Once; whether or not the answer arrives, the job may end as cancelled from now on."""
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
    """What a caller is told of: our own errors, and those of a way that is cut. A driver's error or a 500 is a defect."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code != 500
    return isinstance(error, SextonError | httpx.HTTPError | OSError)


def _words(error: BaseException) -> str:
    """Short enough to be counted by."""
    if isinstance(error, httpx.HTTPStatusError):
        return str(error.response.status_code)
    return f"{type(error).__name__}: {str(error).partition(':')[0]}"[:80]
