"""A process with as many open files as a busy worker."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

MANY = 1_100  # more than select() supports


@contextmanager
def many_open_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, 2 * MANY)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted) if os.geteuid() == 0 else hard))
    with ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(MANY):
            opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        yield
