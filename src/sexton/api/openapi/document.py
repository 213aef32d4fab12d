"""The OpenAPI 3.1 document, made from the declared operations and the structs of `sexton.wire`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import metadata
from typing import Any

import msgspec
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler

from sexton.api.answers.problems import KINDS, MEDIA_TYPE
from sexton.wire import Problem

from .description import WORDS_OF_ANSWERS, WORDS_OF_HEADERS, Answer, Body, Operation
from .field_descriptions import explained

_REF = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+):\w+\}")
_IDS = ("job_id", "execution_id", "letter_id", "run_id", "worker_id", "delivery_id")
# The problems that an operation may answer, by what it takes.
_ALWAYS = (500, 503)
_OF_QUERY = (400, 422)
_OF_BODY = (400, 413, 415, 422)
_OF_CHANGE = (403,)
_OF_ID = (404,)
_TAGS = {
    "jobs": "Submit, read, edit, stop and repeat jobs.",
    "schedules": "When a recurring job fires.",
    "executions": "Every attempt of a run, with its output and its outcome.",
    "dead letters": "Jobs that are not tried again by themselves.",
    "fleet": "Workers and schedulers.",
    "remote workers": "The worker protocol for other languages, and for targets of long HTTP jobs that call back.",
    "sharing": "Shares and limits: tenants, queues and limits by key.",
    "subscriptions": "Signed webhooks that report the outcome of runs, their log, and replays.",
    "events": "Transitions, as they happen.",
    "operations": "Health, and this document.",
}
_ABOUT = """\
Errors are problem documents (RFC 9457) with a stable `code`. Each fault in `errors` has a `pointer`: a JSON pointer into the
body, `?name` for a parameter of the query, or the name of a header. Lists are newest first and paged by an opaque cursor; a
page may be short and still have a `next_cursor`. Times are RFC 3339 with an offset; spans are `"90s"`, `"15m"`, `"24h"` or a
number of seconds. Every answer carries `X-Request-Id`; send your own to find it in the log.
"""


def operations_of(app: Litestar) -> Iterable[tuple[str, str, Operation]]:
    """(path, method, operation) of every declared handler."""
    for route in app.routes:
        for handler in getattr(route, "route_handlers", ()):
            if isinstance(handler, HTTPRouteHandler) and (declared := handler.opt.get("operation")) is not None:
                yield declared.documented_path or _PARAMETER.sub(r"{\1}", route.path), declared.method.lower(), declared


def openapi(app: Litestar) -> dict[str, Any]:
    operations = sorted(operations_of(app), key=lambda one: (one[0], one[1]))
    kinds = _kinds(operation for _, _, operation in operations)
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    components = {name: explained(schema) for name, schema in components.items()}
    writer = _Writer(dict(zip(map(id, kinds), schemas, strict=True)), components)
    queries = {operation.query.__name__ for _, _, operation in operations if operation.query is not None}
    paths: dict[str, Any] = {}
    for path, method, operation in operations:
        paths.setdefault(path, {})[method] = writer.operation(path, operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sexton",
            "version": metadata.version("sexton"),
            "summary": "Jobs, on time and once.",
            "description": _ABOUT,
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": words} for name, words in _TAGS.items()],
        "paths": paths,
        "components": {"schemas": {name: writer.plain(schema) for name, schema in components.items() if name not in queries}},
    }


def _kinds(operations: Iterable[Operation]) -> list[Any]:
    """Every struct that is referenced, each once."""
    found: dict[int, Any] = {id(Problem): Problem}
    for operation in operations:
        bodies = [] if operation.body is None else list(operation.body.kinds.values())
        for kind in (operation.query, *bodies, *(kind for answer in operation.answers.values() for kind in _each(answer.kind))):
            if kind is not None and kind is not bytes:
                found[id(kind)] = kind
    return list(found.values())


def _each(kind: Any) -> tuple[Any, ...]:
    return kind if isinstance(kind, tuple) else (kind,)


def _parameter(name: str, place: str, *, required: bool = False, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "required": required, **more}


class _Writer:
    def __init__(self, schemas: dict[int, dict[str, Any]], components: dict[str, Any]) -> None:
        self._schemas, self._components = schemas, components

    def operation(self, path: str, operation: Operation) -> dict[str, Any]:
        described: dict[str, Any] = {"operationId": operation.id, "tags": [operation.tag], "summary": operation.summary}
        if operation.description:
            described["description"] = operation.description
        parameters = [*self._path_parameters(path), *self._query_parameters(operation), *self._header_parameters(operation)]
        if parameters:
            described["parameters"] = parameters
        if operation.body is not None:
            described["requestBody"] = self._body(operation.body)
        described["responses"] = self._answers(operation)
        return described

    def _path_parameters(self, path: str) -> list[dict[str, Any]]:
        return [
            _parameter(
                name,
                "path",
                required=True,
                schema={"type": "string", "format": "uuid"} if name in _IDS else {"type": "string", "minLength": 1},
            )
            for name in re.findall(r"\{(\w+)\}", path)
        ]

    def _query_parameters(self, operation: Operation) -> list[dict[str, Any]]:
        if operation.query is None:
            return []
        schema = self._components[operation.query.__name__]
        return [self._query_parameter(name, inner) for name, inner in schema["properties"].items()]

    def _query_parameter(self, name: str, schema: dict[str, Any]) -> dict[str, Any]:
        schema = self.plain(dict(schema))
        others = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
        if others:
            del schema["anyOf"]
            schema |= others[0] if len(others) == 1 else {"anyOf": others}
        if schema.get("default", ...) is None:
            del schema["default"]
        parameter = _parameter(name, "query", schema=schema)
        if "description" in schema:
            parameter["description"] = schema.pop("description")
        return parameter

    def _header_parameters(self, operation: Operation) -> list[dict[str, Any]]:
        return [
            _parameter(name, "header", description=WORDS_OF_HEADERS[name], schema={"type": "string"})
            for name in operation.headers
        ]

    def _body(self, body: Body) -> dict[str, Any]:
        content: dict[str, Any] = {}
        for media_type, kind in body.kinds.items():
            content[media_type] = {"schema": {"type": "string"} if kind is bytes else self._schema(kind)}
        if body.examples:
            first = next(iter(content.values()))
            first["examples"] = {
                name: {"summary": name.replace("_", " "), "value": value} for name, value in body.examples.items()
            }
        return {"required": body.required, "content": content}

    def _answers(self, operation: Operation) -> dict[str, Any]:
        described = {str(status): self._answer(answer) for status, answer in operation.answers.items()}
        of_query = _OF_QUERY if operation.query is not None else ()
        of_body = _OF_BODY if operation.body is not None else ()
        of_id = _OF_ID if any(f"{{{name}:" in operation.path for name in _IDS) else ()
        of_change = _OF_CHANGE if operation.method != "GET" else ()
        for status in sorted({*operation.problems, *_ALWAYS, *of_query, *of_body, *of_change, *of_id}):
            described.setdefault(str(status), self._problem(status))
        return described

    def _answer(self, answer: Answer) -> dict[str, Any]:
        headers: dict[str, Any] = {"X-Request-Id": {"schema": {"type": "string"}}}
        headers |= {name: {"description": WORDS_OF_ANSWERS[name], "schema": {"type": "string"}} for name in answer.headers}
        described: dict[str, Any] = {"description": answer.description, "headers": headers}
        if answer.kind is not None:
            schema = {"type": "string"} if answer.kind is bytes else self._schema(answer.kind)
            described["content"] = {answer.media_type: {"schema": schema}}
            if answer.example is not None:
                described["content"][answer.media_type]["example"] = answer.example
        return described

    def _problem(self, status: int) -> dict[str, Any]:
        meant = [(code, kind.title) for code, kind in KINDS.items() if kind.status == status]
        return {
            "description": "; ".join(f"{title} (`{code}`)" for code, title in meant),
            "content": {MEDIA_TYPE: {"schema": self._schema(Problem)}},
        }

    def _schema(self, kind: Any) -> dict[str, Any]:
        if isinstance(kind, tuple):
            return {"anyOf": [self._schema(one) for one in kind]}
        schema: dict[str, Any] = self.plain(self._schemas[id(kind)])
        return schema

    def plain(self, value: Any) -> Any:
        """Defaults of raw JSON are our own objects; a document needs plain values."""
        if isinstance(value, dict):
            return {name: self.plain(inner) for name, inner in value.items() if not isinstance(inner, msgspec.Raw)}
        if isinstance(value, list | tuple):
            return [self.plain(inner) for inner in value]
        return value
