"""Overrides constants of the product in a worker of the benchmark, as the environment says, to measure their effect. Only the
benchmark uses this; users should not need to change these constants."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib import import_module

VARIABLE = "BENCH_OVERRIDES"


def environment(values: Mapping[str, float]) -> dict[str, str]:
    """The environment for a worker, from {"package.module.NAME": value}."""
    return {VARIABLE: json.dumps(dict(values))}


def install() -> None:
    """Called in a worker of the benchmark before it starts."""
    for path, value in json.loads(os.environ.get(VARIABLE, "{}")).items():
        module, _, name = path.rpartition(".")
        if not hasattr(import_module(module), name):
            raise AttributeError(f"{VARIABLE}: {path} does not exist")
        setattr(import_module(module), name, value)
