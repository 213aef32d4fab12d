"""What belongs to the process and not to a handler: its working directory, locale, umask, streams, signal handlers and
recursion limit. Knows how they were, sees what has changed, and restores it.

Not for the hot path: to read them takes 3.4 µs for the directory, 3.2 µs for the locale, 24 µs for the signal handlers, 82 µs
for the umask (two cores, busy).
"""

from __future__ import annotations

import locale
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

# Those that the worker depends on: to drain, to survive a closed connection, to learn how a child process ended.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD)
TEXT_LIMIT = 200
_STATUS = "/proc/self/status"  # Linux; elsewhere only a change tells the umask, and other threads would notice that change


class Trait(NamedTuple):
    name: str
    read: Callable[[], Any]
    restore: Callable[[Any], Any]  # returns what is now in its place


class ProcessState:
    def __init__(self) -> None:
        """As it is now is how it has to be."""
        self._was: dict[str, tuple[Trait, Any]] = {trait.name: (trait, _read(trait)) for trait in _traits()}

    def changes(self) -> dict[str, str]:
        """What has changed, and to what."""
        present = {name: _read(trait) for name, (trait, _) in self._was.items()}
        return {name: _text(present[name]) for name, (_, was) in self._was.items() if _differ(present[name], was)}

    def restore(self, name: str) -> str | None:
        """Why it cannot be restored, if it cannot."""
        trait, was = self._was[name]
        try:
            self._was[name] = (trait, trait.restore(was))
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None


class Gone(str):
    """It cannot be read: a directory that was deleted, a stream that is closed."""

    __slots__ = ()


def _read(trait: Trait) -> Any:
    try:
        return trait.read()
    except Exception as error:
        return Gone(f"not readable: {type(error).__name__}: {error}")


def _differ(one: Any, other: Any) -> bool:
    """A stream or a signal handler that a handler has put there may define `==` in any way, and raise in it."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return any(map(_differ, one, other))
    if type(one) is type(other) and isinstance(one, str | int):
        return bool(one != other)
    return one is not other


def _text(value: Any) -> str:
    try:
        return str(value)[:TEXT_LIMIT]
    except Exception as error:
        return f"{type(value).__qualname__}, which cannot be shown: {type(error).__name__}"


def _traits() -> list[Trait]:
    traits = [
        Trait("working directory", os.getcwd, _after(os.chdir)),
        Trait("locale", lambda: locale.setlocale(locale.LC_ALL), lambda was: locale.setlocale(locale.LC_ALL, was)),
        Trait("sys.stdout", lambda: _stream("stdout"), lambda was: _restore_stream("stdout", 1, was)),
        Trait("sys.stderr", lambda: _stream("stderr"), lambda was: _restore_stream("stderr", 2, was)),
        Trait("signal handlers", lambda: tuple(map(signal.getsignal, SIGNALS)), _after(_restore_signals)),
        Trait("recursion limit", sys.getrecursionlimit, _after(sys.setrecursionlimit)),
    ]
    if os.path.exists(_STATUS):
        traits.append(Trait("umask", _umask, _after(lambda was: os.umask(int(was, 8)))))
    return traits


def _after(restore: Callable[[Any], object]) -> Callable[[Any], Any]:
    def restored(was: Any) -> Any:
        if isinstance(was, Gone):
            raise ValueError("it was not readable when the process started")
        restore(was)
        return was

    return restored


def _stream(name: str) -> Any:
    stream = getattr(sys, name)
    if stream is not None and stream.closed:
        raise ValueError("it is closed")
    return stream


def _restore_stream(name: str, descriptor: int, was: Any) -> Any:
    """Python does not close the descriptor together with the stream, so a closed one is opened again."""
    if was is not None and was.closed:
        was = open(descriptor, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    setattr(sys, name, was)
    return was


def _restore_signals(was: tuple[Any, ...]) -> None:
    for number, handler in zip(SIGNALS, was, strict=True):
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def _umask() -> str:
    """Without changing it, which other threads would notice. It is the second line."""
    descriptor = os.open(_STATUS, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _, _, rest = os.read(descriptor, 256).partition(b"Umask:")
    finally:
        with suppress(OSError):
            os.close(descriptor)
    return rest.split(None, 1)[0].decode()
