"""The comparison of two commits by benchmarks: the statistics, the order of runs, the journal, the report."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from rich.console import Console

from bench import product, venv
from bench.compare import command, journal, judgement, plan, report, trees
from bench.compare.judgement import Comparison, compare, t_quantile
from bench.compare.trees import CannotCompare, Tree

TARGETS = {"latency_p99_s": {"must": 0.025, "goal": 0.010}}
BASE = Tree("base", "a" * 40, Path("base"), Path("python"))
HEAD = Tree("head", "b" * 40, Path("head"), Path("python"))
ROOT = Path(__file__).parents[2]
HARNESS = (
    "__main__", "app", "testbed", "draining", "machine", "overrides", "http_load", "product", "record", "scenario", "server",
    "submitter", "scenarios/drain", "scenarios/herd", "scenarios/latency", "scenarios/submit",
)  # fmt: skip


def run_of(**figures: Any) -> dict[str, Any]:
    return {"scenario": "any", "targets": TARGETS, "elsewhere_pct": 3.0, **figures}


def pairs_of(figure: str, ratios: list[float], base: float = 1000.0) -> list[judgement.Pair]:
    return [(run_of(**{figure: base}), run_of(**{figure: base * ratio})) for ratio in ratios]


def only(figure: str, ratios: list[float], base: float = 1000.0) -> Comparison:
    (found,) = compare("any", pairs_of(figure, ratios, base))
    assert found.figure == figure
    return found


def noise(centre: float, spread: float, count: int = 9) -> list[float]:
    """The same values every time."""
    rng = Random(5)
    return [centre * rng.lognormvariate(0, spread) for _ in range(count)]


@pytest.mark.parametrize(
    ("share", "freedom", "value"),
    [(0.90, 1, 3.078), (0.90, 2, 1.886), (0.90, 8, 1.397), (0.95, 1, 6.314), (0.95, 8, 1.860), (0.95, 17, 1.740)],
)
def test_quantiles_are_those_of_published_tables(share: float, freedom: int, value: float) -> None:
    assert t_quantile(share, freedom) == pytest.approx(value, abs=0.0006)


@pytest.mark.parametrize(
    ("figure", "centre"), [("jobs_per_s", 1 / 1.10), ("latency_p50_s", 1.10), ("latency_p99_s", 1.10), ("lag_p50_s", 1.10)]
)
def test_a_wall_clock_regression_of_a_tenth_is_found_through_noise(figure: str, centre: float) -> None:
    found = only(figure, noise(centre, 0.04))
    assert (found.judged_by, found.verdict) == ("confidence", "worse")
    assert found.regression is not None
    assert 1.03 < found.regression < 1.10
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.ratio < found.high


@pytest.mark.parametrize("figure", ["jobs_per_s", "latency_p50_s", "latency_p99_s"])
def test_noise_alone_is_not_a_regression(figure: str) -> None:
    """Nor is a mean above the limit if the pairs differ much."""
    assert only(figure, noise(1.0, 0.15)).verdict == "within"
    assert only(figure, [1.6, 0.8, 1.5, 0.7, 0.75, 1.4, 1.3]).verdict == "within"


def test_a_faster_head_is_not_worse_whichever_direction_is_better() -> None:
    assert only("jobs_per_s", noise(1.2, 0.02)).verdict == "within"
    assert only("latency_p50_s", noise(0.8, 0.02)).verdict == "within"


@pytest.mark.parametrize("figure", ["cpu_us_per_job", "wal_bytes_per_job", "statements_per_job", "cpu_us_per_job_http_batch"])
def test_a_cost_that_grew_by_a_tenth_fails_with_a_single_pair(figure: str) -> None:
    found = only(figure, [1.10])
    assert (found.judged_by, found.verdict, found.low, found.high) == ("median", "worse", None, None)
    assert only(figure, [1.02]).verdict == "within"


def test_a_cost_is_judged_by_the_median_of_its_pairs() -> None:
    """One bad minute of the machine does not decide."""
    assert only("cpu_us_per_job", [1.0, 1.01, 1.6, 1.02, 0.99]).verdict == "within"
    assert only("cpu_us_per_job", [1.04, 1.05, 0.7, 1.04, 1.06]).verdict == "worse"


def test_statements_that_carry_many_jobs_are_judged_by_confidence() -> None:
    """The number of jobs in a batch depends on the speed of the machine."""
    ratios = [1.6, 0.8, 1.5, 0.7, 0.75, 1.4, 1.3]
    assert only("statements_per_job", ratios, base=0.005).verdict == "within"
    assert only("statements_per_job", ratios, base=4.0).verdict == "worse"
    assert only("statements_per_job", noise(2.0, 0.05), base=0.005).verdict == "worse"


def test_a_single_pair_cannot_judge_a_wall_clock_figure() -> None:
    assert only("jobs_per_s", [0.5]).verdict == "not judged"
    assert only("jobs_per_s", [0.5, 0.5]).verdict == "worse"


def test_tails_without_a_target_and_parts_of_a_total_are_shown_and_not_judged() -> None:
    assert only("latency_max_s", [2.0, 2.0]).verdict == "not judged"
    assert judgement.judged_by("cpu_us_per_job_server", {}, ["cpu_us_per_job", "cpu_us_per_job_server"]) == "not judged"
    http = ["cpu_us_per_job", "cpu_us_per_job_client_http", "cpu_us_per_job_api_http"]
    assert [judgement.judged_by(figure, {}, http) for figure in http] == ["median", "not judged", "median"]


def test_only_figures_that_every_run_reports_are_compared() -> None:
    """Others are named, so that a reader notices that they are missing."""
    before = run_of(jobs_per_s=10.0, lag_p50_s=None)
    both = (before, run_of(jobs_per_s=10.0, lag_p50_s=0.1, lag_max_s=0.2, wal_bytes_per_job=3.0))
    assert [found.figure for found in compare("any", [both])] == ["jobs_per_s"]
    assert judgement.left_out([both]) == ["lag_p50_s", "wal_bytes_per_job"]


def test_pairs_alternate_their_order_scenario_after_scenario() -> None:
    steps = plan.steps(["drain", "latency"], 3)
    assert [step.tree[0] for step in steps] == list("bhhbbh" * 2)
    assert [(step.scenario, step.pair) for step in steps[:7:2]] == [("drain", 1), ("drain", 2), ("drain", 3), ("latency", 1)]
    assert {step.jobs for step in plan.steps(["drain"], 1)} == {50_000}
    assert {step.jobs for step in plan.steps(["drain"], 1, jobs=10)} == {10}


def test_nine_pairs_of_the_four_scenarios_take_half_an_hour_at_most() -> None:
    assert plan.seconds(plan.steps(["drain", "herd", "latency", "submit"], plan.PAIRS)) <= 25 * 60
    steps = plan.steps(["drain"], 2)
    assert plan.seconds(steps, {"drain": [20.0, 40.0]}) == 120.0


def test_results_are_kept_and_half_a_pair_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    steps = plan.steps(["drain"], 3)
    before = journal.Journal(path, resume=False)
    for number, step in enumerate(steps[:3]):
        before.append(step, run_of(jobs_per_s=float(number)))
    with path.open("a") as file:
        file.write('\n{"scenario": "drain", "pa')  # killed while it wrote
    after = journal.Journal(path, resume=True)
    assert [after.has_pair(step) for step in steps] == [True, True, False, False, False, False]
    for step in steps[2:4]:
        after.append(step, run_of(jobs_per_s=7.0))
    kept = journal.Journal(path, resume=True).pairs(steps)
    assert [(base["jobs_per_s"], head["jobs_per_s"]) for base, head in kept] == [(0.0, 1.0), (7.0, 7.0)]


def test_without_resume_earlier_results_are_moved_aside_and_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    (step, _) = plan.steps(["drain"], 1)
    journal.Journal(path, resume=False).append(step, run_of())
    assert not journal.Journal(path, resume=False).path.exists()
    (aside,) = tmp_path.iterdir()
    assert json.loads(aside.read_text())["scenario"] == "drain"


def test_other_trees_have_another_journal(tmp_path: Path) -> None:
    dirty = replace(HEAD, change="12345678")
    paths = {journal.path(tmp_path, BASE, head, harness) for head in (HEAD, dirty) for harness in ("head", "own")}
    assert len(paths) == 4


def table_of(found: list[Comparison], *, everything: bool) -> str:
    console = Console(width=160)
    with console.capture() as captured:
        console.print(report.table(BASE, HEAD, found, limit=1.03, caption="here", everything=everything))
    return captured.get()


def test_the_table_shows_judged_figures_and_on_request_all() -> None:
    found = [
        only("jobs_per_s", [0.8, 0.81], base=15_000.0),
        only("latency_max_s", [1.0, 1.1]),
        only("cpu_us_per_job", [1.0, 1.0]),
    ]
    shown = table_of(found, everything=False)
    assert "head bbbbbbb against base aaaaaaa" in shown
    rate = next(line for line in shown.splitlines() if "jobs_per_s" in line)
    for cell in ("15,000", "0.805", "90 % confidence", "worse"):
        assert cell in rate
    assert "latency_max_s" not in shown
    assert "latency_max_s" in table_of(found, everything=True)
    assert report.conclusion(found, 1.03).startswith(
        "WORSE than 1.03 times the base, 1 of 2 judged figures: any jobs_per_s (1.2"
    )
    assert report.conclusion(found[2:], 1.03) == "none of 1 judged figures is worse than 1.03 times the base"


def test_a_cost_whose_pairs_differ_is_marked() -> None:
    found = only("cpu_us_per_job", [1.3, 0.7, 1.2, 1.04, 0.8])
    assert found.verdict == "worse"
    assert "may be noise" in report.conclusion([found], 1.03)


def test_a_comparison_on_a_noisy_machine_is_marked() -> None:
    noisy, quiet = only("jobs_per_s", [1.6, 0.8, 1.5, 0.7]), only("jobs_per_s", [1.01, 0.99, 1.0, 1.02])
    assert "1 vary so much" in report.conclusion([noisy, quiet], 1.03)
    assert "vary" not in report.conclusion([quiet], 1.03)


def test_json_has_the_figure_its_interval_and_the_trees() -> None:
    (told,) = report.documents(BASE, replace(HEAD, change="12345678"), "head", [only("jobs_per_s", [0.8, 0.81])], 1.03)
    assert told.keys() == {
        "scenario", "figure", "base", "head", "ratio", "low", "high", "regression", "pairs", "judged_by", "verdict",
        "limit", "base_commit", "head_commit", "head_is_dirty", "harness",
    }  # fmt: skip
    assert (told["verdict"], told["head_is_dirty"], told["judged_by"]) == ("worse", True, "confidence")


def git(root: Path, *words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / "src").mkdir(parents=True)
    git(root, "init", "-q")
    for text in ("old", "new"):
        (root / "src" / "code.py").write_text(text)
        git(root, "add", "-A")
        git(root, "commit", "-qm", text)
    return root


def test_the_base_is_the_tree_of_its_commit_and_is_built_once(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[Path, ...]] = []
    monkeypatch.setattr(venv, "make", lambda folder, root, *_: made.append((folder, root)))
    base, again = (trees.build("HEAD~1", lambda _: None, repository, tmp_path / "cache") for _ in range(2))
    assert (base.root / "src" / "code.py").read_text() == "old"
    assert base.commit == git(repository, "rev-parse", "HEAD~1")
    assert base == again
    assert made == [(base.root.parent / "venv", base.root)]


def test_a_failed_build_is_repeated(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("no network")

    monkeypatch.setattr(venv, "make", fails)
    for _ in range(2):
        with pytest.raises(CannotCompare, match="no network"):
            trees.build("HEAD", lambda _: None, repository, tmp_path / "cache")


def test_an_unknown_commit_is_rejected(repository: Path) -> None:
    with pytest.raises(CannotCompare, match="nowhere is not a commit"):
        trees.build("nowhere", lambda _: None, repository)


def test_a_change_of_the_working_tree_is_reported_and_ends_the_measurement(repository: Path) -> None:
    clean = trees.working_tree(Path(sys.executable), repository)
    assert not clean.is_dirty
    trees.require_unchanged(clean)
    (repository / "src" / "more.py").write_text("new and not committed")
    dirty = trees.working_tree(Path(sys.executable), repository)
    assert dirty.is_dirty
    assert "uncommitted changes" in str(dirty)
    trees.require_unchanged(dirty)
    with pytest.raises(CannotCompare, match="changed during the measurement"):
        trees.require_unchanged(clean)
    (repository / "src" / "more.py").write_text("changed")
    with pytest.raises(CannotCompare, match="changed during the measurement"):
        trees.require_unchanged(dirty)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The command with existing trees and runs that cost nothing: the head needs a tenth more CPU."""
    order: list[str] = []

    def measure(words: list[str], _root: Path, what: str) -> str:
        order.append(what)
        return json.dumps(run_of(cpu_us_per_job=110.0 if "head" in what else 100.0, series={"long": []}))

    monkeypatch.setattr(trees, "FOLDER", tmp_path)
    monkeypatch.setattr(trees, "build", lambda *_: BASE)
    monkeypatch.setattr(trees, "working_tree", lambda _: HEAD)
    monkeypatch.setattr(trees, "require_unchanged", lambda _: None)
    monkeypatch.setattr(trees, "choose_harness", lambda *_: ("head", ""))
    monkeypatch.setattr(command, "measure", measure)
    return order


def ended_with(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_the_exit_code_of_the_command_is_its_judgement(measured: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--base", "any", "--pairs", "2", "--shared", "drain"]
    assert ended_with(*words, "--json") == 1
    assert measured == ["drain of the base", "drain of the head", "drain of the head", "drain of the base"]
    printed = capsys.readouterr()
    (line,) = printed.out.splitlines()
    assert json.loads(line)["ratio"] == 1.1
    assert "4 runs, about 48 s" in printed.err
    assert "drain, pair 2 of 2, base" in printed.err
    assert ended_with(*words, "--resume", "--limit", "1.2") == 0
    assert len(measured) == 4, "everything was there"
    assert "cpu_us_per_job" in capsys.readouterr().out


def test_the_command_exits_with_2_if_it_cannot_compare(
    measured: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(words: list[str], _root: Path, what: str) -> str:
        measured.append(what)
        raise CannotCompare("the server is gone")

    monkeypatch.setattr(command, "measure", fails)
    assert ended_with("--base", "any", "--shared", "drain") == 2
    assert measured == ["drain of the base"] * 2, "one spoilt run is tried again"
    assert "the server is gone" in capsys.readouterr().err
    assert ended_with("--base", "any", "nonsense") == 2
    assert ended_with("--base", "any", "--limit", "0.9", "drain") == 2
    assert ended_with("drain") == 2


def test_a_failed_run_shows_the_reason(tmp_path: Path) -> None:
    with pytest.raises(CannotCompare, match=r"(?s)drain ended with code 1:.*no luck"):
        command.measure([sys.executable, "-c", "raise RuntimeError('no luck')"], tmp_path, "drain")
    assert command.measure([sys.executable, "-c", "print('{}')"], tmp_path, "drain") == "{}"


def test_the_harness_of_the_working_tree_measures_the_package_of_its_interpreter() -> None:
    """And rejects one of another tree."""
    head = replace(HEAD, root=ROOT, python=Path(sys.executable))
    trees._probe(head, ROOT, ["drain", "herd", "latency", "submit"])
    with pytest.raises(CannotCompare, match="is not in"):
        trees._probe(replace(head, root=Path("/elsewhere")), ROOT, ["drain"])
    with pytest.raises(CannotCompare, match="no scenario nonsense"):
        trees._probe(head, ROOT, ["nonsense"])


def test_each_tree_uses_its_own_harness_if_that_of_the_head_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def probe(tree: Tree, harness: Path, _scenarios: list[str]) -> None:
        if (tree, harness) == (BASE, HEAD.root):
            raise CannotCompare("No module named sexton.new")

    monkeypatch.setattr(trees, "_probe", probe)
    assert trees.choose_harness(BASE, HEAD, ["drain"], None) == ("own", "No module named sexton.new")
    assert trees.choose_harness(BASE, HEAD, ["drain"], "own") == ("own", "as asked for")
    with pytest.raises(CannotCompare, match=r"sexton\.new"):
        trees.choose_harness(BASE, HEAD, ["drain"], "head")
    assert trees.choose_harness(replace(BASE, root=HEAD.root), HEAD, ["drain"], None) == ("head", "")


def test_the_four_scenarios_import_nothing_of_the_product_that_may_move() -> None:
    """Otherwise the harness could not measure commits from before the move."""
    stable = {"import sexton", "from sexton import App", "from sexton.settings import Settings"}
    for name in HARNESS:
        lines = (ROOT / "bench" / f"{name}.py").read_text().splitlines()
        assert {line for line in lines if line.startswith(("from sexton", "import sexton"))} <= stable, name


def test_a_class_of_the_product_is_found_wherever_it_lives() -> None:
    assert product.class_named("EmbeddedPostgres").__name__ == "EmbeddedPostgres"
    with pytest.raises(ImportError, match="no class Nowhere"):
        product.class_named("Nowhere")
