"""The retry policy of calls. Reads and submissions with a key are retried after a lost connection or a busy server. Other calls
are retried only if they certainly did not reach the server."""

from __future__ import annotations

from typing import Any

import httpx

from sexton.errors import ApiUnavailable
from sexton.ids import Rng

from .call import Call

RETRIES = 3
PAUSE_S_MIN, PAUSE_S_MAX = 0.1, 5.0
_NEVER_ARRIVED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_CONFLICT = 409
_OVER_A_LIMIT = 429
_BUSY = frozenset({429, 502, 503, 504})


class Tries:
    """The tries of one call. Returns the pause before the next try, or raises an error that says what to do."""

    def __init__(self, call: Call[Any], retries: int, rng: Rng, address: str) -> None:
        self._call, self._left, self._rng, self._address = call, retries, rng, address
        self._pause_s = PAUSE_S_MIN

    def after_failure(self, error: httpx.RequestError) -> float:
        if self._left == 0 or not (self._call.repeatable or isinstance(error, _NEVER_ARRIVED)):
            raise unreachable(self._address, error) from error
        return self._next()

    def after_answer(self, response: httpx.Response) -> float | None:
        """`None`: do not retry; this is the response."""
        status = response.status_code
        is_passing = status in _BUSY or (
            status == _CONFLICT and "Retry-After" in response.headers
        )  # the first try of this client holds the key
        if not is_passing or status in self._call.expects or self._left == 0 or not self._call.repeatable:
            return None
        if status == _OVER_A_LIMIT and _asked_for(response) > PAUSE_S_MAX:  # too long to wait here: the caller decides
            return None
        return max(self._next(), min(_asked_for(response), PAUSE_S_MAX))

    def _next(self) -> float:
        self._left -= 1
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 3, PAUSE_S_MAX)
        return pause_s * self._rng.uniform(0.5, 1.0)


def unreachable(address: str, error: httpx.RequestError) -> ApiUnavailable:
    why = str(error) or type(error).__name__
    if isinstance(error, _NEVER_ARRIVED):
        return ApiUnavailable(f"cannot reach the API at {address} ({why}); is `sexton api` or `sexton dev` running there?")
    return ApiUnavailable(f"the connection to {address} was lost ({why}); the request may have been processed")


def _asked_for(response: httpx.Response) -> float:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 0.0
