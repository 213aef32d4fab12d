"""For your own tests: run jobs inline, drain them through the real pipeline on a real PostgreSQL, and move time.

with testing.inline(app):
    assert await (await send_invoice.submit(user_id=42)).result() == {"sent": True}

async with testing.pipeline(app) as pipeline:
    await send_invoice.submit(user_id=42, delay="24h")
    assert await pipeline.drain() == []
    pipeline.move("24h")
    (ended,) = await pipeline.drain()
    assert ended.status == "succeeded"
    await pipeline.sync()  # the schedules that the app declares
    everything = await pipeline.live_through("48h")
"""

from .inline import inline
from .pipeline import Pipeline, pipeline
from .server import postgres

__all__ = ["Pipeline", "inline", "pipeline", "postgres"]
