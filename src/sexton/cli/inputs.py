"""Turns user input into API values: payloads, instants, and a confirmation before a large change."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sexton.domain.fault import Invalid
from sexton.errors import InvalidSubmission

from .exit_codes import NotUnderstood
from .printing import say

if TYPE_CHECKING:
    from sexton.domain.targets import Target


def payload_of(text: str | None, pairs: Sequence[str]) -> Any:
    """From `--payload` (JSON, `@file`, or `-` for standard input) or from `key=value` pairs; a value is JSON, else text."""
    if text is not None and pairs:
        raise InvalidSubmission("--payload", "give either --payload or key=value pairs, not both")
    if text is not None:
        return _decoded(read(text), "--payload")
    payload = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidSubmission(pair, "write key=value, or the whole payload as --payload '{…}'")
        if name in payload:
            raise InvalidSubmission(pair, "is given twice")
        payload[name] = _value(value)
    return payload


def called_by(text: str) -> str | Target:
    """The handler of a job: the name of a task, a URL, or any handler as JSON."""
    if text.startswith(("http://", "https://")):
        from sexton.domain.targets import HttpTarget

        with _reported_as(text):
            return HttpTarget(text)
    if not text.startswith("{"):
        return text
    import msgspec

    from sexton.wire import Handler
    from sexton.wire.handlers import task_or_target

    with _reported_as("handler"):
        return task_or_target(msgspec.json.decode(text.encode(errors="surrogateescape"), type=Handler))


@contextmanager
def _reported_as(what: str) -> Iterator[None]:
    import msgspec

    try:
        yield
    except Invalid as fault:
        raise InvalidSubmission(what, fault.message) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidSubmission(what, str(error)) from None


def read(text: str) -> bytes:
    """The text itself, or the content of `@file` or of standard input (`-`)."""
    if text == "-":
        return sys.stdin.buffer.read()
    return file_bytes(text[1:]) if text.startswith("@") else text.encode(errors="surrogateescape")


def file_bytes(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise InvalidSubmission(name, f"cannot be read: {error.strerror}") from None


def instant(text: str | None, option: str) -> datetime | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise InvalidSubmission(option, f"{text!r} is not an instant with an offset; write 2026-03-01T09:00:00Z")
    return at


def sure(question: str, *, yes: bool) -> None:
    """Asks for confirmation, unless `yes`. Without a terminal it is an error."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise NotUnderstood(f"{question} There is no terminal to confirm it; add --yes.")
    typer.echo(f"{question} [y/N] ", nl=False, err=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        say("nothing was changed")
        raise typer.Exit(1)


def _decoded(document: bytes, option: str) -> Any:
    import msgspec

    try:
        msgspec.json.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidSubmission(option, f"is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}") from None
    return msgspec.Raw(document.strip())  # unchanged, so that large numbers stay exact


def _value(text: str) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
