"""Jobs that call a URL."""

from __future__ import annotations

from .calls import HttpCalls

__all__ = ["HttpCalls"]
