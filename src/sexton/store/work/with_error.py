"""What a row says of the error that ended it."""

from __future__ import annotations

from sexton.domain.outcome import ErrorInfo


class WithError:
    """For rows with a column `error_json`."""

    __slots__ = ()

    error_json: str | None

    @property
    def error(self) -> ErrorInfo | None:
        return ErrorInfo.from_json(self.error_json)
