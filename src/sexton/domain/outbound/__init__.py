"""Which hosts, addresses and ports jobs may call: private addresses are closed unless the allow-list opens them. Pure."""

from __future__ import annotations

from .addresses import refused_because
from .rules import Allowed, Ports, Rules

__all__ = ["Allowed", "Ports", "Rules", "refused_because"]
