"""`sexton queues …`: pauses, release rates and defaults of queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sexton.cli.printing import print_one
from sexton.domain.sharing import QueueOptions

from .named import ShareCommands, load, status_fields

if TYPE_CHECKING:
    from sexton.wire import QueueView


def _row(queue: QueueView) -> dict[str, Any]:
    pace = None if queue.release_rate is None else f"{queue.release_rate:g}/s"
    return {"oldest s": queue.oldest_ready_s, "workers": queue.worker_count, "pace": pace}


def _print(queue: QueueView, as_json: bool) -> None:
    print_one(
        queue,
        [
            *status_fields("queue", queue),
            *load(queue).items(),
            ("oldest ready", None if queue.oldest_ready_s is None else f"{queue.oldest_ready_s:.1f} s"),
            ("workers", queue.worker_count),
            ("release rate", None if queue.release_rate is None else f"{queue.release_rate:g}/s"),
            ("release burst", queue.release_burst),
            ("ageing", None if queue.ageing_s is None else f"{queue.ageing_s:g} s"),
            ("timeout", None if queue.timeout_s is None else f"{queue.timeout_s:g} s" if queue.timeout_s else "none"),
            ("jitter", None if queue.jitter_s is None else f"{queue.jitter_s:g} s"),
            ("max attempts", None if queue.retry is None else queue.retry.max_attempts),
            ("set at", queue.updated_at),
        ],
        as_json=as_json,
    )


app = ShareCommands("queue", QueueOptions, _row, _print, example="mail", settings="--release-rate 50 --ageing 10m").app
