"""Writes docs/reference/ from the code: the HTTP API from its OpenAPI document, the command line from Typer, settings and
errors from their modules, job options and their modules from the table of options. `make docs` runs it; a test fails if a
committed page differs from its output."""

from __future__ import annotations

import inspect
import io
import json
import re
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from sexton import errors, settings
from sexton.api.answers.problems import KINDS
from sexton.api.answers.problems import MEDIA_TYPE as PROBLEM
from sexton.api.app import create
from sexton.api.openapi.document import openapi
from sexton.cli.exit_codes import _CODES, Exit
from sexton.cli.main import COMMANDS, EXIT_CODES, load
from sexton.clock import SystemClock
from sexton.ids import entropy
from sexton.settings import Settings
from sexton.store.database import Postgres
from tools import job_options

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
MADE = "<!-- Made by `make docs` from {source}; edit that instead. -->\n"
HTTP_METHODS = ("get", "post", "put", "patch", "delete")
LEASE_RULE = "`SEXTON_BEAT_S` may be half of `SEXTON_LEASE_S` at most; both must be the same on all schedulers and workers."
VALUES = {int: "INTEGER", float: "NUMBER"}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    job_options.main()


def pages() -> dict[str, str]:
    return {
        "api.md": api_page(),
        "job-options.md": job_options_page(),
        "cli.md": cli_page(),
        "settings.md": settings_page(),
        "errors.md": errors_page(),
    }


# The HTTP API


def api_page() -> str:
    document = _openapi()
    lines = [
        "# HTTP API",
        MADE.format(source="the OpenAPI document, which `GET /schema` answers"),
        document["info"]["description"],
        "[how-to/http.md](../how-to/http.md) shows it with curl; what a job's fields mean is in [tasks.md](../tasks.md).\n",
        "| call | does |",
        "|---|---|",
    ]
    calls = list(_calls(document))
    lines += [f"| [`{title}`](#{anchor(title)}) | {call['summary']} |" for title, call in calls]
    for tag in document["tags"]:
        lines += ["", f"## {tag['name'].capitalize()}", tag["description"]]
        for title, call in calls:
            if tag["name"] in call["tags"]:
                lines += ["", *_call(title, call)]
    lines += ["", "## Bodies", "A field without a default must be given. In an answer, a newer server may add fields."]
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += ["", *_body(name, schema)]
    lines += ["", "## Problems", "| status | `code` | title |", "|---|---|---|"]
    lines += [f"| {kind.status} | `{code}` | {kind.title} |" for code, kind in KINDS.items()]
    return _page(lines)


def _openapi() -> dict[str, Any]:
    """Makes no call, so it needs no database."""
    nowhere = cast(Postgres, None)
    made = create(nowhere, Settings.model_construct(), clock=SystemClock(), emit=lambda _event: None, rng=entropy())
    return openapi(made)


def _calls(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method in HTTP_METHODS:
            if method in methods:
                yield f"{method.upper()} {path}", methods[method]


def _call(title: str, call: dict[str, Any]) -> list[str]:
    lines = [f"### `{title}`", " ".join([f"{call['summary']}.".replace("?.", "?"), call.get("description", "")]).strip()]
    parameters = [one for one in call.get("parameters", ()) if one["in"] != "path"]
    if parameters:
        lines += ["", "| parameter | in | type | means |", "|---|---|---|---|"]
        lines += [f"| `{p['name']}` | {p['in']} | {_field(p['schema'])} | {p.get('description', '')} |" for p in parameters]
    if "requestBody" in call:
        lines += ["", "Send " + "; or ".join(_content(call["requestBody"]["content"])) + "."]
        first = next(iter(call["requestBody"]["content"].values()))
        for example in list(first.get("examples", {}).values())[-1:]:
            lines += ["", "```json", json.dumps(example["value"], indent=1), "```"]
    lines += ["", "| answer | body | when |", "|---|---|---|"]
    good = {status: answer for status, answer in call["responses"].items() if PROBLEM not in answer.get("content", {})}
    for status, answer in good.items():
        lines.append(f"| {status} | {'; '.join(_content(answer.get('content', {})))} | {answer['description']} |")
    return [*lines, "", f"[Problems](#problems): {', '.join(status for status in call['responses'] if status not in good)}."]


def _content(content: dict[str, Any]) -> list[str]:
    return [
        f"{_type(inner['schema'])}{'' if media_type == 'application/json' else f' as `{media_type}`'}"
        for media_type, inner in content.items()
    ]


def _body(name: str, schema: dict[str, Any]) -> list[str]:
    lines = [f"### {name}", *([schema["description"]] if "description" in schema else [])]
    required = schema.get("required", ())
    lines += ["", "| field | type | default | means |", "|---|---|---|---|"]
    for field, inner in schema.get("properties", {}).items():
        default = "" if field in required else f"`{json.dumps(inner['default'])}`" if "default" in inner else "left out"
        means = inner.get("description", "").partition(" A span:")[0].partition(" An instant with")[0]
        lines.append(f"| `{field}` | {_type(inner)} | {default} | {means} |")
    return lines


def _field(schema: dict[str, Any]) -> str:
    return _type(schema) + (f", default `{json.dumps(schema['default'])}`" if "default" in schema else "")


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        return _named(schema["$ref"].rpartition("/")[2])
    if "A span:" in schema.get("description", ""):
        return "span"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    return _plain_type(schema)


def _named(name: str) -> str:
    paged = re.fullmatch(r"Page_(\w+)_", name)
    return f"[page](#{anchor(name)}) of {_named(paged[1])}" if paged else f"[{name}](#{anchor(name)})"


def _plain_type(schema: dict[str, Any]) -> str:
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema.get('items', {}))}{_bounds(schema, 'minItems', 'maxItems', 'items')}"
        case "object":
            inner = schema.get("additionalProperties")
            return f"object of {_type(inner)}" if isinstance(inner, dict) else "object"
        case "string":
            known = {"uuid": "id", "date-time": "instant"}.get(schema.get("format", ""))
            return known or f"string{_bounds(schema, 'minLength', 'maxLength', 'characters')}"
        case str() as kind:
            return f"{kind}{_bounds(schema, 'minimum', 'maximum', '')}"
        case _:
            return "any JSON"


def _bounds(schema: dict[str, Any], least: str, most: str, unit: str) -> str:
    if most not in schema:
        return ""
    low = f"{schema[least]:,} to " if least in schema else "at most "
    return f", {low}{schema[most]:,}{f' {unit}' if unit else ''}"


# The options of a job


def job_options_page() -> str:
    return _page(["# Job options", MADE.format(source="`src/sexton/domain/job_options.py`"), *job_options.page()])


# The command line


def cli_page() -> str:
    lines = [
        "# Command line",
        MADE.format(source="the commands in `src/sexton/cli`"),
        "`sexton --install-completion` teaches your shell the commands; `--debug`, anywhere in the line, shows the whole",
        "traceback of an error. With `--json` a command prints one JSON document, and its errors are problem documents on",
        "standard error.\n",
        "| exit code | name | means |",
        "|---|---|---|",
    ]
    texts = dict(re.findall(r"(\d+) ([^,.]+)", " ".join(EXIT_CODES.split())))
    lines += [f"| {int(code)} | `{code.name}` | {texts[str(int(code))]}{_errors_of(code)} |" for code in Exit]
    lines += ["", "| command | does |", "|---|---|"]
    lines += [f"| [`sexton {name}`](#{anchor(f'sexton {name}')}) | {command.about} |" for name, command in COMMANDS.items()]
    for name in COMMANDS:
        lines += ["", *_command(f"sexton {name}", load(name))]
    return _page(lines)


def _errors_of(code: Exit) -> str:
    names = [f"`{kind.__name__}`" for kind, found in _CODES.items() if found is code and kind.__module__ == errors.__name__]
    return f" ({', '.join(names)})" if names else ""


def _command(title: str, command: Any) -> list[str]:
    level = "##" if title.count(" ") == 1 else "###"
    lines = [f"{level} `{title}`", *_help(command.help or "")]
    if inner := getattr(command, "commands", None):
        for name, one in inner.items():
            lines += ["", *_command(f"{title} {name}", one)]
        return lines
    parameters = [one for one in command.params if not getattr(one, "hidden", False) and one.name != "help"]
    if parameters:
        lines += ["", "| argument or option | means | default |", "|---|---|---|"]
        lines += [_parameter(one) for one in parameters]
    return lines


def _help(text: str) -> list[str]:
    """The docstring, its paragraphs joined, its example as code."""
    lines = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        words = " ".join(paragraph.split())
        lines += ["", f"`{words.removeprefix('Example: ')}`"] if words.startswith("Example: ") else ["", words]
    return lines[1:]


def _parameter(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = (parameter.metavar or parameter.name).upper().strip("[]")
        name += "…" if parameter.nargs == -1 else ""
        shown = f"`{name}`" if parameter.required else f"`[{name}]`"
    else:
        value = parameter.metavar or VALUES.get(parameter.type_descriptor.annotation, "TEXT")
        takes = "" if parameter.is_flag else f" {value}"
        shown = ", ".join(f"`{name}{takes}`" for name in (*parameter.opts, *parameter.secondary_opts))
    default = "" if parameter.default in (None, False, ()) else f"`{parameter.default}`"
    if parameter.envvar:
        default = f"`{parameter.envvar}`"
    return f"| {shown} | {_cell(parameter.help or '')} | {default} |"


# Settings


def settings_page() -> str:
    texts = _comments(settings)
    lines = [
        "# Settings",
        MADE.format(source="`src/sexton/settings.py`"),
        "Each is an environment variable, or a line in `sexton.toml` in the working directory under the name in small letters",
        "without `SEXTON_`. The environment wins. `sexton config show` says what is in force and where it comes from. Units",
        "are in the names: `_s` is seconds. What to think of in production is in [operations.md](../operations.md#settings).\n",
        "| variable | type | default | means |",
        "|---|---|---|---|",
    ]
    for name, field in Settings.model_fields.items():
        default = _setting_default(field.default)
        lines.append(f"| `SEXTON_{name.upper()}` | {_setting_type(field)} | {default} | {_cell(texts.get(name, ''))} |")
    return _page([*lines, "", LEASE_RULE])


def _comments(module: Any) -> dict[str, str]:
    """The comment beside each field."""
    found = {}
    source = inspect.getsource(module)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and (field := re.match(r"    (\w+): ", token.line)):
            found[field[1]] = token.string.lstrip("# ")
    return found


def _setting_type(field: FieldInfo) -> str:
    kinds = [("URL", SecretStr), ("path", Path), ("yes or no", bool), ("integer", int), ("number", float)]
    words = str(field.annotation)
    kind = next((name for name, one in kinds if one is field.annotation or one.__name__ in words), "text")
    kind = "names, separated by commas" if "tuple" in words else "JSON" if words.startswith("dict") else kind
    bounds = {key: getattr(one, key) for one in field.metadata for key in ("ge", "gt", "le") if hasattr(one, key)}
    if "ge" in bounds and "le" in bounds:
        return f"{kind}, {bounds['ge']:,} to {bounds['le']:,}"
    if "ge" in bounds:
        return f"{kind}, at least {bounds['ge']:,}"
    return f"{kind}, above {bounds['gt']:,}" if "gt" in bounds else kind


def _setting_default(value: Any) -> str:
    match value:
        case None | {}:
            return "none"
        case bool():
            return "`yes`" if value else "`no`"
        case tuple():
            return f"`{','.join(value)}`"
        case float():
            return f"`{value:g}`"
        case _:
            return f"`{value}`"


# Errors


def errors_page() -> str:
    lines = [
        "# Errors",
        MADE.format(source="`src/sexton/errors.py`"),
        "All derive from `SextonError`. `code` is stable: it is the `code` of the API's problem documents where both have it",
        "(the others are in [api.md](api.md#problems)), and *exit* is the exit code of the [command line](cli.md).\n",
        "| error | also a | `code` | exit | means |",
        "|---|---|---|---|---|",
    ]
    for kind in _errors():
        also = [f"`{base.__name__}`" for base in kind.__bases__ if not issubclass(base, errors.SextonError)]
        code = next((int(code) for one, code in _CODES.items() if issubclass(kind, one)), int(Exit.FAILED))
        words = _cell(" ".join(inspect.getdoc(kind).split()) if kind.__doc__ else "")  # type: ignore[union-attr]
        lines.append(f"| `{kind.__name__}` | {', '.join(also)} | `{kind.code}` | {code} | {words} |")
    return _page(lines)


def _errors() -> Iterator[type[errors.SextonError]]:
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, errors.SextonError) and value is not errors.SextonError:
            yield value


# Words


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def anchor(title: str) -> str:
    """The anchor as GitHub generates it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _page(lines: Sequence[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    main()
