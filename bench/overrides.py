"""Constants of the product that a worker of the benchmark has otherwise, where the environment says so: how their effect is
measured. Only the benchmark knows it; nobody else should need to turn them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib import import_module

VARIABLE = "BENCH_OVERRIDES"


def environment(values: Mapping[str, float]) -> dict[str, str]:
    """For a worker, from {"package.module.NAME": value}."""
    return {VARIABLE: json.dumps(dict(values))}


def install() -> None:
    """In a worker of the benchmark, before it begins."""
    for path, value in json.loads(os.environ.get(VARIABLE, "{}")).items():
        module, _, name = path.rpartition(".")
        if not hasattr(import_module(module), name):
            raise AttributeError(f"{VARIABLE}: {path} is not there")
        setattr(import_module(module), name, value)
