"""F2: the settings of outbound calls are read once, and an invalid one is rejected by its name."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from sexton.cli.composition import unknown_variables
from sexton.clock import SystemClock
from sexton.errors import SextonError
from sexton.handlers.targets import TargetHandlers
from sexton.settings import Settings


def test_places_and_ports_are_lists_in_a_variable_and_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEXTON_OUTBOUND_ALLOW", " 10.1.0.0/16, billing.internal:9000,")
    monkeypatch.setenv("SEXTON_OUTBOUND_PORTS", "443,8000-8999")
    settings = Settings()
    assert settings.outbound_allow == ("10.1.0.0/16", "billing.internal:9000")
    assert 8500 in settings.outbound_rules.ports
    as_in_toml: Any = {"outbound_ports": [80, "443"]}
    assert Settings(**as_in_toml).outbound_ports == ("80", "443")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OUTBOUND_ALLOW", "10.1.0.1/16"),
        ("OUTBOUND_ALLOW", "http://billing.internal"),
        ("OUTBOUND_PORTS", "https"),
        ("OUTBOUND_PROXY", "socks5://proxy:1080"),
        ("HTTP_HOST_LIMIT", "0"),
    ],
)
def test_an_invalid_setting_is_rejected(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"SEXTON_{name}", value)
    with pytest.raises(ValidationError) as raised:
        Settings()
    assert [error["loc"] for error in raised.value.errors()] == [(name.lower(),)]


def test_nothing_private_is_open_by_default() -> None:
    rules = Settings().outbound_rules
    assert rules.against_host("127.0.0.1", 443) is not None
    assert rules.against_host("a.example", 25) is not None


def test_the_password_of_a_proxy_is_never_shown() -> None:
    proxy: Any = "http://user:hunter2@proxy:3128"
    assert "hunter2" not in repr(Settings(outbound_proxy=proxy))


def test_secrets_are_not_reported_as_misspelt_settings() -> None:
    assert unknown_variables(["SEXTON_SECRET_STRIPE", "SEXTON_SECRETS_DIR", "SEXTON_SECRETS"]) == ["SEXTON_SECRETS"]


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_certificates_that_cannot_be_read_are_reported_at_the_start(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "roots.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SextonError, match="SEXTON_HTTP_CA_FILE"):
        TargetHandlers(Settings(http_ca_file=path), clock=SystemClock(), rng=Random(1))
