"""Reads stacks: of a thread that runs now, and those that `faulthandler` wrote to a file. Names the line of the app's code that
a thread is in."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

_SEXTON = str(Path(__file__).parents[2])
_LIBRARIES = tuple({sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")})
_LOOP = re.compile(r"/(uvloop/|asyncio/(base_events|events|runners)\.py)")
_THREAD = re.compile(r"^(?:Current t|T)hread 0x([0-9a-f]+)")
_FRAME = re.compile(r'^ +File "(.*)", line (\d+) in (.*)$')


class Frame(NamedTuple):
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


def of_thread(thread_id: int) -> list[Frame]:
    """The stack of a thread of this process, innermost frame first."""
    frame = sys._current_frames().get(thread_id)
    frames = []
    while frame is not None:
        frames.append(Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return frames


def of_dump(text: str) -> dict[int, list[Frame]]:
    """The stacks that `faulthandler` wrote, by thread. Innermost frame first."""
    stacks: dict[int, list[Frame]] = {}
    frames: list[Frame] = []
    for line in text.splitlines():
        if (thread := _THREAD.match(line)) is not None:
            frames = stacks[int(thread[1], 16)] = []
        elif (frame := _FRAME.match(line)) is not None:
            frames.append(Frame(frame[1], int(frame[2]), frame[3]))
    return stacks


def of_handler(stack: Iterable[Frame]) -> list[Frame]:
    """The frames that a handler added: those inside of Sexton's own and of the event loop's."""
    return list(takewhile(lambda frame: not frame.file.startswith(_SEXTON) and not _LOOP.search(frame.file), stack))


def place(handler: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the app's own code. If all of the app is installed as a library: the handler itself."""
    own = (frame for frame in handler if not frame.file.startswith((*_LIBRARIES, "<")))
    return next(own, handler[-1] if handler else None)


def busy(stacks: dict[int, list[Frame]], loop_thread_id: int | None) -> list[list[Frame]]:
    """What the handlers of a worker did. If one was on the event loop: only that one, because it kept the loop from running.
    `loop_thread_id` null: not known, as in the dump of another process."""
    on_loop = of_handler(stacks.get(loop_thread_id, [])) if loop_thread_id is not None else []
    if on_loop:
        return [on_loop]
    return [handler for stack in stacks.values() if (handler := of_handler(stack)) and _is_of_a_worker(stack[len(handler) :])]


def _is_of_a_worker(outer: Sequence[Frame]) -> bool:
    """Below the handler are Sexton's frames that start functions: others are threads of the app, or of a library."""
    return bool(outer) and "/handlers/python/" in outer[0].file
