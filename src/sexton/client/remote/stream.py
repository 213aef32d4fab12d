"""Server-sent events: a parser that reads line by line, and the state to resume a broken stream."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sexton.wire import Event

READ_TIMEOUT_S = 45.0  # three of the server's heartbeats


class EventStream:
    """Remembers the last id across connections, so that the next one resumes there."""

    def __init__(self, filters: Mapping[str, str]) -> None:
        self.query = dict(filters)
        self._last_id: str | None = None
        self._data: list[str] = []
        self._id: str | None = None

    def headers(self) -> dict[str, str]:
        resume = {} if self._last_id is None else {"Last-Event-ID": self._last_id}
        return {"Accept": "text/event-stream", **resume}

    def opened(self) -> None:
        """Drops an incomplete event of a broken connection: the server sends it again."""
        self._data, self._id = [], None

    def feed(self, line: str) -> Event | None:
        """The event that this line completes."""
        if line == "":
            return self._complete()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "id":
            self._id = value
        return None

    def _complete(self) -> Event | None:
        data, event_id = "\n".join(self._data), self._id
        self._data, self._id = [], None
        if event_id is not None:
            self._last_id = event_id
        return msgspec.json.decode(data, type=Event) if data else None
