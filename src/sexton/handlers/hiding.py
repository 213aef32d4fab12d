"""Some targets answer with what they were sent. A secret among that is shown to nobody."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

HIDDEN = "[secret]"


def forms_of(values: Iterable[str]) -> tuple[str, ...]:
    """What is to be hidden: each value as it is, and as JSON may write it; the longer first, for one may hold another."""
    forms = {form for value in values if value for form in (value, _in_json(value), _in_json(value).replace("/", "\\/"))}
    return tuple(sorted(forms, key=len, reverse=True))


def hidden(text: str, forms: Sequence[str], *, is_cut: bool = False) -> str:
    """Where the text was cut, so may a secret be at its end."""
    for form in forms:
        text = text.replace(form, HIDDEN)
        if is_cut:
            known = next((n for n in range(len(form) - 1, 0, -1) if text.endswith(form[:n])), 0)
            text = text[: len(text) - known] if known > 3 else text
    return text


def hidden_within(value: Any, forms: Sequence[str]) -> Any:
    """In all texts of what was read from JSON."""
    match value:
        case str():
            return hidden(value, forms)
        case list():
            return [hidden_within(one, forms) for one in value]
        case dict():
            return {hidden(key, forms): hidden_within(one, forms) for key, one in value.items()}
        case _:
            return value


def _in_json(value: str) -> str:
    return msgspec.json.encode(value).decode()[1:-1]
