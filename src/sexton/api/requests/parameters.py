"""Reads the address of a request: queries, ids and names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar, get_args
from urllib.parse import parse_qsl, unquote_to_bytes
from uuid import UUID

import msgspec

from sexton.api.answers.problems import Refused, invalid
from sexton.api.state import ApiRequest
from sexton.domain.duration import seconds
from sexton.domain.fault import Invalid
from sexton.wire import Fault

from .faults import FAULTS_LIMIT, fault_in, refused

S = TypeVar("S", bound=msgspec.Struct)

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,6})?")
_INTEGER = re.compile(r"-?\d{1,18}")
_LOST_PLUS = re.compile(r"(?<=\d) (?=\d\d:?\d\d$)")  # `+01:00` in a query is a space unless it was written %2B
_FIRST, _LAST = datetime(1971, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


def query_of(request: ApiRequest, kind: type[S]) -> S:
    """The query as a struct: unknown and repeated parameters are errors."""
    text = request.scope["query_string"]
    if not text:
        return kind()
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=50)
    except (UnicodeDecodeError, ValueError):
        raise Refused("malformed", "the query is not percent-encoded UTF-8") from None
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for name, value in pairs:
        if name in values:
            faults.append(Fault(pointer=f"?{name}", detail="is given twice"))
        elif "\x00" in value:
            faults.append(Fault(pointer=f"?{name}", detail="holds a NUL character (U+0000), which PostgreSQL cannot store"))
        else:
            values[name] = _scalar(kind, name, value)
    try:
        query = msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        faults += _parameter_faults(kind, values, error)
    else:
        if not faults:
            return query
    raise refused(faults[:FAULTS_LIMIT])


def _parameter_faults(kind: type[msgspec.Struct], values: dict[str, Any], first: msgspec.ValidationError) -> Iterator[Fault]:
    """Each parameter at fault, until the others are valid."""
    error = first
    for _ in range(FAULTS_LIMIT):
        fault = _parameter_fault(kind, error)
        yield fault
        if values.pop(fault.pointer.removeprefix("?"), None) is None:  # it is required
            return
        try:
            msgspec.convert(values, kind)
        except msgspec.ValidationError as following:
            error = following
        else:
            return


def _parameter_fault(kind: type[msgspec.Struct], error: msgspec.ValidationError) -> Fault:
    fault = fault_in(str(error), kind)
    name, detail = fault.pointer.removeprefix("/").replace("~1", "/").replace("~0", "~"), fault.detail
    if detail == "there is no such field":
        known = ", ".join(sorted(kind.__struct_fields__))
        detail = f"there is no such parameter; this call takes {known or 'none'}"
    return Fault(pointer=f"?{name}", detail=detail)


def no_query(request: ApiRequest) -> None:
    query_of(request, Nothing)


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a call that takes none."""


def _scalar(kind: type[msgspec.Struct], name: str, value: str) -> Any:
    wanted = _kinds_of(kind).get(name, "str")
    if wanted == "int" and _INTEGER.fullmatch(value):
        return int(value)
    if wanted == "bool" and value in ("true", "false"):
        return value == "true"
    if wanted == "datetime":
        return _LOST_PLUS.sub("+", value)
    return value


@cache
def _kinds_of(kind: type[msgspec.Struct]) -> dict[str, str]:
    """For each field the scalar type that its text is converted to."""
    found = {}
    for field in msgspec.structs.fields(kind):
        names = {getattr(part, "__name__", "") for part in (field.type, *get_args(field.type), *_deeper(field.type))}
        found[field.name] = next((name for name in ("bool", "int", "datetime") if name in names), "str")
    return found


def _deeper(kind: Any) -> list[Any]:
    return [inner for part in get_args(kind) for inner in get_args(part)]


def id_of(request: ApiRequest, parameter: str, noun: str) -> UUID:
    """An id from the path. A text that is not an id is not found."""
    text = str(request.path_params[parameter])
    if not _UUID.fullmatch(text):
        raise Refused("not_found", f"{text[:100]!r} is not the id of a {noun}; ids are UUIDs")
    return UUID(text)


def name_of(request: ApiRequest, prefix: str, suffix: str = "") -> str:
    """The rest of the path between `prefix` and `suffix`, as one name that may contain slashes and dots."""
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    rest = raw.partition(b"?")[0][len(prefix) :]
    if not rest.endswith(suffix.encode()):
        raise Refused("not_found", "there is nothing at this address; GET /schema lists every call")
    try:
        name = unquote_to_bytes(rest[: len(rest) - len(suffix)]).decode()
    except UnicodeDecodeError:
        raise Refused("malformed", "the address is not percent-encoded UTF-8") from None
    if not name or "\x00" in name:
        raise Refused("not_found", "the name is empty; give one")
    return name


def span_of(text: str, at: str, *, most_s: float) -> float:
    """A span in a query: `10s`, `250ms`, or a plain number of seconds."""
    try:
        span_s = seconds(float(text) if _NUMBER.fullmatch(text) else text)
    except Invalid as error:
        raise invalid(at, error.message) from None
    if span_s > most_s:
        raise invalid(at, f"at most {most_s:g}s")
    return span_s


def within_history(at: datetime | None) -> datetime | None:
    """A bound of a search, moved into the range in which time arithmetic is possible."""
    if at is None or _FIRST.year < at.year < _LAST.year:
        return at
    return _FIRST if at.year <= _FIRST.year else _LAST


def filter_of(kind: type[S], asked: msgspec.Struct, **more: Any) -> S:
    """A filter of the store from the fields of a query or a body. The store calls the handler the task."""
    fields = {"task" if name == "handler" else name: value for name, value in msgspec.structs.asdict(asked).items()}
    fields |= {name: within_history(value) for name, value in fields.items() if isinstance(value, datetime)}
    return kind(**{name: value for name, value in fields.items() if name in kind.__struct_fields__}, **more)
