"""Records when a process did not run for a while without a fault, because the machine or the process was busy: a lease may
expire in that time. A thread that only sleeps measures it, because it wakes up late. The harness and every worker have one."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .fault import Fault

NAP_S = 0.1
LATE_S = 0.5
MACHINE, PROCESS = "machine stalled", "process stalled"


@contextmanager
def watched() -> Iterator[list[Fault]]:
    """The list grows while the block runs."""
    found: list[Fault] = []
    over = threading.Event()
    thread = _start(lambda begin, end: found.append(_stall(MACHINE, begin, end)), over)
    try:
        yield found
    finally:
        over.set()
        thread.join()


def write_down(folder: Path) -> None:
    """Starts a thread that writes one line for each stall of this process, until the process ends."""

    def tell(begin: float, end: float) -> None:
        with (folder / f"{os.getpid()}.stalls").open("a") as file:
            file.write(json.dumps([begin, end]) + "\n")

    _start(tell, threading.Event())


def read(folder: Path, pids: Mapping[int, str]) -> list[Fault]:
    return [
        _stall(PROCESS, *json.loads(line), pids.get(int(path.stem), "?"))
        for path in folder.glob("*.stalls")
        for line in path.read_text().splitlines(keepends=True)
        if line.endswith("\n")  # a line cut off by kill -9
    ]


def _stall(kind: str, begin: float, end: float, *members: str) -> Fault:
    return Fault(0, kind, begin, end, members, f"{' '.join(members)} for {end - begin:.1f} s".strip())


def _start(tell: Callable[[float, float], None], over: threading.Event) -> threading.Thread:
    def watch() -> None:
        last = time.monotonic()
        while not over.wait(NAP_S):
            now = time.monotonic()
            if now - last - NAP_S > LATE_S:
                tell(last, now)
            last = now

    thread = threading.Thread(target=watch, name="stalls", daemon=True)
    thread.start()
    return thread
