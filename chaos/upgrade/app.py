"""The tasks for workers of both releases. Uses only public names that both releases have."""

from __future__ import annotations

from chaos.tasks import OFTEN, app_of, flaky, nap
from sexton import Retry

app = app_of(
    [
        (nap, {"timeout": 0, "max_lost": OFTEN}),
        (flaky, {"timeout": 0, "max_lost": OFTEN, "retry": Retry.after("200ms")}),
    ]
)
