"""The tasks that the workers under chaos run. Each writes to the journal what it does."""

from __future__ import annotations

import os
from pathlib import Path

from sexton import App, Context, Retry
from tests.process.journal import DIRECTORY_VARIABLE as FOLDER
from tests.process.journal import note

from .stalls import write_down
from .tasks import OFTEN, Defined, app_of, flaky, nap

EFFECTS = "CREATE TABLE public.effects (run_id uuid NOT NULL)"  # no key: a second effect must be seen, not refused


async def effect(ctx: Context) -> None:
    """The effect and the end of the run commit together."""
    await note("start", ctx)
    async with ctx.transaction() as connection:
        await connection.execute("INSERT INTO public.effects (run_id) VALUES ($1)", ctx.run_id)


async def once(ctx: Context, seconds: float = 0.0) -> None:
    """At most once: better not at all than twice."""
    await nap(ctx, seconds)


# A fault may last longer than any plain retry budget: nothing here may end in the dead letters but what is at most once.
_PATIENT = Retry.exponential(base="300ms", max="3s", max_attempts=200)
_TASKS: list[Defined] = [
    (nap, {"timeout": 0, "max_lost": OFTEN}),
    (flaky, {"timeout": "30s", "max_lost": OFTEN, "retry": Retry.exponential(base="200ms", max="1s", max_attempts=20)}),
    (effect, {"timeout": "30s", "max_lost": OFTEN, "retry": _PATIENT}),
    (once, {"timeout": 0, "delivery": "at_most_once"}),
]


def make(database_url: str | None = None) -> App:
    return app_of(_TASKS, database_url)


if FOLDER in os.environ:  # in a worker, not in the harness
    write_down(Path(os.environ[FOLDER]))
app = make()
