"""Values on the command lines of the benchmarks."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("give 1 or more")
    return number
