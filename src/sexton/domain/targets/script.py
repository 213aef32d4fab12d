"""One command of a worker's allow-list, by its name. The command reads the payload from standard input, as JSON."""

from __future__ import annotations

import re

import msgspec

from sexton.domain.fault import Invalid

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class ScriptTarget(msgspec.Struct, tag_field="type", tag="script", frozen=True, omit_defaults=True):
    name: str

    def check(self) -> None:
        """`Invalid` names the field and the fix. Not called for stored targets, which may come from an older version."""
        check_command_name(self.name, field="name")


def check_command_name(name: str, *, field: str) -> None:
    if not _NAME.fullmatch(name):
        raise Invalid(field, "a command's name has up to 100 letters, digits, '.', '_', '-', and starts with a letter or digit")
