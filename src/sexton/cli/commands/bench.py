"""`sexton bench`: the scenarios of the repository's own `bench` package."""

from __future__ import annotations

import os
import runpy
import sys

import typer

from sexton.errors import SextonError


def bench(ctx: typer.Context) -> None:
    """Measure this machine with a scenario such as drain, latency or submit (from a checkout of the repository).

    All arguments go to `python -m bench`; `sexton bench -- --help` lists the scenarios.

    Example: sexton bench latency --json
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    if not os.path.isfile(os.path.join("bench", "scenario.py")):
        raise SextonError("the benchmarks are not installed; run this from a checkout of Sexton's repository")
    sys.argv = ["sexton bench", *ctx.args]
    runpy.run_module("bench", run_name="__main__", alter_sys=True)
