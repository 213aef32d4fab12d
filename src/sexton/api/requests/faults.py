"""Every fault of a request in one answer. Only a rejected request comes here, so that a valid one pays nothing.

A body that cannot be decoded is decoded field by field. A body that breaks a rule is checked again without the field at fault,
until no fault is left.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import NODEFAULT, UNSET

from sexton.api.answers.problems import Refused, fault_of, pointer
from sexton.domain.fault import Invalid
from sexton.domain.job_options import FIXED
from sexton.wire import Fault, JobEdit

from .choices import choices_at, in_words

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")

FAULTS_LIMIT = 20  # of one request
_SUMMARY_LIMIT = 5  # in the summary line
_WHERE = re.compile(r"(.*) - at `(?:key in )?(\$.*)`", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_CHOICE = re.compile(r"Invalid (?:enum )?value (.+)", re.DOTALL)
_FIELD = re.compile(r"Object (?:contains unknown|missing required) field `(.*)`", re.DOTALL)
_WORDS = {
    "Expected `datetime` with a timezone component": "give an instant with an offset, such as 2026-03-01T09:00:00Z",
    "Invalid RFC3339 encoded datetime": "give an instant with an offset (RFC 3339), such as 2026-03-01T09:00:00Z",
}
_BOUND = re.compile(r"Expected `(\w+)`( of length)? ([<>]=?) (\S+)")
_LIMITS = {">=": "{} or more", ">": "greater than {}", "<=": "at most {}", "<": "less than {}"}
_UNITS = {"str": "characters", "array": "items"}
_KIND = re.compile(r"Expected `([\w |]+)`, got `(\w+)`")
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "datetime": "an instant",
    "uuid": "an id",
}
_UNKNOWN = "there is no such field"
_REQUIRED = "is required"
# Replaces a field at fault that others need: without a rate, its burst would seem to be a fault as well.
_SUBSTITUTES: Mapping[str, Any] = {
    "handler": "a",
    "payload": msgspec.Raw(b"{}"),
    "cron": "@daily",
    "rrule": "FREQ=DAILY",
    "every": 86_400.0,
    "running": 1,
    "count": 1,
    "per": 1.0,
    "release_rate": 1.0,
    "submit_rate": 1.0,
}


def checked(request: S, check: Callable[[S], T], *, all_of: Callable[[S], object] | None = None) -> T:
    """The result of `check`, or a rejection that names every fault, also those that only `all_of` finds."""
    try:
        return check(request)
    except (Invalid, Refused) as first:
        raise refusal_of(request, all_of or check, first) from None


def refusal_of(request: S, check: Callable[[S], object], first: Invalid | Refused) -> Refused:
    if isinstance(first, Refused) and first.code != "invalid":
        return first
    return refused(_broken_rules(request, check, first))


def refused(faults: Sequence[Fault]) -> Refused:
    told = "; ".join(f"{fault.pointer or 'the body'}: {fault.detail}" for fault in faults[:_SUMMARY_LIMIT])
    more = f"; and {len(faults) - _SUMMARY_LIMIT} more" if len(faults) > _SUMMARY_LIMIT else ""
    return Refused("invalid", told + more, faults)


def unreadable(
    body: bytes | msgspec.Raw, kind: type[S], error: msgspec.ValidationError, check: Callable[[S], object] | None
) -> Refused:
    """Of a body that is not a `kind`: the fields that cannot be decoded, and with `check` the rules that the others break."""
    try:
        given = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError:
        return refused([fault_in(str(error), kind)])
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    faults: list[Fault] = []
    readable: dict[str, msgspec.Raw] = {}
    for name, value in given.items():
        own, rest = _field_faults(kind, fields[name], value) if name in fields else ([_unknown(kind, name)], None)
        faults += own
        if rest is not None:
            readable[name] = rest
        if len(faults) >= FAULTS_LIMIT:
            return refused(faults[:FAULTS_LIMIT])
    missing = [name for name, field in fields.items() if field.required and name not in given]
    faults += [Fault(pointer=pointer(name), detail=_REQUIRED) for name in missing]
    if check is not None:
        known = {fault.pointer for fault in faults}
        aside = {pointer(name) for name in (*given, *missing) if name not in readable}
        faults += [fault for fault in _broken_by(readable, kind, check, aside) if fault.pointer not in known]
    return refused(faults[:FAULTS_LIMIT] or [fault_in(str(error), kind)])


def fault_in(message: str, kind: type | None = None) -> Fault:
    """msgspec's message about a value of `kind`, with its path as a JSON pointer, and the allowed values."""
    found = _WHERE.fullmatch(message)
    text, path = (found[1], found[2]) if found else (message, "$")
    steps = tuple(name or index for name, index in _STEP.findall(path))
    at = pointer(*steps)
    if field := _FIELD.fullmatch(text):
        at += pointer(field[1])
        text = _UNKNOWN if "unknown" in text[:24] else _REQUIRED
    elif kind is not None and (wrong := _CHOICE.fullmatch(text)) and (choices := choices_at(kind, steps)):
        text = f"{wrong[1]} is unknown; use {in_words(choices)}"
    text = text.strip()
    return Fault(
        pointer=at, detail=_WORDS.get(text) or _bounds_in_words(text) or _kinds_in_words(text) or text[:1].lower() + text[1:]
    )


def _bounds_in_words(text: str) -> str | None:
    """Of a number, or of the length of a text or a list."""
    found = _BOUND.fullmatch(text)
    if found is None:
        return None
    kind, is_length, sign, bound = found.groups()
    limit = _LIMITS[sign].format(bound)
    if is_length:
        return "must not be empty" if (sign, bound) == (">=", "1") else f"must have {limit} {_UNITS.get(kind, 'entries')}"
    return f"must be {limit}"


def _kinds_in_words(text: str) -> str | None:
    found = _KIND.fullmatch(text)
    if found is None:
        return None
    wanted = dict.fromkeys(_KINDS.get(kind, kind) for kind in found[1].split(" | ") if kind != "null")
    return f"must be {' or '.join(wanted)}, not {_KINDS.get(found[2], found[2])}"


def _unknown(kind: type, name: str) -> Fault:
    fixed = FIXED.get(name) if kind is JobEdit else None
    return Fault(pointer=pointer(name), detail=_UNKNOWN if fixed is None else f"cannot be changed: {fixed}")


def _field_faults(kind: type, field: Any, value: msgspec.Raw) -> tuple[list[Fault], msgspec.Raw | None]:
    """Of one field by itself; inside an object, again without the part at fault. Also what is left of the field, if that can be
    decoded."""
    faults: list[Fault] = []
    while len(faults) < FAULTS_LIMIT:
        try:
            _decoder(kind, field.encode_name).decode(value)
            return faults, value
        except msgspec.ValidationError as error:
            text, _, path = str(error).partition(" - at `$") if " - at `$" in str(error) else (str(error), "", "`")
            fault = fault_in(f"{text} - at `$.{field.encode_name}{path}", kind)
        except (msgspec.DecodeError, RecursionError):
            break
        if any(fault.pointer == other.pointer for other in faults):  # it is required, and was at fault before it was left out
            break
        faults.append(fault)
        rest = _pruned(value, _steps(fault)[1:])
        if rest is None:
            break
        value = rest
    return faults, None


@cache
def _decoder(kind: type, name: str) -> msgspec.json.Decoder[Any]:
    field = next(field for field in msgspec.structs.fields(kind) if field.encode_name == name)
    return msgspec.json.Decoder(field.type)


def _pruned(value: msgspec.Raw, steps: Sequence[str]) -> msgspec.Raw | None:
    """The same without the field of an object that the steps lead to, or with a value that breaks no rule; None if they lead
    through a list."""
    try:
        document = inner = msgspec.json.decode(value)
    except msgspec.DecodeError:
        return None
    for step in steps[:-1]:
        inner = inner.get(step) if isinstance(inner, dict) else None
    if not steps or not isinstance(inner, dict) or steps[-1] not in inner:
        return None
    if steps[-1] in _SUBSTITUTES:
        inner[steps[-1]] = _SUBSTITUTES[steps[-1]]
    else:
        del inner[steps[-1]]
    return msgspec.Raw(msgspec.json.encode(document))


def _broken_by(given: Mapping[str, msgspec.Raw], kind: type[S], check: Callable[[S], object], aside: set[str]) -> list[Fault]:
    """The rules that the rest of a body breaks; not those that it breaks only because of a field at fault."""
    needed = [field.name for field in msgspec.structs.fields(kind) if field.required and field.encode_name not in given]
    if not _SUBSTITUTES.keys() >= set(needed):
        return []
    try:
        request = msgspec.json.decode(
            msgspec.json.encode({**{name: _SUBSTITUTES[name] for name in needed}, **given}), type=kind
        )
    except msgspec.MsgspecError:
        return []
    error = _error_of(request, check)
    faults = [] if error is None else _broken_rules(request, check, error)
    return [fault for fault in faults if fault.pointer and pointer(_steps(fault)[0]) not in aside]


def _broken_rules(request: S, check: Callable[[S], object], first: Invalid | Refused) -> list[Fault]:
    found: dict[str, Fault] = {}
    error: Invalid | Refused | None = first
    while error is not None and len(found) < FAULTS_LIMIT:
        faults = error.faults if isinstance(error, Refused) else (fault_of(error),)
        rest: S | None = request
        for fault in faults:
            # If the same part is at fault again, the whole field is removed.
            steps = _steps(fault)[: 1 if fault.pointer in found else None]
            rest = None if rest is None else _without(rest, steps, substitutes={} if fault.pointer in found else _SUBSTITUTES)
            if fault.pointer or not found:  # if everything else was at fault, the rest is not reported
                found.setdefault(fault.pointer, fault)
        if rest is None or rest == request:
            break
        request, error = rest, _error_of(rest, check)
    return list(found.values())


def _error_of(request: S, check: Callable[[S], object]) -> Invalid | Refused | None:
    try:
        check(request)
    except Invalid as error:
        return error
    except Refused as error:
        return error if error.code == "invalid" else None
    return None


def _without(request: S, steps: Sequence[str], substitutes: Mapping[str, Any] = _SUBSTITUTES) -> S | None:
    """The same with the default in that place, or with a value that breaks no rule."""
    field = next((field for field in msgspec.structs.fields(request) if steps and field.encode_name == steps[0]), None)
    if field is None:
        return None
    value = getattr(request, field.name)
    inner: Any = _without(value, steps[1:]) if isinstance(value, msgspec.Struct) and len(steps) > 1 else None
    if inner is None:
        inner = UNSET if isinstance(request, JobEdit) else substitutes.get(field.name, _default(field))
    return None if inner is NODEFAULT else msgspec.structs.replace(request, **{field.name: inner})


def _default(field: Any) -> Any:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


def _steps(fault: Fault) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in fault.pointer.split("/")[1:]]
