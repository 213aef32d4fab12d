"""`python -m bench.profile FILE`: samples a worker of the benchmark under load with py-spy, which must be installed, and writes
its stacks to that file. Do not use figures that were measured with a profiler."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import psutil

JOBS = 300_000
SAMPLE_S = 6
RATE = 400
WARM_S = 2.0
FIND_S = 60.0

Stacks = dict[tuple[str, ...], int]


def main(path: Path) -> None:
    bench = subprocess.Popen([sys.executable, "-m", "bench", "drain", "--jobs", str(JOBS), "--json"], stdout=subprocess.DEVNULL)
    try:
        worker = _worker_of(bench.pid)
        time.sleep(WARM_S)
        spy = [str(Path(sys.executable).with_name("py-spy")), "record", "--format", "raw", "--output", str(path)]
        subprocess.run([*spy, "--pid", str(worker), "--duration", str(SAMPLE_S), "--rate", str(RATE)], check=True)
        bench.wait()
    finally:
        bench.terminate()


def _worker_of(pid: int) -> int:
    until = time.monotonic() + FIND_S
    while time.monotonic() < until:
        for child in psutil.Process(pid).children(recursive=True):
            if "worker" in child.cmdline():
                return child.pid
        time.sleep(0.1)
    raise RuntimeError("the benchmark started no worker")


def read(path: Path) -> Stacks:
    """Keeps the frames from the event loop's callback on: the frames before are the same in every sample."""
    stacks: Stacks = {}
    for line in path.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [re.sub(r" \(.*", "", frame) for frame in stack.split(";")]
        begin = next((place for place, frame in enumerate(frames) if frame == "Runner.run"), None)
        if begin is not None:
            inner = tuple(frames[begin + 1 :]) or ("event loop",)
            stacks[inner] = stacks.get(inner, 0) + int(count)
    return stacks


if __name__ == "__main__":
    main(Path(sys.argv[1]))
