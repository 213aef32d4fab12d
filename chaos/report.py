"""The report of a chaos run: `report.json` for programs, `report.md` for people, `timeline.svg` as a picture."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import machine

from . import recovery, timeline
from .evidence import Evidence
from .judgement import Verdict
from .plan import Plan
from .recovery import Recovery

SHOWN = 50  # entries of each charge in the report


def write(
    folder: Path,
    plan: Plan,
    evidence: Evidence,
    verdict: Verdict,
    *,
    not_done: dict[str, str],
    drained_s: float,
    postgres: str,
) -> dict[str, Any]:
    recovered = recovery.recoveries(evidence, verdict)
    folder.mkdir(parents=True, exist_ok=True)
    facts = {
        "seed": plan.seed,
        "seconds": plan.seconds,
        "replay": _replay(plan),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine.description(),
        "postgres": postgres,
        "is_sound": verdict.is_sound,
        "figures": _figures(evidence, verdict, recovered, drained_s),
        "charge_counts": {name: len(found) for name, found in verdict.charges().items()},
        "charges": {name: found[:SHOWN] for name, found in verdict.charges().items()},
        "not_done": not_done,
        "recovery_by_kind": recovery.by_kind(recovered),
        "faults": [_fault(each, evidence.began_at) for each in recovered],
        "repetitions": [
            {
                "run": str(each.tried.run_id),
                "token": each.tried.token,
                "member": evidence.member_of(each.tried.worker_id),
                "status": each.tried.status,
                "reason": each.tried.reason,
                "at_s": round(each.tried.recorded_at - evidence.began_at, 2),
                "why": each.why,
                "fault": each.fault.number if each.fault else None,
            }
            for each in verdict.repetitions
        ],
        "ended_by_themselves": [
            {"member": end.member, "at_s": round(end.at - evidence.began_at, 2), "code": end.code, "last_words": end.last_words}
            for end in evidence.own_ends
        ],
        "stalls": [
            {"kind": each.kind, "began_s": round(each.began_at - evidence.began_at, 2), "note": each.note}
            for each in sorted(evidence.stalls, key=lambda each: each.began_at)
        ],
        "failures_logged": dict(evidence.failures),
        "submissions_unanswered": dict(evidence.submissions.failed),
    }
    (folder / "report.json").write_text(json.dumps(facts, indent=1) + "\n")
    (folder / "report.md").write_text(_page(facts))
    how = "sound" if verdict.is_sound else "NOT SOUND"
    title = f"Chaos, seed {plan.seed}: {plan.seconds:g} s, {len(evidence.faults)} faults; {how}"
    (folder / "timeline.svg").write_text(timeline.draw(title, evidence, recovered))
    return facts


def line(facts: dict[str, Any]) -> str:
    """The result in one line. Other charges are shown only if there are some."""
    figures, recovered = facts["figures"], facts["figures"]["recovery"]
    named = {"lost", "leased twice", "unexplained"}
    others = "".join(f", {count} {name}" for name, count in facts["charge_counts"].items() if count and name not in named)
    again = (
        "none needed"
        if recovered["max_s"] is None
        else f"median {recovered['median_s']:.1f} s, longest {recovered['max_s']:.1f} s"
    )
    return (
        f"chaos: seed {facts['seed']}, {facts['seconds']:g} s, {'sound' if facts['is_sound'] else 'NOT SOUND'}: "
        f"{figures['submitted']:,} submitted, {figures['lost']} lost, {figures['leased_twice']} double leases, "
        f"{figures['unexplained']} unexplained{others}; {len(facts['faults'])} faults, recovery {again}"
    )


def _replay(plan: Plan) -> str:
    chosen = "".join(f" --fault '{name}'" for name in plan.faults or ())
    return f"python -m chaos --minutes {plan.seconds / 60:g} --seed {plan.seed} --rate {plan.rate:g}{chosen}"


def _figures(evidence: Evidence, verdict: Verdict, recovered: Sequence[Recovery], drained_s: float) -> dict[str, Any]:
    lags = recovery.lags(evidence)
    times = sorted(each.seconds for each in recovered)
    return {
        "submitted": verdict.asked_count,
        "acknowledged": verdict.acknowledged_count,
        "executed": verdict.executed_count,
        "completed": verdict.completed_count,
        "lost": len(verdict.lost),
        "leased_twice": len(verdict.double_leases),
        "unexplained": len(verdict.unexplained),
        "runs_executed_more_than_once": verdict.repeated_runs,
        "tries_ended_by": dict(verdict.repeated_because().most_common()),
        "executed_by": _by_member(evidence),
        "fires": {
            "expected": verdict.fires.expected_count,
            "executed": verdict.fires.executed_count,
            "explained_by_the_ledger": dict(verdict.fires.explained),
            "missing": len(verdict.fires.missing),
            "doubled": len(verdict.fires.doubled),
        },
        "limits": {
            kind: {
                "slots": found.slots,
                "executed": found.executed_count,
                "most_at_once": found.most_at_once,
                "went_on_beyond_a_lost_lease": found.beyond_lease_count,
            }
            for kind, found in verdict.limits.items()
        },
        "lag": recovery.distribution([lag for _, lag in lags]),
        "lag_while_no_fault_was_felt": recovery.distribution([lag for _, lag in recovery.calm(lags, recovered)]),
        "recovery": {
            "median_s": round(times[len(times) // 2], 2) if times else None,
            "max_s": round(times[-1], 2) if times else None,
        },
        "drained_s": round(drained_s, 1),
    }


def _by_member(evidence: Evidence) -> dict[str, int]:
    starts = Counter(evidence.pids.get(line.pid, "?") for line in evidence.lines if line.what == "start")
    return dict(sorted(starts.items()))


def _fault(each: Recovery, began_at: float) -> dict[str, Any]:
    fault = each.fault
    return {
        "number": fault.number,
        "kind": fault.kind,
        "began_s": round(fault.began_at - began_at, 2),
        "ended_s": round(fault.ended_at - began_at, 2),
        "members": list(fault.members),
        "note": fault.note,
        "counts_from": fault.counts_from,
        "work_s": round(each.work_s, 2),
        "submit_s": round(each.submit_s, 2),
    }


def _page(facts: dict[str, Any]) -> str:
    figures = facts["figures"]
    on = facts["machine"]
    out = [
        f"# Chaos, seed {facts['seed']}: {'sound' if facts['is_sound'] else '**NOT SOUND**'}",
        "",
        (
            f"{facts['seconds']:g} s of load and {len(facts['faults'])} faults on {on['cores']} cores ({on['cpu']}), "
            f"PostgreSQL {facts['postgres']}, {facts['measured_at']}. To repeat the same faults: `{facts['replay']}`"
        ),
        "",
    ]
    out += [f"**NOT DONE: {name}** ({why})\n" for name, why in facts["not_done"].items()]
    out += ["| | |", "|---|---|"]
    out += [f"| {name.replace('_', ' ')} | {_cell(value)} |" for name, value in figures.items()]
    for name, found in facts["charges"].items():
        if found:
            out += ["", f"## {name}", *(f"- {each}" for each in found)]
    out += ["", "## Recovery by kind of fault", "", "| fault | times | median | longest |", "|---|---|---|---|"]
    out += [
        f"| {kind} | {found['count']:g} | {found['median_s']:.1f} s | {found['max_s']:.1f} s |"
        for kind, found in facts["recovery_by_kind"].items()
    ]
    out += ["", " ".join((recovery.__doc__ or "").split()), "", "## Faults", ""]
    out += ["| # | from | to | fault | what | work again | submissions again |", "|---|---|---|---|---|---|---|"]
    out += [
        f"| {each['number']} | {each['began_s']:.1f} s | {each['ended_s']:.1f} s | {each['kind']} | {each['note']} | "
        f"{each['work_s']:.1f} s | {each['submit_s']:.1f} s |"
        for each in facts["faults"]
    ]
    for title, found in (
        ("Submissions without an answer", facts["submissions_unanswered"]),
        ("Unexpected errors in the logs", facts["failures_logged"]),
    ):
        if found:
            out += ["", f"## {title}", "", *(f"- {count} times {words}" for words, count in found.items())]
    if facts["stalls"]:
        out += ["", "## Stalls (for a worker, SIGSTOP counts as well)", ""]
        out += [f"- {each['kind']} at {each['began_s']:.1f} s: {each['note']}" for each in facts["stalls"]]
    if facts["ended_by_themselves"]:
        out += ["", "## Processes that ended without a fault", ""]
        out += [f"- {end['member']} at {end['at_s']:.1f} s with code {end['code']}" for end in facts["ended_by_themselves"]]
    out += ["", "![timeline](timeline.svg)"]
    return "\n".join(out) + "\n"


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{str(name).replace('_', ' ')} {_cell(part)}" for name, part in value.items()) or "none"
    return str(value)
