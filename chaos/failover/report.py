"""What came of the drill: figures for a program, a few lines for people, and where it falls short."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from .configuration import Mode, Way

Kind = Literal["postmaster", "node", "freeze"]

LIMIT_S: dict[Kind, float] = {"postmaster": 20.0, "node": 45.0, "freeze": 45.0}
DEED: dict[Kind, str] = {
    "postmaster": "the postmaster was killed",
    "node": "the node was killed",
    "freeze": "the node stood still",
}
WAYS: dict[Way, str] = {"haproxy": "through HAProxy", "hosts": "by a URL that names all nodes"}
WHY_LOST = """\
Why: a primary that does not wait for its standbys acknowledges what nobody else has yet. What was on its way when it died is
gone with it, at most the lag of the standby, {lag_ms:.0f} ms here, and nothing that was acknowledged before. Submissions of
that moment are forgotten, whether they have run or not. Runs of that moment are executed twice: where their claim survived and
their end did not, the worker gives them back (`released`); where not even the claim did, history knows only the second
execution (`unexplained`). Whoever cannot bear that replicates synchronously: `--mode sync` loses nothing."""


@dataclass(slots=True)
class Kill:
    kind: Kind
    at_s: float  # since the load began
    primary: str
    successor: str
    accepted_s: float
    started_s: float
    recovered_s: float
    whole_s: float  # until the cluster could bear the next kill
    lost_count: int = 0  # acknowledged before this kill and after the one before


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
    lost_after_running_count: int  # of the lost, those whose handler had come to its end
    unanswered_count: int  # jobs that are there although their caller never heard so
    found_again_count: int  # of the keyed calls, those whose first answer was lost
    keys_doubled_count: int  # idempotency keys with two jobs
    executed_twice_count: int
    repeated_because: dict[str, int]
    double_leases: list[str]
    unexplained: list[str]
    failures: dict[str, int]  # what callers saw
    same_identity: bool  # rule "a clone does not fire": the promoted standby is the same database
    ended_services: list[str]
    tracebacks: dict[str, int]
    shortfalls: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def shortfalls(report: Report) -> list[str]:
    """In async mode a loss is the lesson, not a fault."""
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
    found += ["the promoted standby was taken for another database"] if not report.same_identity else []
    found += [f"{name} has ended" for name in report.ended_services]
    found += [f"{count} tracebacks in the log of {name}" for name, count in report.tracebacks.items()]
    return found + [f"callers saw {name}, which is not an error of ours" for name in report.failures if "." in name]


def as_text(report: Report) -> str:
    how = "strictly synchronous" if report.mode == "sync" else f"asynchronous, {report.lag_ms:.0f} ms behind"
    why = ", ".join(f"{count} {reason}" for reason, count in report.repeated_because.items()) or "none"
    saw = ", ".join(f"{count} {name}" for name, count in report.failures.items()) or "none"
    lines = [
        f"{len(report.kills)} kills of the primary under {report.rate_per_s:g} jobs/s for {report.load_s:.0f} s",
        f"primary and {report.standbys} standby{'s' * (report.standbys > 1)}, {how}; reached {WAYS[report.way]}",
        "",
        "| kill | at s | primary → successor | accepts s | starts s | recovered s | whole again s | lost |",
        "|---|---|---|---|---|---|---|---|",
        *(_row(kill) for kill in report.kills),
        "",
        f"acknowledged {report.acknowledged_count:,} of {report.attempted_count:,} sent, completed {report.completed_count:,}",
        f"lost {report.lost_count}, of which {report.lost_after_running_count} had run",
        f"executed twice {report.executed_twice_count}; claimed again after: {why}",
        f"double leases {len(report.double_leases)}, unexplained {len(report.unexplained)}",
        f"there though never acknowledged {report.unanswered_count}",
        f"found again by their key {report.found_again_count}, keys with two jobs {report.keys_doubled_count}",
        f"failed calls: {saw}",
        f"same cluster identity after every failover: {'yes' if report.same_identity else 'no'}",
    ]
    if report.mode == "async":
        lines += ["", WHY_LOST.format(lag_ms=report.lag_ms)]
    lines += ["", *(f"SHORT: {each}" for each in report.shortfalls)] if report.shortfalls else ["", "nothing falls short"]
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
