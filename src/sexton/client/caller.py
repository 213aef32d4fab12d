"""The `Caller` of a program's own calls."""

from __future__ import annotations

from sexton.operations.caller import Caller

APP = Caller("app")
