"""Settings: from the environment or a file, validated, frozen, and without showing secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sexton.cli.composition import load_registry, read_settings, unknown_variables
from sexton.errors import SextonError
from sexton.settings import Settings


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, which is searched for `sexton.toml`."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_setting_has_a_default() -> None:
    settings = Settings()
    assert settings.database_url is None
    assert settings.worker_queues == ("default",)


@pytest.mark.parametrize(
    ("text", "queues"),
    [
        ("mail", ("mail",)),
        ("mail,default", ("mail", "default")),
        (" mail , default ,", ("mail", "default")),
    ],
)
def test_queues_are_a_list_separated_by_commas(monkeypatch: pytest.MonkeyPatch, text: str, queues: tuple[str, ...]) -> None:
    """C11."""
    monkeypatch.setenv("SEXTON_WORKER_QUEUES", text)
    assert Settings().worker_queues == queues


def test_numbers_and_switches_are_parsed_from_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEXTON_WORKER_CONCURRENCY", "7")
    monkeypatch.setenv("SEXTON_LEASE_S", "12.5")
    monkeypatch.setenv("SEXTON_NOTIFY", "off")
    settings = Settings()
    assert (settings.worker_concurrency, settings.lease_s, settings.notify) == (7, 12.5, False)


def test_the_environment_overrides_the_file_and_code_overrides_both(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "sexton.toml").write_text('worker_queues = ["mail", "print"]\npool_size = 5\nlease_s = 9\nbeat_s = 2.5\n')
    monkeypatch.setenv("SEXTON_POOL_SIZE", "6")
    monkeypatch.setenv("SEXTON_LEASE_S", "10")
    settings = Settings(lease_s=11)
    assert settings.worker_queues == ("mail", "print")
    assert (settings.beat_s, settings.pool_size, settings.lease_s) == (2.5, 6, 11)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("POOL_SIZE", "many"),
        ("POOL_SIZE", "0"),
        ("WORKER_CONCURRENCY", "-1"),
        ("WORKER_CONCURRENCY", "10001"),
        ("LEASE_S", "0"),
        ("POLL_S", "soon"),
        ("PROMOTE_LIMIT", "0"),
        ("HISTORY_DAYS", "0"),
        ("NOTIFY", "perhaps"),
        ("HISTORY_DAYS", "36500"),  # before 1970, all partitions would look old
    ],
)
def test_an_invalid_value_is_rejected(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """F2, F4."""
    monkeypatch.setenv(f"SEXTON_{name}", value)
    with pytest.raises(ValidationError) as raised:
        Settings()
    assert [error["loc"] for error in raised.value.errors()] == [(name.lower(),)]


def test_a_connection_string_is_never_shown() -> None:
    """F5."""
    settings: Any = Settings(
        database_url="postgresql://sexton:hunter2@host/db",  # type: ignore[arg-type]
        direct_url="postgresql://sexton:hunter2@host/db",  # type: ignore[arg-type]
    )
    for shown in (repr(settings), str(settings), settings.model_dump_json(), str(settings.model_dump())):
        assert "hunter2" not in shown
    assert settings.database_url.get_secret_value().endswith("hunter2@host/db")


def test_they_are_immutable() -> None:
    with pytest.raises(ValidationError):
        Settings().pool_size = 9


def test_a_misspelt_setting_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """F2: it would have no effect without notice."""
    monkeypatch.setenv("SEXTON_WORKER_CONCURENCY", "10")
    read_settings()
    message = "sexton: SEXTON_WORKER_CONCURENCY is not a setting and has no effect; did you mean SEXTON_WORKER_CONCURRENCY?\n"
    assert capsys.readouterr().err == message
    (folder / "sexton.toml").write_text("worker_concurency = 5\n")
    with pytest.raises(ValidationError, match="worker_concurency"):
        read_settings()


def test_variables_of_tests_and_tools_are_not_taken_for_settings() -> None:
    assert unknown_variables(["SEXTON_TEST_SEED", "SEXTON_POOL_SIZE", "HOME", "SEXTON_POOLSIZE"]) == ["SEXTON_POOLSIZE"]


def test_a_file_name_given_as_an_app_gets_advice(folder: Path) -> None:
    with pytest.raises(SextonError, match="write jobs:app"):
        load_registry("jobs.py")
    with pytest.raises(SextonError, match=r"write shop\.jobs:app"):
        load_registry("shop/jobs.py:app")


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("mail,default", (("mail", "default"), (1, 1), False)),
        ("mail:3,default:1", (("mail", "default"), (3, 1), False)),
        ("mail>default", (("mail", "default"), (1, 1), True)),
    ],
)
def test_queues_have_weights_or_a_strict_order(monkeypatch: pytest.MonkeyPatch, text: str, order: Any) -> None:
    """C11."""
    monkeypatch.setenv("SEXTON_WORKER_QUEUES", text)
    assert Settings().queue_order == order


def test_queues_may_be_weighted_in_their_own_setting_and_the_file_may_list_them(folder: Path) -> None:
    """C11."""
    (folder / "sexton.toml").write_text('worker_queues = ["mail:3", "print"]\n')
    assert Settings().queue_order == (("mail", "print"), (3, 1), False)
    (folder / "sexton.toml").write_text('worker_queues = "mail>print"\n')
    assert Settings().queue_order.strict
    (folder / "sexton.toml").unlink()
    assert Settings(worker_queues=("a:1", "b"), worker_queue_weights=(2, 1)).queue_order == (("a:1", "b"), (2, 1), False)
    for wrong in ((1,), (0, 1), (1001, 1)):
        with pytest.raises(ValidationError, match="worker_queue_weights"):
            Settings(worker_queues=("a", "b"), worker_queue_weights=wrong)


@pytest.mark.parametrize("text", [",", "a>b,c", "a:0", "a,a"])
def test_an_invalid_order_of_queues_is_rejected(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """C11, F2."""
    monkeypatch.setenv("SEXTON_WORKER_QUEUES", text)
    with pytest.raises(ValidationError) as raised:
        Settings()
    assert [error["loc"] for error in raised.value.errors()] == [("worker_queues",)]
