"""Commands of a worker's allow-list. They run without a shell, and end together with all processes they started."""

from .commands import ScriptFailed, scripts
from .process import NotStarted

__all__ = ["NotStarted", "ScriptFailed", "scripts"]
