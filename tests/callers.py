"""The callers on whose behalf tests call operations."""

from __future__ import annotations

from sexton.operations.caller import Caller

TESTER = Caller("test")
