"""One command of a worker's allow-list, by its name. The payload reaches it on its standard input, as JSON."""

from __future__ import annotations

import msgspec


class ScriptTarget(msgspec.Struct, tag_field="type", tag="script", frozen=True, omit_defaults=True):
    name: str
