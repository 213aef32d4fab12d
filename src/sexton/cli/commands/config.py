"""`sexton config show`: every setting, its value, its default, and where the value comes from."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from sexton.cli.api_access import AsJson
from sexton.cli.printing import print_json, print_table

if TYPE_CHECKING:
    from sexton.settings import Settings

app = typer.Typer(
    add_completion=False,
    invoke_without_command=True,
    rich_markup_mode=None,
    help="Show every setting and where it comes from.",
)


class Setting(NamedTuple):
    name: str
    variable: str
    value: Any
    default: Any
    origin: str


@app.callback(invoke_without_command=True)
def config(context: typer.Context) -> None:
    """Show every setting and where it comes from."""
    if context.invoked_subcommand is None:
        show()


@app.command()
def show(as_json: AsJson = False) -> None:
    """Show every setting, its default, and whether the value comes from the environment, from sexton.toml or is the default.

    Passwords are masked. Order: environment, then sexton.toml in the current folder, then the default.

    Example: sexton config show
    """
    from sexton.cli.composition import read_settings

    found = described(read_settings())
    if as_json:
        print_json([setting._asdict() for setting in found])
    else:
        columns = ("setting", "value", "default", "origin")
        print_table(columns, ((s.variable, str(s.value), str(s.default), s.origin) for s in found), none="no settings")


def described(settings: Settings) -> list[Setting]:
    file = settings.model_config.get("toml_file")
    path = Path(str(file))
    in_file = set(tomllib.loads(path.read_text(encoding="utf-8"))) if path.is_file() else set()
    in_environment = {name.upper() for name, value in os.environ.items() if value}
    answer = []
    for name, field in type(settings).model_fields.items():
        variable = f"SEXTON_{name.upper()}"
        origin = "environment" if variable in in_environment else str(file) if name in in_file else "default"
        answer.append(Setting(name, variable, _plain(getattr(settings, name)), _plain(field.default), origin))
    return answer


def _plain(value: Any) -> Any:
    from pydantic import SecretStr

    match value:
        case SecretStr():
            return masked(value.get_secret_value())
        case Path():
            return str(value)
        case tuple():
            return list(value)
        case dict():
            return sorted(value)  # only the names: a command may contain a password
        case _:
            return value


def masked(url: str) -> str:
    """The address without its password, and without what might be one in an address that is not well formed."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        host = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
    except ValueError:
        return "***"
    if not parts.scheme or "@" in parts.path or (parts.query and "password" in parts.query):
        return "***"
    user = f"{parts.username}{':***' if parts.password else ''}@" if parts.username else ""
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{user}{host}{parts.path}{query}"
