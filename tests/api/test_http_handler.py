"""C2, F3: an invalid HTTP call is a 422 that names the field, before anything is written."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.support import Api, problem

GOOD = {"type": "http", "url": "https://billing.example/send"}


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"url": "billing.example/send"}, "/handler/url"),
        ({"url": "file:///etc/passwd"}, "/handler/url"),
        ({"url": "https://user:password@billing.example/"}, "/handler/url"),
        ({"url": "https://billing.example/\r\nX: y"}, "/handler/url"),
        ({"method": "TRACE"}, "/handler/method"),
        ({"headers": {"X-A": "1\r\nX-B: 2"}}, "/handler/headers/X-A"),
        ({"headers": {"Host": "elsewhere"}}, "/handler/headers/Host"),
        ({"headers": {"Authorization": {"secret": "../etc/passwd"}}}, "/handler/headers/Authorization"),
        ({"succeeds_on": ["fine"]}, "/handler/succeeds_on"),
        ({"connect_timeout": "10m"}, "/handler/connect_timeout"),
        ({"signed_with": ["Not A Name"]}, "/handler/signed_with"),
    ],
)
@pytest.mark.parametrize("when", [{}, {"cron": "0 9 * * *"}], ids=["once", "recurring"])
async def test_each_fault_is_named(api: Api, change: dict[str, Any], pointer: str, when: dict[str, Any]) -> None:
    answer = await api.http.post("/v1/jobs", json={"handler": {**GOOD, **change}, **when})
    problem(answer, 422, "invalid", pointer)


async def test_a_method_may_be_in_lower_case(api: Api) -> None:
    submitted = await api.http.post("/v1/jobs", json={"handler": {**GOOD, "method": "put"}})
    assert submitted.status_code == 201
    shown = (await api.http.get(submitted.headers["location"])).json()
    assert shown["handler"]["method"] == "PUT"


async def test_the_worker_checks_where_the_url_leads(api: Api) -> None:
    """Workers allow different targets; the API does not have their lists."""
    assert (await api.http.post("/v1/jobs", json={"handler": {**GOOD, "url": "http://127.0.0.1/"}})).status_code == 201
