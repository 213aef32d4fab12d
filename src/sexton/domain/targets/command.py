"""One command of a worker's allow-list, and how a job's payload fills the placeholders of its argument list.

No shell ever reads any of it. A placeholder fills its own argument and no other. It never becomes an option or code.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from sexton.domain.fault import Invalid

from .script import check_command_name
from .secret import SecretRef, check_name

ARGUMENT_BYTES_LIMIT = 128 * 1024 - 1  # of one argument; the limit of Linux
OWN_VARIABLES = ("SEXTON_", "TRACEPARENT")  # set by the worker itself

Count = Annotated[int, Meta(ge=1)]
Code = Annotated[int, Meta(ge=1, le=255)]
Account = str | Annotated[int, Meta(ge=0)]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACE = re.compile(r"\{payload\.(?P<path>[^{}]+)\}|\{payload\b")  # other braces belong to awk or a shell
# A program and the option after which it takes code. Only common programs: for others, the operator has to check the list.
_TAKES_CODE = re.compile(
    r"(([a-z]{0,4}sh|busybox|python[\d.]*|psql) (-[A-Za-z]*c|--command)"
    r"|(perl|ruby|lua)[\d.]* -[A-Za-z]*[eE]"
    r"|(node|nodejs|deno|bun) (-e|-p|-pe|--eval|--print)"
    r"|php[\d.]* (-r|--run)"
    r"|(mysql|mariadb) (-e|--execute))"
)


class Command(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table `[scripts.NAME]` of `sexton.toml`."""

    argv: Annotated[tuple[str, ...], Meta(min_length=1, max_length=1000)]
    environment: Mapping[str, str | SecretRef] = msgspec.field(default_factory=dict)
    directory: str = "/"
    user: Account | None = None  # none: the worker's
    group: Account | None = None  # none: the user's own
    retry_codes: tuple[Code, ...] = (75,)  # EX_TEMPFAIL
    retry_after_s: Annotated[float, Meta(ge=0, le=86_400)] = 0.0  # the shortest wait after one of retry_codes
    permanent_codes: tuple[Code, ...] | Literal["others"] = ()
    memory_mib: Count | None = None  # address space of each of its processes
    cpu_s: Count | None = None  # of each of its processes
    files: Count | None = None  # open at once in each of its processes
    processes: Count | None = None  # of its user, including processes that others started

    def __repr__(self) -> str:
        return f"Command({self.argv[0]!r})"  # without arguments and environment: they may contain a password

    def is_permanent(self, code: int) -> bool:
        if self.permanent_codes == "others":
            return code > 0 and code not in self.retry_codes  # negative: killed by a signal, never permanent
        return code in self.permanent_codes

    def filled(self, payload: Any) -> list[str]:
        """The argument list for one call; `Invalid` names the placeholder that cannot be filled."""
        answer: list[str] = []
        for position, template in enumerate(self.argv):
            answer.append(_filled(template, payload, may_begin_with_dash="--" in self.argv[:position]))
        return answer


def commands(tables: Any) -> dict[str, Command]:
    """The checked allow-list; `Invalid` names the table, the field and the fix."""
    if not isinstance(tables, Mapping):
        raise Invalid("scripts", "give a table per command: [scripts.backup] with argv = [...]")
    for name in tables:
        check_command_name(name, field=f"scripts.{name}")
    return {name: _command(f"scripts.{name}", table) for name, table in tables.items()}


def _command(field: str, table: Any) -> Command:
    if isinstance(table, Command):
        return table
    try:
        made = msgspec.convert(table, Command)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        raise Invalid(field + place.rstrip("`"), message) from None
    for name, path in (("argv[0]", made.argv[0]), ("directory", made.directory)):
        if not path.startswith("/"):
            raise Invalid(f"{field}.{name}", f"{path!r} must be an absolute path; PATH is not searched")
    _check_argv(f"{field}.argv", made.argv)
    _check_environment(f"{field}.environment", made.environment)
    if made.permanent_codes != "others" and (both := set(made.permanent_codes) & set(made.retry_codes)):
        raise Invalid(f"{field}.permanent_codes", f"{min(both)} is also in retry_codes; remove it from one of them")
    return made


def _check_argv(field: str, argv: Sequence[str]) -> None:
    for position, template in enumerate(argv):
        place = f"{field}[{position}]"
        if "\x00" in template:
            raise Invalid(place, "an argument cannot contain a NUL character")
        if all(path is None for _, path in _pieces(template, field=place)):
            continue
        if position == 0:
            raise Invalid(place, "the program is fixed; a payload can fill only arguments")
        if _is_code(argv, position):
            raise Invalid(place, "the payload would run as code here; pass it as a separate argument that the code reads")


def _is_code(argv: Sequence[str], position: int) -> bool:
    """True if a program before it would run this argument as code: `sh -c …`, also after `env` or `nice`."""
    option = argv[position - 1]
    return any(_TAKES_CODE.fullmatch(f"{program.rpartition('/')[2]} {option}") for program in argv[: position - 1])


def _check_environment(field: str, environment: Mapping[str, str | SecretRef]) -> None:
    for name, value in environment.items():
        if not _VARIABLE.fullmatch(name):
            raise Invalid(f"{field}.{name}", "the name of a variable consists of letters, digits and '_'")
        if name.startswith(OWN_VARIABLES):
            raise Invalid(f"{field}.{name}", "this name is reserved for the worker; choose another")
        if isinstance(value, SecretRef):
            check_name(value.secret, field=f"{field}.{name}")
        elif "\x00" in value:
            raise Invalid(f"{field}.{name}", "a variable cannot contain a NUL character")


def _pieces(template: str, *, field: str = "argv") -> Iterator[tuple[str, str | None]]:
    """Yields plain text, or the path of a placeholder: one of the two each time."""
    end = 0
    for match in _PLACE.finditer(template):
        if match["path"] is None:
            raise Invalid(field, "write a placeholder as {payload.name}; the whole payload is on the command's standard input")
        yield template[end : match.start()], None
        yield "", match["path"]
        end = match.end()
    yield template[end:], None


def _filled(template: str, payload: Any, *, may_begin_with_dash: bool) -> str:
    argument = ""
    for text, path in _pieces(template):
        if path is None:
            argument += text
            continue
        was_empty = not argument
        argument += _text_of(payload, path)
        if was_empty and argument.startswith("-") and not may_begin_with_dash:
            raise Invalid(f"payload.{path}", 'starts with "-", so the command would read it as an option')
    if len(argument.encode("utf-8", "surrogatepass")) > ARGUMENT_BYTES_LIMIT:
        raise Invalid("payload", f"is too long for an argument; the limit is {ARGUMENT_BYTES_LIMIT:,} bytes")
    return argument


def _text_of(payload: Any, path: str) -> str:
    value = payload
    for step in path.split("."):
        value = _step(value, step, path)
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return msgspec.json.encode(value).decode()
        case str() if "\x00" in value:
            raise Invalid(f"payload.{path}", "contains a NUL character, which an argument cannot contain")
        case str():
            return value
        case None:
            raise Invalid(f"payload.{path}", "is null, but the command needs it as an argument")
        case _:
            raise Invalid(f"payload.{path}", "must be a text, a number, true or false: the command takes it as an argument")


def _step(value: Any, step: str, path: str) -> Any:
    if isinstance(value, dict) and step in value:
        return value[step]
    if isinstance(value, list) and step.isascii() and step.isdigit() and len(step) < 10 and int(step) < len(value):
        return value[int(step)]
    raise Invalid(f"payload.{path}", "is missing, but the command needs it as an argument")
