"""C2: jobs over HTTP that call a target: the handler is returned as submitted, and errors are named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.support import Api, problem

HTTP = {
    "type": "http",
    "url": "https://billing.example/send",
    "method": "PUT",
    "headers": {"X-Team": "billing", "Authorization": {"secret": "billing", "prefix": "Bearer "}},
    "signed_with": ["billing-hooks"],
}
GRPC = {"type": "grpc", "address": "billing.example:443", "method": "billing.Invoices/Send"}
SCRIPT = {"type": "script", "name": "backup"}


@pytest.mark.parametrize("when", [{}, {"cron": "0 9 * * *"}])
@pytest.mark.parametrize("handler", [HTTP, GRPC, SCRIPT], ids=lambda handler: str(handler["type"]))
async def test_a_handler_is_returned_as_submitted(api: Api, handler: dict[str, Any], when: dict[str, Any]) -> None:
    submitted = await api.http.post("/v1/jobs", json={"handler": handler, "payload": [1, "two"], **when})
    assert submitted.status_code == 201, submitted.text
    shown = (await api.http.get(submitted.headers["location"])).json()
    assert {name: shown["handler"][name] for name in handler} == handler
    assert shown["payload"] == [1, "two"]
    assert "no live worker knows" in submitted.json()["warnings"][0]


@pytest.mark.parametrize("when", [{}, {"cron": "0 9 * * *"}])
async def test_an_edit_of_another_field_keeps_the_handler(api: Api, when: dict[str, Any]) -> None:
    location = (await api.http.post("/v1/jobs", json={"handler": HTTP, **when})).headers["location"]
    edited = await api.http.patch(location, json={"timeout": "5m"})
    assert edited.status_code == 200, edited.text
    assert edited.json()["handler"]["url"] == HTTP["url"]


@pytest.mark.parametrize("when", [{}, {"cron": "0 9 * * *"}])
async def test_the_target_may_change_but_not_the_kind_of_handler(api: Api, when: dict[str, Any]) -> None:
    """A7: workers claim by the kind of handler."""
    location = (await api.http.post("/v1/jobs", json={"handler": HTTP, **when})).headers["location"]
    moved = await api.http.patch(location, json={"handler": {**HTTP, "url": "https://billing.example/v2/send"}})
    assert (moved.status_code, moved.json()["handler"]["url"]) == (200, "https://billing.example/v2/send")
    for other in (GRPC, SCRIPT, "send_invoice"):
        problem(await api.http.patch(location, json={"handler": other}), 422, "invalid", "/handler")
    assert (await api.http.get(location)).json()["handler"] == moved.json()["handler"]


@pytest.mark.parametrize("when", [{}, {"cron": "0 9 * * *"}])
async def test_a_python_task_stays_a_python_task(api: Api, when: dict[str, Any]) -> None:
    location = (await api.http.post("/v1/jobs", json={"handler": "send_invoice", **when})).headers["location"]
    for other in (HTTP, "other_task"):
        problem(await api.http.patch(location, json={"handler": other}), 422, "invalid", "/handler")


@pytest.mark.parametrize(
    ("handler", "pointer"),
    [
        ({"type": "http"}, "/handler/url"),
        ({**HTTP, "timeout": 5}, "/handler/timeout"),
        ({**HTTP, "redirects": -1}, "/handler/redirects"),
        ({**HTTP, "connect_timeout": "soon"}, "/handler/connect_timeout"),
        ({"type": "smtp"}, "/handler/type"),
        ({"type": "script", "name": ""}, "/handler/name"),
        ({"type": "script", "name": "../backup"}, "/handler/name"),
        ({**GRPC, "address": "unix:/run/docker.sock"}, "/handler/address"),
        ({**GRPC, "method": "Send"}, "/handler/method"),
        ({**GRPC, "metadata": {"grpc-timeout": "1S"}}, "/handler/metadata/grpc-timeout"),
        ({**GRPC, "metadata": {"x-key": {"secret": "../passwd"}}}, "/handler/metadata/x-key"),
        ("sexton.http", "/handler"),
    ],
)
async def test_each_fault_of_a_handler_is_named(api: Api, handler: Any, pointer: str) -> None:
    problem(await api.http.post("/v1/jobs", json={"handler": handler}), 422, "invalid", pointer)
