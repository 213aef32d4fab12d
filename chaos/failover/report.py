"""The result of the drill: figures as JSON, a text for people, and the limits that were not met."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from .configuration import Mode, Way

Kind = Literal["postmaster", "node", "freeze"]

LIMIT_S: dict[Kind, float] = {"postmaster": 20.0, "node": 45.0, "freeze": 45.0}
DEED: dict[Kind, str] = {
    "postmaster": "the postmaster was killed",
    "node": "the node was killed",
    "freeze": "the node was frozen",
}
WAYS: dict[Way, str] = {"haproxy": "through HAProxy", "hosts": "by a URL that names all nodes"}
WHY_LOST = """\
Why: an asynchronous primary acknowledges a commit before any standby has it. When it dies, the commits of the last moments are
lost, at most the lag of the standby, here {lag_ms:.0f} ms. Earlier commits are kept. Submissions of those moments are
lost, even if they have run. Runs of those moments are executed twice: if their claim survived and
their end did not, the worker gives them back (`released`); if the claim did not survive either, the history has only the second
execution (`unexplained`). To lose nothing, replicate synchronously: `--mode sync`."""


@dataclass(slots=True)
class Kill:
    kind: Kind
    at_s: float  # since the load began
    primary: str
    successor: str
    accepted_s: float
    started_s: float
    recovered_s: float
    whole_s: float  # until the cluster is complete and can tolerate the next kill
    lost_count: int = 0  # jobs acknowledged between the previous kill and this one


@dataclass(slots=True)
class Report:
    mode: Mode
    way: Way
    standbys: int
    rate_per_s: float
    lag_ms: float
    load_s: float
    versions: dict[str, str]
    machine: dict[str, Any]
    settings: dict[str, Any]
    kills: list[Kill]
    attempted_count: int
    acknowledged_count: int
    completed_count: int
    lost_count: int
    lost_after_running_count: int  # of the lost jobs, those whose handler had ended
    unanswered_count: int  # jobs that exist although their caller got no acknowledgement
    found_again_count: int  # of the calls with a key, those whose first answer was lost
    keys_doubled_count: int  # idempotency keys with two jobs
    executed_twice_count: int
    repeated_because: dict[str, int]
    double_leases: list[str]
    unexplained: list[str]
    failures: dict[str, int]  # the errors that callers saw
    same_identity: bool  # rule "a clone does not fire": services accept the promoted standby as the same database
    ended_services: list[str]
    tracebacks: dict[str, int]
    shortfalls: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def shortfalls(report: Report) -> list[str]:
    """The limits that were not met. In async mode a lost job is expected."""
    found = [
        f"{kill.recovered_s:.1f} s to recover after {DEED[kill.kind]}, the limit is {LIMIT_S[kill.kind]:g} s"
        for kill in report.kills
        if kill.recovered_s > LIMIT_S[kill.kind]
    ]
    if report.mode == "sync":
        found += [f"{report.lost_count} acknowledged jobs lost"] if report.lost_count else []
        found += [f"{report.keys_doubled_count} keys with two jobs"] if report.keys_doubled_count else []
        found += [f"double lease: {each}" for each in report.double_leases[:5]]
        found += [f"unexplained: {each}" for each in report.unexplained[:5]]
    found += ["services took the promoted standby for another database"] if not report.same_identity else []
    found += [f"{name} has ended" for name in report.ended_services]
    found += [f"{count} tracebacks in the log of {name}" for name, count in report.tracebacks.items()]
    return found + [f"callers saw {name}, which is not an error of Sexton" for name in report.failures if "." in name]


def as_text(report: Report) -> str:
    how = "strictly synchronous" if report.mode == "sync" else f"asynchronous, {report.lag_ms:.0f} ms behind"
    why = ", ".join(f"{count} {reason}" for reason, count in report.repeated_because.items()) or "none"
    saw = ", ".join(f"{count} {name}" for name, count in report.failures.items()) or "none"
    lines = [
        f"{len(report.kills)} kills of the primary under {report.rate_per_s:g} jobs/s for {report.load_s:.0f} s",
        f"primary and {report.standbys} standby{'s' * (report.standbys > 1)}, {how}; reached {WAYS[report.way]}",
        "",
        "| kill | at s | primary → successor | accepts s | starts s | recovered s | all nodes up s | lost |",
        "|---|---|---|---|---|---|---|---|",
        *(_row(kill) for kill in report.kills),
        "",
        f"acknowledged {report.acknowledged_count:,} of {report.attempted_count:,} sent, completed {report.completed_count:,}",
        f"lost {report.lost_count}, of which {report.lost_after_running_count} had run",
        f"executed twice: {report.executed_twice_count}; claimed again after: {why}",
        f"double leases {len(report.double_leases)}, unexplained {len(report.unexplained)}",
        f"exist although not acknowledged: {report.unanswered_count}",
        f"found by their key after a lost answer: {report.found_again_count}, keys with two jobs {report.keys_doubled_count}",
        f"failed calls: {saw}",
        f"same cluster identity after every failover: {'yes' if report.same_identity else 'no'}",
    ]
    if report.mode == "async":
        lines += ["", WHY_LOST.format(lag_ms=report.lag_ms)]
    lines += ["", *(f"NOT MET: {each}" for each in report.shortfalls)] if report.shortfalls else ["", "all limits hold"]
    return "\n".join(lines)


def _row(kill: Kill) -> str:
    cells = [
        kill.kind,
        f"{kill.at_s:.0f}",
        f"{kill.primary} → {kill.successor}",
        *(f"{span_s:.1f}" for span_s in (kill.accepted_s, kill.started_s, kill.recovered_s, kill.whole_s)),
        str(kill.lost_count),
    ]
    return f"| {' | '.join(cells)} |"
