"""docs/walk.md leads through the code. Every file and name in it exists, each hop calls the next, and the path of a job over
HTTP is short."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.test_rules import defines

PAGE = Path(__file__).parents[2] / "docs/walk.md"
TEXT = PAGE.read_text()
SOURCE = PAGE.parents[1] / "src/sexton"
LINE = re.compile(r"^(?:(\d+)\.|   - asks) \[([^]]+)\]\(([^)]+)\), `(\w+)`", re.MULTILINE)
COUNTS = re.compile(r"goes through (\d+) files; with the files that they ask, (\d+)")


class Hop(NamedTuple):
    walk: str
    part: str
    number: str  # empty: a file that the hop above it asks
    file: str
    link: str
    name: str

    @property
    def text(self) -> str:
        return (SOURCE / self.file).read_text()

    def calls(self, name: str) -> bool:
        """Its file contains a call of this function, or sends this statement."""
        return bool(re.search(rf"(?<!def ){name}\(|\[\"{name}\"\]", self.text))


def hops() -> list[Hop]:
    walks = (walk.partition("\n") for walk in TEXT.split("\n## ")[1:])
    parts = ((title, *part.partition("**")) for title, _, text in walks for part in text.split("\n**"))
    return [Hop(title, name, *line) for title, name, _, part in parts for line in LINE.findall(part)]


HOPS = hops()
WALKS = {hop.walk: [one for one in HOPS if one.walk == hop.walk] for hop in HOPS}
OVER_HTTP = WALKS["One job over HTTP"]


def callers() -> list[tuple[Hop, list[Hop]]]:
    """Each file of the first walk, with those that may call it: the hop before it in its part, or what its own hop asks."""
    found: list[tuple[Hop, list[Hop]]] = []
    around: list[Hop] = []
    for before, hop in zip([None, *OVER_HTTP], OVER_HTTP, strict=False):
        if before is None or before.part != hop.part:
            around = [hop]
        elif hop.number:
            found.append((hop, around[:1]))
            around = [hop]
        else:
            found.append((hop, list(around)))
            around.append(hop)
    return found


@pytest.mark.parametrize("hop", HOPS, ids=lambda hop: f"{hop.walk} {hop.file} {hop.name}")
def test_a_hop_names_what_is_in_its_file(hop: Hop) -> None:
    assert (PAGE.parent / hop.link).resolve() == SOURCE / hop.file
    assert defines(hop.text, hop.name)


@pytest.mark.parametrize(
    ("hop", "callers"), callers(), ids=lambda one: f"{one.file} {one.name}" if isinstance(one, Hop) else ""
)
def test_the_hop_before_calls_it(hop: Hop, callers: list[Hop]) -> None:
    """A file left out between two hops breaks the chain."""
    assert any(caller.calls(hop.name) for caller in callers), [caller.file for caller in callers]


@pytest.mark.parametrize("walk", WALKS)
def test_hops_are_numbered_in_order(walk: str) -> None:
    numbers = [int(hop.number) for hop in WALKS[walk] if hop.number]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_job_over_http_passes_at_most_twenty_files_and_no_migration() -> None:
    through = {hop.file for hop in OVER_HTTP if hop.number}
    asked = {hop.file for hop in OVER_HTTP if not hop.number}
    said = COUNTS.search(TEXT)
    assert said is not None
    assert (len(through), len(through | asked)) == (int(said[1]), int(said[2]))
    assert len(through) <= 20
    assert not [file for file in through | asked if "migrations" in file]
