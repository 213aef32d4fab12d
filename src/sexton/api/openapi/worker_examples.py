"""Examples of the worker protocol, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

_RUN_ID = "01890a5d-ac96-774b-bcce-b302099a8057"
_WORKER_ID = "5f0c2a86-94f3-4d0e-8a4b-5a1d3c1e2f70"
_LEASE = "AYkKXayWd0u8zrMCCZqAVwAAAAAAAAABx1Qm0rXrVqf8Q4yDg1cJY0gqk1nZ0m3p7w2b8hTn4sE"

ACQUIRING: dict[str, Any] = {
    "the_first_time": {"tasks": ["resize"], "wait": "0s"},
    "from_then_on": {
        "worker_id": _WORKER_ID,
        "name": "resizer-1",
        "tasks": ["resize", "crop"],
        "queues": ["images", "default"],
        "limit": 4,
        "concurrency": 8,
        "wait": "20s",
        "lease": "60s",
        "holding": [_RUN_ID],
    },
}
WORKER_HEARTBEATS: dict[str, Any] = {"with_what_it_holds": {"holding": [_RUN_ID]}, "before_it_stops": {"draining": True}}
RUN_HEARTBEATS: dict[str, Any] = {"with_progress": {"lease": _LEASE, "progress": {"fraction": 0.5}, "output": "page 12 of 24"}}
COMPLETING: dict[str, Any] = {"with_a_result": {"lease": _LEASE, "result": {"pages": 24}}}
COMPLETING_MANY: dict[str, Any] = {
    "two": {"items": [{"run_id": _RUN_ID, "lease": _LEASE}, {"run_id": _RUN_ID, "lease": _LEASE}]}
}
FAILING: dict[str, Any] = {
    "to_be_tried_again": {"lease": _LEASE, "error": "the printer is on fire", "retry_after": "30s"},
    "for_good": {"lease": _LEASE, "error": {"type": "BadImage", "message": "not a picture"}, "permanent": True},
}
RELEASING: dict[str, Any] = {
    "at_once": {"lease": _LEASE},
    "for_later": {"lease": _LEASE, "delay": "5m", "reason": "no disk space"},
}
