"""Where jobs may call: which addresses are nobody's business, which of them are opened by name, and on which ports. Pure."""

from __future__ import annotations

from .addresses import refused_because
from .rules import Allowed, Ports, Rules

__all__ = ["Allowed", "Ports", "Rules", "refused_because"]
