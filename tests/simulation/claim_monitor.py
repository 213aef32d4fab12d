"""Watches runs and limits from inside the database, by triggers: claims whose reply is lost are claims as well.

Every claim is recorded with the numbers of its limits and the slots in use at that moment, so that a lowered limit counts from
then on and not earlier. A rate is checked by a separate bucket, which is full at first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID

import msgspec

INSTALL = Path(__file__).with_name("claim_monitor.sql").read_text()
SLACK = 1e-3  # tokens: buckets are kept in microseconds


class Claim(msgspec.Struct, frozen=True):
    run_id: UUID
    worker_id: UUID
    task: str
    at: datetime
    has_slot: bool
    has_tenant_slot: bool
    key: str | None = None
    running: int | None = None
    count: int | None = None
    per_s: float | None = None
    burst: int | None = None
    ordered: bool = False
    held: int = 0
    before: UUID | None = None
    begun: UUID | None = None
    running_max: int | None = None
    tenant_held: int = 0
    paused: str | None = None


class LimitSet(msgspec.Struct, frozen=True):
    """Without numbers: the limit was removed."""

    key: str
    held: int
    at: datetime | None = None
    running: int | None = None
    count: int | None = None
    per_s: float | None = None
    burst: int | None = None
    was: int | None = None


class Parked(msgspec.Struct, frozen=True):
    held: int
    ordered: bool | None = None


@dataclass
class Bucket:
    """Tokens that refill by the database's clock. A bucket that was never used is full, even if its numbers change."""

    tokens: float
    rate: float
    burst: int
    at: datetime
    drawn: bool = False

    def move(self, at: datetime) -> None:
        span_s = (at - self.at).total_seconds()
        # When the clock is set back, the bucket is full, not closed for an hour.
        self.tokens = float(self.burst) if span_s < 0 else min(self.burst, self.tokens + span_s * self.rate)
        self.at = at

    def set(self, rate: float, burst: int) -> None:
        self.tokens = min(self.tokens, burst) if self.drawn else float(burst)
        self.rate, self.burst = rate, burst

    def draw(self) -> bool:
        """False if there was no token."""
        self.drawn = True
        self.tokens -= 1
        return self.tokens >= -SLACK


class ClaimMonitor:
    def __init__(
        self, knows: Callable[[UUID, str], bool], seen: Callable[[str], None], violated: Callable[[str], None]
    ) -> None:
        self._knows, self._seen, self._violated = knows, seen, violated
        self._buckets: dict[str, Bucket] = {}
        self.last_n = 0

    def hear(self, n: int, what: str, told: str, acting: str) -> None:
        """In the order of `n`; `acting` is the actor of the step."""
        self.last_n = n
        match what:
            case "claimed":
                self._claimed(msgspec.json.decode(told, type=Claim))
            case "limit":
                self._limit_set(msgspec.json.decode(told, type=LimitSet))
            case "parked":
                parked = msgspec.json.decode(told, type=Parked)
                self._seen("parked")
                if parked.ordered and parked.held:
                    self._seen("ordered key waited")
            case "freed":
                self._seen(f"slot freed by {acting}")
            case _:
                self._seen(f"{what} by {acting}")

    def _claimed(self, claim: Claim) -> None:
        if not self._knows(claim.worker_id, claim.task):
            self._violated(f"a worker claims only tasks it knows: {claim.task} {claim.run_id}")
        if claim.paused is not None:
            self._violated(f"nothing starts that is paused: {claim.run_id} of {claim.paused}")
        if claim.running is not None:
            self._under_its_limit(claim)
        if claim.ordered:
            self._in_order(claim)
        if claim.running_max is not None:
            if claim.tenant_held > claim.running_max or not claim.has_tenant_slot:
                self._violated(f"no tenant has more runs at once than it may: {claim.tenant_held} of {claim.running_max}")
            if claim.tenant_held == claim.running_max:
                self._seen("tenant full")
        if claim.count is not None and claim.key is not None:
            self._at_its_rate(claim, claim.key)

    def _under_its_limit(self, claim: Claim) -> None:
        assert claim.running is not None
        if claim.held > claim.running:
            self._violated(f"no limit of runs at once is exceeded: {claim.held} of {claim.running} under {claim.key}")
        if not claim.has_slot:
            self._violated(f"a run under a limit has a slot: {claim.run_id} under {claim.key} has none")
        if claim.held == claim.running:
            self._seen("limit full")

    def _in_order(self, claim: Claim) -> None:
        if claim.before is not None:
            self._violated(f"an ordered key starts in order of due time: {claim.run_id} before {claim.before}")
        if claim.begun is not None:
            self._violated(f"an ordered key has one at a time, retries included: {claim.run_id} beside {claim.begun}")

    def _at_its_rate(self, claim: Claim, key: str) -> None:
        assert claim.count is not None
        assert claim.per_s is not None
        assert claim.burst is not None
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = Bucket(float(claim.burst), claim.count / claim.per_s, claim.burst, claim.at)
        bucket.move(claim.at)
        if not bucket.draw():
            self._violated(f"no rate is exceeded over any span: {key} at {claim.at:%H:%M:%S.%f} by {-bucket.tokens:.3f} starts")
        if bucket.tokens < 1:
            self._seen("rate spent")

    def _limit_set(self, limit: LimitSet) -> None:
        if limit.running is not None and limit.was is not None and limit.running < limit.was <= limit.held:
            self._seen("limit lowered while full")
        if limit.at is None:
            self._seen("limit removed")
            self._buckets.pop(limit.key, None)
            return
        bucket = self._buckets.get(limit.key)
        if limit.count is None or limit.per_s is None or limit.burst is None:
            self._buckets.pop(limit.key, None)
        elif bucket is not None:
            bucket.move(limit.at)
            bucket.set(limit.count / limit.per_s, limit.burst)
