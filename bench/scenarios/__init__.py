"""One module per scenario of DESIGN §6."""

from __future__ import annotations

from bench.scenario import Scenario

from . import drain, herd, idle, latency, lists, recovery, recurring, submit, timer

ALL: dict[str, Scenario] = {
    module.SCENARIO.name: module.SCENARIO for module in (drain, herd, submit, latency, timer, recovery, recurring, idle, lists)
}
