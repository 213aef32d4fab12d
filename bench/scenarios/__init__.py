"""One module per scenario of docs/performance.md."""

from __future__ import annotations

from bench.scenario import Scenario

from . import (
    bloat,
    depth,
    drain,
    herd,
    http,
    idle,
    latency,
    limits,
    lists,
    memory,
    recovery,
    recurring,
    scale,
    sizes,
    steady,
    submit,
    takeover,
    tenants,
    timer,
)

# In the order that `all` measures them: what takes minutes comes last.
ALL: dict[str, Scenario] = {
    module.SCENARIO.name: module.SCENARIO
    for module in (
        drain,
        herd,
        submit,
        latency,
        timer,
        recovery,
        takeover,
        idle,
        scale,
        limits,
        http,
        tenants,
        sizes,
        lists,
        steady,
        recurring,
        bloat,
        depth,
        memory,
    )
}
