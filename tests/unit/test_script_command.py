"""C2, F3: an allow-list of commands, and how a payload fills their arguments: never an additional argument, an option, or
code."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.domain.fault import Invalid
from sexton.domain.targets import ScriptTarget
from sexton.domain.targets.command import ARGUMENT_BYTES_LIMIT, Command, commands


def command(*argv: str, **fields: Any) -> Command:
    return commands({"x": {"argv": ["/bin/x", *argv], **fields}})["x"]


def filled(payload: Any, *argv: str) -> list[str]:
    return command(*argv).filled(payload)[1:]


HOSTILE = ["a b", "$(id)", "`id`", "; id", "x\ny", "'\"", "*", "é\u202e", "", "{payload.b}", "a --force", "\\"]


@pytest.mark.parametrize("value", HOSTILE)
def test_a_placeholder_is_one_argument_whatever_it_contains(value: str) -> None:
    assert filled({"a": value, "b": "secret"}, "{payload.a}", "next") == [value, "next"]


@given(st.text(alphabet=st.characters(exclude_characters="\x00", exclude_categories=["Cs"])))
def test_no_value_adds_an_argument_or_becomes_an_option(value: str) -> None:
    """F3."""
    assert filled({"a": value}, "--name={payload.a}", "--", "{payload.a}") == [f"--name={value}", "--", value]
    try:
        (argument,) = filled({"a": value}, "{payload.a}")
    except Invalid:
        assert value.startswith("-")
    else:
        assert argument == value
        assert not argument.startswith("-")


@pytest.mark.parametrize(
    ("payload", "template", "argument"),
    [
        ({"n": 42}, "{payload.n}", "42"),
        ({"n": -42}, "--n={payload.n}", "--n=-42"),
        ({"n": 1.5}, "{payload.n}", "1.5"),
        ({"n": True}, "{payload.n}", "true"),
        ({"a": {"b": [{"c": "deep"}]}}, "{payload.a.b.0.c}", "deep"),
        ({"a": "x", "b": "y"}, "{payload.a}/{payload.b}.sql", "x/y.sql"),
        ({"a b": 1}, "{payload.a b}", "1"),
        ([["first"]], "{payload.0.0}", "first"),
        ({}, "{print $1} ${HOME} {}", "{print $1} ${HOME} {}"),
    ],
)
def test_placeholders_are_found_by_their_path(payload: Any, template: str, argument: str) -> None:
    assert filled(payload, template) == [argument]


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({}, "payload.a.b: is missing"),
        ({"a": {}}, "payload.a.b: is missing"),
        ({"a": "text"}, "payload.a.b: is missing"),
        ({"a": ["b"]}, "payload.a.b: is missing"),
        (None, "payload.a.b: is missing"),
        ({"a": {"b": None}}, "payload.a.b: is null"),
        ({"a": {"b": {}}}, "payload.a.b: must be a text"),
        ({"a": {"b": ["x"]}}, "payload.a.b: must be a text"),
        ({"a": {"b": math.inf}}, "payload.a.b: must be a text"),
        ({"a": {"b": "x\x00y"}}, "payload.a.b: contains a NUL"),
        ({"a": {"b": "-rf"}}, 'payload.a.b: starts with "-"'),
        ({"a": {"b": -1}}, 'payload.a.b: starts with "-"'),
        ({"a": {"b": "x" * (ARGUMENT_BYTES_LIMIT + 1)}}, "too long for an argument"),
    ],
)
def test_a_placeholder_that_cannot_be_filled_is_named(payload: Any, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        filled(payload, "{payload.a.b}")


def test_a_dash_cannot_follow_an_empty_value() -> None:
    with pytest.raises(Invalid, match="would read it as an option"):
        filled({"a": "", "b": "-x"}, "{payload.a}{payload.b}")


def test_a_dash_may_follow_two_dashes_or_be_inside() -> None:
    payload = {"a": "-x"}
    assert filled(payload, "--", "{payload.a}") == ["--", "-x"]
    assert filled(payload, "--of={payload.a}", "./{payload.a}") == ["--of=-x", "./-x"]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({}, r"scripts.x: .*argv"),
        ({"argv": []}, r"scripts.x.argv: "),
        ({"argv": ["backup"]}, r"scripts.x.argv\[0\]: 'backup' must be an absolute path"),
        ({"argv": ["/bin/{payload.a}"]}, r"scripts.x.argv\[0\]: the program is fixed"),
        ({"argv": ["/bin/x", "{payload}"]}, r"scripts.x.argv\[1\]: write a placeholder as"),
        ({"argv": ["/bin/x", "{payload.}"]}, r"scripts.x.argv\[1\]: write a placeholder as"),
        ({"argv": ["/bin/x", "a\x00b"]}, r"scripts.x.argv\[1\]: an argument cannot contain a NUL"),
        ({"argv": ["/bin/x"], "directory": "tmp"}, "scripts.x.directory: 'tmp' must be an absolute path"),
        ({"argv": ["/bin/x"], "colour": 1}, "scripts.x: .*colour"),
        ({"argv": ["/bin/x"], "memory_mib": 0}, "scripts.x.memory_mib: "),
        ({"argv": ["/bin/x"], "cpu_s": "much"}, "scripts.x.cpu_s: "),
        ({"argv": ["/bin/x"], "retry_codes": [0]}, r"scripts.x.retry_codes\[0\]: "),
        ({"argv": ["/bin/x"], "permanent_codes": [75]}, "scripts.x.permanent_codes: 75 is also in retry_codes"),
        ({"argv": ["/bin/x"], "permanent_codes": "all"}, "scripts.x.permanent_codes: "),
        ({"argv": ["/bin/x"], "environment": {"A=B": "1"}}, "scripts.x.environment.A=B: the name of a variable"),
        ({"argv": ["/bin/x"], "environment": {"A": "1\x00"}}, "scripts.x.environment.A: a variable cannot contain a NUL"),
        ({"argv": ["/bin/x"], "environment": {"SEXTON_RUN_ID": "1"}}, "reserved for the worker"),
        (
            {"argv": ["/bin/x"], "environment": {"A": {"secret": "../etc/passwd"}}},
            "scripts.x.environment.A: .*secret name",
        ),
    ],
)
def test_each_fault_of_a_table_is_named(table: Any, words: str) -> None:
    """F4."""
    with pytest.raises(Invalid, match=words):
        commands({"x": table})


@pytest.mark.parametrize("name", ["", "-x", "a b", "../x", "a/b", "x" * 101])
def test_a_name_that_no_job_could_use_is_rejected(name: str) -> None:
    with pytest.raises(Invalid, match="a command's name"):
        commands({name: {"argv": ["/bin/x"]}})
    with pytest.raises(Invalid, match="name: a command's name"):
        ScriptTarget(name).check()


@pytest.mark.parametrize(
    "argv",
    [
        ["/bin/sh", "-c", "echo {payload.a}"],
        ["/usr/bin/env", "bash", "-lc", "{payload.a}"],
        ["/usr/bin/nice", "-n", "5", "/bin/bash", "-c", "x {payload.a}"],
        ["/usr/bin/python3.12", "-c", "print('{payload.a}')"],
        ["/usr/bin/perl", "-ne", "{payload.a}"],
        ["/usr/bin/node", "--eval", "{payload.a}"],
        ["/usr/bin/psql", "-c", "DELETE FROM t WHERE id = {payload.a}"],
    ],
)
def test_no_payload_becomes_code(argv: list[str]) -> None:
    """F3: a shell that the operator configures must not interpret a submitter's text."""
    with pytest.raises(Invalid, match="would run as code"):
        commands({"x": {"argv": argv}})


@pytest.mark.parametrize(
    "argv",
    [
        ["/bin/sh", "-c", 'exec backup "$1"', "sh", "{payload.a}"],
        ["/usr/bin/psql", "-p", "{payload.port}"],
        ["/usr/bin/tar", "-c", "{payload.a}"],
    ],
)
def test_an_argument_after_code_is_not_code(argv: list[str]) -> None:
    assert commands({"x": {"argv": argv}})


def test_which_exit_codes_are_permanent() -> None:
    assert [command(permanent_codes=[2]).is_permanent(code) for code in (1, 2, 75, -9)] == [False, True, False, False]
    assert [command(permanent_codes="others").is_permanent(code) for code in (1, 2, 75, -9)] == [True, True, False, False]


def test_the_repr_of_a_command_hides_its_arguments_and_variables() -> None:
    """F3: it may be printed by accident."""
    assert repr(command("--password=hunter2", environment={"TOKEN": "hunter2"})) == "Command('/bin/x')"
