"""`make nightly` does not repeat parts that have passed on the same code, and records no failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import nightly

GOOD, BAD = nightly.Part("good", "passes", "platform"), nightly.Part("bad", "fails", "no_such_module")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tests/migration").mkdir(parents=True)
    (tmp_path / "tests/migration/previous").write_text("413f5aa\n")
    (tmp_path / ".gitignore").write_text(".cache/\n")
    monkeypatch.setattr(nightly, "ROOT", tmp_path)
    monkeypatch.setattr(nightly, "PARTS", {part.name: part for part in (GOOD, BAD)})
    git(tmp_path, "init", "--quiet")
    commit(tmp_path, "code.py", "one = 1")
    return tmp_path


def git(project: Path, *arguments: str) -> None:
    author = ["-c", "user.name=test", "-c", "user.email=test@example.invalid"]
    subprocess.run(["git", *author, *arguments], cwd=project, check=True)


def commit(project: Path, name: str, text: str) -> None:
    (project / name).write_text(text)
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message", name)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr(sys, "argv", ["nightly", *arguments])
    with pytest.raises(SystemExit) as ended:
        nightly.main()
    return ended.value.code


def test_a_part_that_passed_on_this_code_is_not_run_again(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "good") == 0
    commit(project, "tests/nightly.toml", (project / "tests/nightly.toml").read_text())  # the record is not part of the code
    capsys.readouterr()
    assert run(monkeypatch, "good") == 0
    assert "good has passed on this code" in capsys.readouterr().out

    commit(project, "code.py", "one = 2")
    assert run(monkeypatch, "good") == 0
    assert "good passed after" in capsys.readouterr().out


def test_a_part_that_failed_is_named_and_not_recorded(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "failed: bad" in str(run(monkeypatch))
    assert set(nightly.recorded()) == {"good"}
    assert "No module named" in (project / ".cache/nightly/bad.log").read_text()


def test_uncommitted_changes_are_rejected(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "code.py").write_text("one = 3")
    assert run(monkeypatch, "good") == 2
    assert nightly.recorded() == {}
