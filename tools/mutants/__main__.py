"""`python -m tools.mutants [NAME…]`: applies each mutant of tests/mutants to a copy of the tree and runs its tests.
`--generated N --seed N` draws automatic mutants instead, and ends with the survivors.

A mutant is caught if one of them fails. First all named tests run without any mutant, and must pass. A verdict for the same
code is reused, so an interrupted run continues where it stopped."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from queue import SimpleQueue
from random import Random

from .catalogue import ROOT, Mutant, faults, load
from .clones import CACHE, Clone, Code, Verdict, files_of
from .generated import draw
from .verdicts import CAUGHT_SHARE_MIN, GENERATED_SHARE_MIN, Kept, caught_share, document, line, survivors, table

GREEN_LIMIT_S = 7200.0  # for all named tests without any mutant


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only mutants whose name begins with this")
    parser.add_argument(
        "--jobs", type=int, default=2, metavar="N", help="mutants tested at the same time (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the order, and of the choice by --count (default: %(default)s)"
    )
    parser.add_argument("--count", type=int, metavar="N", help="only this number of mutants, drawn by the seed")
    parser.add_argument(
        "--generated", type=int, metavar="N", help="instead of the list: this number of automatic mutants, drawn by the seed"
    )
    parser.add_argument("--again", action="store_true", help="test mutants with a known verdict again")
    parser.add_argument("--list", action="store_true", help="only list the mutants")
    parser.add_argument("--json", action="store_true", help="print the JSON document instead of the table")
    given = parser.parse_args()
    everything = draw(given.seed, given.generated) if given.generated else load()
    if wrong := faults(everything):
        parser.exit(2, "".join(f"{one}\n" for one in wrong) + "Fix tests/mutants first: the list no longer matches the code.\n")
    chosen = everything if given.generated else _chosen(everything, given.names, given.seed, given.count)
    if not chosen:
        parser.error(f"no mutant begins with {', '.join(given.names)}")
    if given.list:
        for mutant in sorted(chosen, key=lambda one: one.name):
            print(f"{mutant.name}: {mutant.breaks}; {' '.join(mutant.tests)}")
        return
    verdicts = _run(chosen, jobs=given.jobs, again=given.again, check_first=not given.generated)
    told = document(verdicts, chosen, seed=given.seed)
    (ROOT / CACHE / f"report{'-generated' if given.generated else ''}.json").write_bytes(told)
    print(told.decode() if given.json else table(verdicts))
    if given.generated and not given.json:
        print(survivors(verdicts, chosen))
    print(line(verdicts), file=sys.stderr if given.json else sys.stdout)
    sys.exit(0 if caught_share(verdicts) >= (GENERATED_SHARE_MIN if given.generated else CAUGHT_SHARE_MIN) else 1)


def _chosen(mutants: Sequence[Mutant], names: Sequence[str], seed: int, count: int | None) -> list[Mutant]:
    matching = [one for one in mutants if not names or one.name.startswith(tuple(names))]
    return Random(seed).sample(matching, len(matching) if count is None else min(count, len(matching)))


def _run(mutants: Sequence[Mutant], *, jobs: int, again: bool, check_first: bool) -> list[Verdict]:
    files, kept = files_of(), Kept()
    code = Code(files)
    known = {} if again else kept.read(mutants, code)
    left = [one for one in mutants if one.name not in known]
    if not left:
        return [known[one.name] for one in mutants]
    clones: SimpleQueue[Clone] = SimpleQueue()
    for number in range(min(jobs, len(left))):
        clone = Clone(number)
        clone.refresh(files)
        clones.put(clone)
    with ThreadPoolExecutor(clones.qsize()) as pool:
        try:
            red = _red(pool, clones, left, code) if check_first else []
            for judged in as_completed([pool.submit(_judge, clones, one, code, red) for one in left]):
                done = judged.result()
                kept.add(done)  # at once, so that an interruption loses no verdict
                known[done.name] = done
                took = f"{len(known)} of {len(mutants)}, {done.took_s:.0f} s"
                print(f"{done.outcome}: {done.name} ({took}) {done.by or done.error}", flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [known[one.name] for one in mutants]


def _judge(clones: SimpleQueue[Clone], mutant: Mutant, code: Code, red: Sequence[str]) -> Verdict:
    digest = code.of(mutant.tests)
    if failing := [one for one in red if one.startswith(mutant.tests)]:
        return Verdict(mutant.name, mutant.digest, digest, "no verdict", "", 0.0, f"fails without any mutant: {failing[0]}")
    clone = clones.get()
    try:
        return clone.judge(mutant, digest)
    finally:
        clones.put(clone)


def _red(pool: ThreadPoolExecutor, clones: SimpleQueue[Clone], mutants: Sequence[Mutant], code: Code) -> list[str]:
    """The named tests that fail without any mutant: they would seem to catch every mutant."""
    passed = ROOT / CACHE / "green.txt"
    before = set(passed.read_text().splitlines()) if passed.exists() else set()
    named = {test: f"{code.of([test])} {test}" for mutant in mutants for test in mutant.tests}
    tests = sorted(test for test, line in named.items() if line not in before)
    if not tests:
        return []
    parts = [tests[n :: clones.qsize()] for n in range(clones.qsize())]
    print(f"mutants: {len(tests)} tests without any mutant first", flush=True)
    red = [test for part in pool.map(lambda part: _failing(clones, part), parts) for test in part]
    green = {named[test] for test in tests if not any(one.startswith(test) for one in red)}
    passed.write_text("\n".join(sorted(before | green)))
    return red


def _failing(clones: SimpleQueue[Clone], tests: Sequence[str]) -> list[str]:
    if not tests:
        return []
    clone = clones.get()
    try:
        heard = clone.run(tests, limit_s=GREEN_LIMIT_S)
    finally:
        clones.put(clone)
    if heard is None or not (heard.passed_count or heard.failed):
        raise SystemExit(f"mutants: pytest ran no test; see {clone.path.with_suffix('.log')}")
    return heard.failed


if __name__ == "__main__":
    main()
