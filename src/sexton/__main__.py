"""`python -m sexton`."""

from sexton.cli.main import entry_point

entry_point()
