"""The only error that the domain raises: a value that is not valid."""

from __future__ import annotations


class Invalid(ValueError):
    """`field` is the field as the caller wrote it; `message` says what is wrong and what to write instead."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message
