"""Commands of a worker's allow-list, run without a shell, and ended with all that they started."""

from .commands import ScriptFailed, scripts
from .process import NotStarted

__all__ = ["NotStarted", "ScriptFailed", "scripts"]
