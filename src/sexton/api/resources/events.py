"""`GET /v1/events`: transitions as server-sent events, resumable by `Last-Event-ID`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial

import msgspec
from litestar.response import Stream

from sexton import wire
from sexton.api.answers import views
from sexton.api.answers.problems import Refused, invalid
from sexton.api.openapi.description import Operation, ok
from sexton.api.requests.parameters import query_of, within_history
from sexton.api.requests.queries import EventsQuery
from sexton.api.state import ApiRequest, state_of
from sexton.store.views.transitions import Transition

operation = partial(Operation, tag="events")

MEDIA_TYPE = "text/event-stream"
PATH = "/v1/events"
_encode = msgspec.json.Encoder().encode


@operation(
    f"GET {PATH}",
    id="streamEvents",
    query=EventsQuery,
    headers=("Last-Event-ID",),
    answers=ok("A stream without end.", bytes, media_type=MEDIA_TYPE),
)
async def stream(request: ApiRequest) -> Stream:
    """Watch transitions live.

    Server-sent events: `event` is the type, `data` an Event as JSON, `id` resumes the stream when sent as `Last-Event-ID`;
    after that, events of the last second may come again. A comment comes every 15 s. A client that cannot keep up is
    disconnected and may resume. It is a live view, not a ledger: on a very busy cluster it sends a sample.
    """
    query, state = query_of(request, EventsQuery), state_of(request)
    resume_at = _resume_at(request)
    if state.live_stream.closed:
        raise Refused("overloaded", "this process is stopping; try another", headers={"Retry-After": "1"})
    heard = await state.live_stream.listen(lambda transition: _is_wanted(query, transition), resume_at)
    return Stream(_lines(heard), media_type=MEDIA_TYPE, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})


def _is_wanted(query: EventsQuery, transition: Transition) -> bool:
    return (
        query.job_id in (None, transition.job_id)
        and query.type in (None, transition.type)
        and query.tenant in (None, transition.tenant)
        and query.queue in (None, transition.queue)
        and query.handler in (None, transition.task)
    )


def _resume_at(request: ApiRequest) -> datetime | None:
    last_id = request.headers.get("last-event-id")
    if not last_id:
        return None
    try:
        return within_history(msgspec.convert(last_id.partition("~")[0], wire.Instant))
    except msgspec.ValidationError:
        raise invalid("Last-Event-ID", "is not an id of this API; send the `id` of the last event, or leave it out") from None


async def _lines(heard: AsyncIterator[Transition | None]) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n: listening\n\n"
    async for transition in heard:
        yield b": still here\n\n" if transition is None else written(transition)


# Python and others treat them as line ends, although the protocol does not; inside JSON they only occur in texts.
_LINE_ENDS = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}


def written(transition: Transition) -> bytes:
    data = _encode(views.event(transition)).decode().translate(_LINE_ENDS)
    return f"id: {transition.at.isoformat()}~{transition.key}\nevent: {transition.type}\ndata: {data}\n\n".encode()


HANDLERS = [stream]
