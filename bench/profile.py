"""Where a worker of the benchmark spends its time: a thread looks at the main one's stack two hundred times a second. Only
where the environment asks for it; the figures beside a profile are not figures."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

VARIABLE = "BENCH_PROFILE"  # a file for the stacks
EVERY_S = 0.005
WRITE_EVERY = 200  # samples: the worker is killed when its benchmark is over

Stacks = dict[tuple[str, ...], int]


def install() -> None:
    path = os.environ.get(VARIABLE)
    if path:
        threading.Thread(target=_watch, args=(threading.get_ident(), Path(path)), daemon=True, name="bench-profile").start()


def read(path: Path) -> Stacks:
    stacks: Stacks = {}
    for line in path.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        stacks[tuple(stack.split(";"))] = int(count)
    return stacks


def _watch(thread_id: int, path: Path) -> None:
    seen: Counter[str] = Counter()
    for number in range(1_000_000):
        time.sleep(EVERY_S)
        frame = sys._current_frames().get(thread_id)
        seen[";".join(_names(frame))] += 1
        if number % WRITE_EVERY == WRITE_EVERY - 1:
            path.write_text("".join(f"{stack} {count}\n" for stack, count in seen.items()))


def _names(frame: FrameType | None) -> list[str]:
    """From the loop's callback inwards; what lies before is the same in every sample."""
    names: list[str] = []
    while frame is not None:
        code = frame.f_code
        names.append(f"{Path(code.co_filename).stem}.{code.co_qualname}")
        frame = frame.f_back
    names.reverse()
    begin = next((place for place, name in enumerate(names) if name.endswith(("Runner.run", "run_forever"))), -1)
    return names[begin + 1 :] or ["event loop"]
