"""The values of secrets. They are passed only to calls, and must never get into a log, an error or a row."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sexton.clock import Clock, SystemClock
from sexton.domain.targets.secret import SecretRef, is_name
from sexton.errors import NotHere, PermanentError
from sexton.ids import process_name

PREFIX = "SEXTON_SECRET_"
FRESH_S = 5.0  # a file is read again after this long, so that a replaced one is noticed
SIZE_LIMIT = 64 * 1024


class Secrets:
    """A secret is a variable or a file. It may contain several values, separated by white space, while it is being rotated:
    the first one is sent, all of them sign."""

    def __init__(self, variables: Mapping[str, str], folder: Path | None = None, *, clock: Clock | None = None) -> None:
        self._variables = variables
        self._folder = folder
        self._clock = clock or SystemClock()
        self._read: dict[str, tuple[float, tuple[str, ...]]] = {}

    @classmethod
    def from_environment(cls, folder: Path | None = None, *, clock: Clock | None = None) -> Secrets:
        variables = {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}
        return cls(variables, folder, clock=clock)

    def __repr__(self) -> str:
        return f"<Secrets: {len(self._variables)} variables, folder {self._folder}>"

    def reveal(self, ref: SecretRef) -> str:
        return ref.prefix + self.all_of(ref.secret)[0]

    def all_of(self, name: str) -> tuple[str, ...]:
        """At least one value; `NotHere` says how to give a secret that this worker does not know."""
        now, known = self._clock.monotonic(), self._read.get(name)
        if known is None or now - known[0] >= FRESH_S:
            known = self._read[name] = (now, self._values(name))
        return known[1]

    def _values(self, name: str) -> tuple[str, ...]:
        if not is_name(name):
            raise PermanentError(f"{name!r} is not a valid secret name; use lowercase letters, digits, - and _")
        variable = PREFIX + name.upper().replace("-", "_")
        text = self._variables.get(variable) or self._from_file(name)
        values = tuple(text.split())
        if not values:
            given = f"give it as {variable}, or as the file {name} in SEXTON_SECRETS_DIR"
            raise NotHere(f"secret {name}", f"secret {name!r} is unknown to worker {process_name()}; {given}")
        return values

    def _from_file(self, name: str) -> str:
        if self._folder is None:
            return ""
        try:
            with (self._folder / name).open(encoding="utf-8") as file:
                return file.read(SIZE_LIMIT)
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:  # its message may contain the secret
            reason = f"cannot be read from SEXTON_SECRETS_DIR by worker {process_name()}: {type(error).__name__}"
            raise NotHere(f"secret {name}", f"secret {name!r} {reason}") from None
