"""One module per scenario of DESIGN §6."""

from __future__ import annotations

from bench.scenario import Scenario

from . import drain, herd, idle, latency, limits, lists, recovery, recurring, submit, tenants, timer

ALL: dict[str, Scenario] = {
    module.SCENARIO.name: module.SCENARIO
    for module in (drain, herd, submit, latency, timer, recovery, recurring, tenants, limits, idle, lists)
}
