"""The one thing a rule may raise: a value that breaks it."""

from __future__ import annotations


class Invalid(ValueError):
    """`field` names the culprit as the caller spelled it; `message` says what is wrong and what to write instead."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message
