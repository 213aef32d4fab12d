"""The list of mutants matches the code: each is still the mistake that was meant, and each safeguard has one. `make mutants`
runs them."""

from __future__ import annotations

import multiprocessing
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.docs.test_rules import RULES
from tools.mutants import catalogue, clones, generated, verdicts
from tools.mutants.__main__ import _chosen
from tools.mutants.catalogue import Mutant
from tools.mutants.clones import Clone, Verdict

MUTANTS = catalogue.load()


def test_every_mutant_matches_the_code() -> None:
    """A text that moved, or occurs twice, would change something else or nothing."""
    assert catalogue.faults(MUTANTS) == []


def test_there_are_enough_and_every_safeguard_has_one() -> None:
    assert len(MUTANTS) >= 150
    assert set(RULES) - {mutant.rule for mutant in MUTANTS} == set()
    assert {mutant.rule for mutant in MUTANTS if mutant.rule is not None} - set(RULES) == set()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A tree with one function and one test that checks half of it."""
    (tmp_path / "src").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "src/sums.py").write_text("def add(a, b):\n    return a + b\n\n\ndef half(a):\n    return a / 2\n")
    (tmp_path / "tests/test_sums.py").write_text(
        "import sums\n\n\ndef test_add():\n    assert sums.add(2, 3) == 5\n\n\ndef test_half():\n    assert sums.half(0) == 0\n"
    )
    (tmp_path / "tools").symlink_to(catalogue.ROOT / "tools")
    return tmp_path


def mutant(before: str, after: str, test: str = "test_add", **fields: str) -> Mutant:
    named = {"name": "slip", "file": "src/sums.py", "breaks": "sums", **fields}
    return Mutant(before=before, after=after, tests=(f"tests/test_sums.py::{test}",), **named)


@pytest.mark.parametrize(
    ("slip", "fault"),
    [
        (mutant("a + b", "a - b"), None),
        (mutant("a +  b", "a - b"), "0 times in src/sums.py"),
        (mutant("return a", "return b"), "2 times in src/sums.py"),
        (mutant("a + b", "a + b"), "it changes nothing"),
        (mutant("a + b", "a - b", "test_gone"), "there is no test tests/test_sums.py::test_gone"),
        (mutant("a + b", "a - b", file="src/gone.py"), "there is no file src/gone.py"),
        (mutant("a + b", "a - b", name="A slip"), "lower-case words"),
    ],
)
def test_a_mutant_that_does_not_match_is_rejected(project: Path, slip: Mutant, fault: str | None) -> None:
    found = catalogue.faults([slip], project)
    assert (fault is None and not found) or (fault is not None and fault in found[0])
    assert catalogue.faults([slip, slip], project)[0] == f"{slip.name}: the name is used 2 times"


@pytest.mark.parametrize(
    ("slip", "outcome"),
    [
        (mutant("a + b", "a - b"), "caught"),
        (mutant("a / 2", "a / 3", "test_half"), "survived"),
        (mutant("def add(a, b):", "def add(a, b:"), "no verdict"),
    ],
    ids=["caught", "survived", "does not start"],
)
def test_a_mutant_is_tested_in_a_clone_and_the_tree_does_not_change(
    project: Path, monkeypatch: pytest.MonkeyPatch, slip: Mutant, outcome: str
) -> None:
    monkeypatch.setattr(clones, "_FORKS", multiprocessing.get_context("spawn"))  # a few of them need no preloaded imports
    clone = Clone(0, project)
    clone.refresh(["src/sums.py", "tests/test_sums.py"])
    (clone.path / "tools").symlink_to(catalogue.ROOT / "tools")
    (clone.path / "pyproject.toml").write_text("")
    tree = (project / "src/sums.py").read_text()
    verdict = clone.judge(slip, "code")
    assert (verdict.outcome, verdict.digest) == (outcome, slip.digest), verdict
    assert (project / "src/sums.py").read_text() == (clone.path / "src/sums.py").read_text() == tree


def told(name: str, outcome: clones.Outcome) -> Verdict:
    return Verdict(name, "d", "c", outcome, "tests/test_a.py::test_b", 1.0)


def test_the_line_and_the_share_show_the_survivors() -> None:
    verdicts_of_all = [told("a", "caught"), told("b", "survived"), told("c", "caught"), told("d", "no verdict")]
    assert verdicts.line(verdicts_of_all) == "mutants: 4, caught 2 (50.0 %), survived: b, no verdict: d"
    assert verdicts.line([told("a", "caught")]) == "mutants: 1, caught 1 (100.0 %), survived: none"
    assert verdicts.caught_share(verdicts_of_all) == 0.5
    assert "survived  b" in " ".join(verdicts.table(verdicts_of_all).split("\n")).replace("    ", "  ")


def test_a_verdict_is_reused_only_for_the_same_mutant_on_the_same_code(project: Path) -> None:
    (project / "tests/test_others.py").write_text("")
    files = ["src/sums.py", "tests/test_sums.py", "tests/test_others.py"]
    kept, slip, code = verdicts.Kept(project), mutant("a + b", "a - b"), clones.Code(files, project)
    verdict = Verdict(slip.name, slip.digest, code.of(slip.tests), "caught", "", 1.0)
    assert kept.read([slip], code) == {}
    kept.add(verdict)
    assert kept.read([slip], code) == {slip.name: verdict}
    assert kept.read([mutant("a + b", "a * b")], code) == {}
    for changed, counts in (("tests/test_others.py", True), ("tests/test_sums.py", False)):
        (project / changed).write_text("# changed")
        assert bool(kept.read([slip], clones.Code(files, project))) is counts


def test_generated_mutants_match_the_code_and_depend_on_the_seed() -> None:
    drawn = generated.draw(1, 60)
    assert catalogue.faults(drawn) == []
    assert len({one.name for one in drawn}) == 60
    assert drawn == generated.draw(1, 60) != generated.draw(2, 60)
    assert {Path(one.file).suffix for one in drawn} == {".py", ".sql"}


def test_every_file_of_the_core_says_which_tests_catch_its_mutants() -> None:
    """Without a line a mutant would run no test, and a line that no file reaches was forgotten when its file was renamed."""
    patterns, source = generated.mapped(), catalogue.ROOT / generated.SOURCE
    names = [path.relative_to(source).as_posix() for path in generated.core()]
    reached = {next((pattern for pattern in patterns if fnmatchcase(name, pattern)), None) for name in names}
    assert set(patterns) - reached == set()
    assert [name for name in names if not generated.named_tests(name)] == []
    assert [test for tests in patterns.values() for test in tests if not (catalogue.ROOT / "tests" / test).exists()] == []


def test_mutants_are_made_of_code_and_not_of_texts(tmp_path: Path) -> None:
    (tmp_path / "src/sexton/domain").mkdir(parents=True)
    (tmp_path / "src/sexton/store/functions").mkdir(parents=True)
    (tmp_path / "tests/mutants/generated").mkdir(parents=True)
    (tmp_path / generated.TESTS_OF_FILES).write_text('[all]\n"*" = ["test_a.py"]\n')
    (tmp_path / "src/sexton/domain/sums.py").write_text(
        '"""This and that."""\n# this and that\nsaid = f"{é} this and that"\nboth = a and b  # this and that\n'
    )
    (tmp_path / "src/sexton/store/functions/sums.sql").write_text(
        "-- a OR b\nCREATE OR REPLACE FUNCTION sums() SELECT a OR b  -- a OR b\n"
        "  WHERE a = b AND c = ANY (d) AND e = f FOR UPDATE SKIP LOCKED  -- g\n"
    )
    made = {(one.name, one.before.splitlines()[0], one.after.splitlines()[0]) for one in generated.draw(1, 100, tmp_path)}
    python = {("domain-sums-and-3", "both = a and b  # this and that", "both = a or b  # this and that")}
    assert {one for one in made if one[0].startswith("domain")} == python
    after = {one[2] for one in made if one[0].startswith("functions")}
    assert after == {
        "CREATE OR REPLACE FUNCTION sums() SELECT a AND b  -- a OR b",
        "  WHERE a = b AND c = ANY (d) FOR UPDATE SKIP LOCKED  -- g",
        "  WHERE a = b AND c = ANY (d) AND e <> f FOR UPDATE SKIP LOCKED  -- g",
        "  WHERE a = b AND c <> ANY (d) AND e = f FOR UPDATE SKIP LOCKED  -- g",
        "  WHERE a <> b AND c = ANY (d) AND e = f FOR UPDATE SKIP LOCKED  -- g",
        "  WHERE a = b AND c = ANY (d) AND e = f FOR UPDATE  -- g",
        "  WHERE a = b AND c = ANY (d) AND e = f-- g",
    }


def test_a_survivor_is_told_with_its_change_and_its_tests() -> None:
    slips = [mutant("one\na + b", "one\na - b", name="b"), mutant("a / 2", "a / 3", name="c")]
    told_of_b = "b: src/sums.py, sums\n    -a + b\n    +a - b\n    tests: tests/test_sums.py::test_add"
    assert verdicts.survivors([told("b", "survived"), told("c", "caught")], slips) == told_of_b


def test_the_seed_decides_order_and_choice() -> None:
    assert _chosen(MUTANTS, [], 1, 10) == _chosen(MUTANTS, [], 1, 10) != _chosen(MUTANTS, [], 2, 10)
    assert {one.name for one in _chosen(MUTANTS, ["finish-"], 1, None)} >= {"finish-without-the-token"}
