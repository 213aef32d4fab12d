"""docs/walk.md leads through the code. Every file and name on the way exists, and the way of a job over HTTP is short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_rules import defines

PAGE = Path(__file__).parents[2] / "docs/walk.md"
HOP = re.compile(r"^(\d+)\. \[([^]]+)\]\(([^)]+)\), `(\w+)`", re.MULTILINE)
WALKS = {title: HOP.findall(text) for title, _, text in (part.partition("\n") for part in PAGE.read_text().split("\n## ")[1:])}
HOPS = [(title, *hop) for title, hops in WALKS.items() for hop in hops]


@pytest.mark.parametrize(("walk", "number", "title", "link", "name"), HOPS, ids=lambda one: str(one))
def test_a_hop_names_what_is_in_its_file(walk: str, number: str, title: str, link: str, name: str) -> None:
    file = (PAGE.parent / link).resolve()
    assert file == PAGE.parents[1] / "src/sexton" / title
    assert defines(file.read_text(), name)


@pytest.mark.parametrize("hops", WALKS.values(), ids=WALKS)
def test_hops_are_numbered_in_order(hops: list[tuple[str, ...]]) -> None:
    assert [int(number) for number, *_ in hops] == list(range(1, len(hops) + 1))


def test_a_job_over_http_passes_twenty_files_and_no_migration() -> None:
    files = [title for _, title, _, _ in WALKS["One job over HTTP"]]
    assert len(files) == len(set(files)) <= 20
    assert not [file for file in files if "migrations" in file]
