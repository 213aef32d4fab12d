"""The app of batch handlers: `python -m sexton worker bench.batch_app:app`. It is not in `bench.app`, because commits that are
compared with this one may have no batches."""

from __future__ import annotations

from typing import TypedDict

from sexton import App, Batch, BatchContext, Run

from . import record

SIZE = 500


class Note(TypedDict):
    number: int
    pad: str


async def note_all(ctx: BatchContext, runs: list[Run[Note]]) -> None:
    """The no-op job, many in a call: records that each has started."""
    for run in runs:
        record.append(run.args["number"])


app = App()
app.task(batch=Batch(SIZE, calls=2))(note_all)
