"""The tasks that the workers run under chaos. Each task writes what it does to the journal."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from sexton import App, Context, Retry
from tests.process.journal import DIRECTORY_VARIABLE as FOLDER
from tests.process.journal import note

from .stalls import write_down
from .tasks import OFTEN, Defined, app_of, flaky, nap

# no key: the checker must see a second effect, so the database must not reject it
EFFECTS = "CREATE TABLE public.effects (run_id uuid NOT NULL)"


async def effect(ctx: Context) -> None:
    """The effect and the end of the run are committed together."""
    await note("start", ctx)
    async with ctx.transaction() as connection:
        await connection.execute("INSERT INTO public.effects (run_id) VALUES ($1)", ctx.run_id)


async def once(ctx: Context, seconds: float = 0.0) -> None:
    """At most once: a lost run is not repeated."""
    await nap(ctx, seconds)


async def poison(ctx: Context, how: str, seconds: float) -> None:
    """Takes its worker down each time: it ends the process, or blocks the event loop."""
    await note("poison", ctx)
    if how == "exit":
        os._exit(3)
    threading.Event().wait(seconds)  # not time.sleep: libfaketime breaks it


# A fault may last longer than a normal retry budget. Only runs of the at-most-once task may end in the dead letters.
_PATIENT = Retry.exponential(base="300ms", max="3s", max_attempts=200)
_TASKS: list[Defined] = [
    (nap, {"timeout": 0, "max_lost": OFTEN}),
    (flaky, {"timeout": "30s", "max_lost": OFTEN, "retry": Retry.exponential(base="200ms", max="1s", max_attempts=20)}),
    (effect, {"timeout": "30s", "max_lost": OFTEN, "retry": _PATIENT}),
    (once, {"timeout": 0, "delivery": "at_most_once"}),
    (poison, {"timeout": 0}),
]


def make(database_url: str | None = None) -> App:
    return app_of(_TASKS, database_url)


# Only in a worker, not in the harness. Not in quarantine: an app that starts a thread cannot be forked for each round.
if FOLDER in os.environ and "--quarantine" not in sys.argv:
    write_down(Path(os.environ[FOLDER]))
app = make()
