"""Removes secrets from texts: some targets send back what they received, and a secret must never be stored or shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

HIDDEN = "[secret]"
Text = TypeVar("Text", str, bytes)
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/]))')


def to_hide(values: Iterable[str]) -> tuple[str, ...]:
    """Longer secrets first, because one may contain another."""
    return tuple(sorted({value for value in values if value}, key=len, reverse=True))


def hidden(text: str, secrets: Sequence[str], *, is_cut: bool = False) -> str:
    """With `is_cut`, also removes a truncated secret at the end. A JSON text that contains a secret in escaped form is shown
    without escapes."""
    plain = _unescaped(text) if secrets else text
    if any(secret in plain and secret not in text for secret in secrets):
        text = plain
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
        if is_cut:
            text = without_cut_secret(text, secret)
    return text


def without_cut_secret(text: Text, secret: Text) -> Text:
    """Without the beginning of the secret at the end of a text that was cut. Up to three characters tell nothing."""
    known = next((n for n in range(len(secret) - 1, 3, -1) if text.endswith(secret[:n])), 0)
    return text[: len(text) - known]


def hidden_within(value: Any, secrets: Sequence[str]) -> Any:
    """The same for all texts in a JSON value."""
    match value:
        case str():
            return hidden(value, secrets)
        case list():
            return [hidden_within(one, secrets) for one in value]
        case dict():
            return {hidden(key, secrets): hidden_within(one, secrets) for key, one in value.items()}
        case _:
            return value


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    units = _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else found[2], text)
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # joins surrogate pairs
