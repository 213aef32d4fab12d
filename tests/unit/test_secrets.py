"""Secrets by reference. The job contains a name; values are read at the call, and nowhere else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sexton.clock import ManualClock
from sexton.domain.fault import Invalid
from sexton.domain.targets import HttpTarget, SecretRef
from sexton.errors import NotHere, PermanentError
from sexton.handlers.secrets import Secrets


def test_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEXTON_SECRET_STRIPE_KEY", "sk_1")
    assert Secrets.from_environment().reveal(SecretRef("stripe-key", "Bearer ")) == "Bearer sk_1"


def test_a_file_without_its_line_end(tmp_path: Path) -> None:
    (tmp_path / "stripe").write_text("sk_1\n")
    assert Secrets({}, tmp_path).reveal(SecretRef("stripe")) == "sk_1"


def test_the_first_of_several_is_sent_and_all_of_them_sign() -> None:
    secrets = Secrets({"SEXTON_SECRET_HOOKS": " new\n old "})
    assert (secrets.reveal(SecretRef("hooks")), secrets.all_of("hooks")) == ("new", ("new", "old"))


def test_a_file_that_is_replaced_is_read_again(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
    secrets = Secrets({}, tmp_path, clock=clock)
    (tmp_path / "stripe").write_text("old")
    assert secrets.all_of("stripe") == ("old",)
    (tmp_path / "stripe").write_text("new")
    clock.move(timedelta(seconds=5))
    assert secrets.all_of("stripe") == ("new",)


def test_an_unknown_secret_is_named_with_how_to_set_it(tmp_path: Path) -> None:
    with pytest.raises(NotHere, match=r"secret 'stripe' is unknown .* SEXTON_SECRET_STRIPE, or as the file stripe"):
        Secrets({"SEXTON_SECRET_OTHER": "hush"}, tmp_path).reveal(SecretRef("stripe"))


@pytest.mark.parametrize("name", ["../passwd", "/etc/passwd", "a/b", "", ".", "Stripe", "a\x00b", "x" * 65])
def test_a_name_that_could_be_a_path_is_invalid(tmp_path: Path, name: str) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "passwd").write_text("root")
    with pytest.raises(PermanentError, match="is not a valid secret name"):
        Secrets({}, tmp_path / "inside").reveal(SecretRef(name))
    with pytest.raises(Invalid, match=r"headers\.Authorization"):
        HttpTarget("https://a.example", headers={"Authorization": SecretRef(name)}).check()


def test_no_value_is_ever_shown(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"hush\xff\xfe")
    secrets = Secrets({"SEXTON_SECRET_STRIPE": "hush"}, tmp_path)
    assert "hush" not in repr(secrets)
    with pytest.raises(NotHere) as refused:
        secrets.all_of("binary")
    assert "hush" not in repr(refused.value)
    assert refused.value.__cause__ is None
