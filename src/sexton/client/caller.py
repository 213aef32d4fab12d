"""As whom a program's calls are made."""

from __future__ import annotations

from sexton.operations.caller import Caller

APP = Caller("app")
