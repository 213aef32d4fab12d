"""Tasks: decoration, binding of arguments, and what a type checker sees (A1). Nothing here touches a database."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from sexton import App, Context, InvalidSubmission, Retry, Unique
from sexton.client.options import RESERVED
from sexton.domain.job import Policy, submission
from sexton.domain.job_options import POLICIES

app = App()


@app.task
async def plain(ctx: Context, user_id: int, lang: str = "en") -> str:
    """Sends something."""
    return f"{user_id} {lang}"


@app.task(name="billing.charge", queue="money", priority="high", retry=Retry.never(), max_lost=7, timeout="5s")
def charge(ctx: Context, amount: float, *, currency: str) -> None: ...


@app.task
def anything(ctx: Context, /, **facts: Any) -> None: ...


def payload(request: Any) -> bytes:
    return bytes(request.submission.payload)


def test_a_task_has_the_name_of_its_function_or_a_given_one() -> None:
    """A1."""
    assert app.registry.names == ["anything", "billing.charge", "plain"]
    definition = app.registry.get("billing.charge")
    assert definition is not None
    assert (definition.module, definition.qualname) == (__name__, "charge")
    assert definition.fn is charge.fn
    assert definition.options == {
        "queue": "money",
        "lane": 1,
        "timeout_s": 5.0,
        "policy": {"retry": {"max_attempts": 1}, "max_lost": 7},
    }
    assert plain.__doc__ == "Sends something."


async def test_calling_a_task_calls_its_function() -> None:
    """A1, E10."""
    assert await plain(SimpleNamespace(), 5, lang="de") == "5 de"


def test_arguments_become_a_payload_by_name() -> None:
    """A1."""
    assert payload(plain.request(1)) == b'{"user_id":1}'
    assert payload(plain.request(user_id=1, lang="fr")) == b'{"user_id":1,"lang":"fr"}'
    assert payload(anything.request(a=1, b=None)) == b'{"a":1,"b":null}'


@pytest.mark.parametrize(
    ("call", "field", "words"),
    [
        (lambda: plain.request(user=1), "/payload/user", "has no such argument; it takes user_id, lang"),  # type: ignore[call-overload]
        (lambda: plain.request(lang="en"), "/payload/user_id", "needs this argument"),  # type: ignore[call-overload]
        (lambda: plain.request(1, user_id=2), "/payload/user_id", "given twice"),  # type: ignore[call-overload]
        (lambda: plain.request(1, "en", 3), "/payload", "takes 2 positional arguments after its context, but 3 were given"),  # type: ignore[call-overload]
        (lambda: charge.request(1.0, "EUR"), "/payload", "takes 1 positional arguments"),  # type: ignore[call-overload]
        (lambda: anything.request(x=object()), "/payload", "cannot be written as JSON"),
        (lambda: anything.request(x=float("nan")), "/payload/x", "has no JSON form"),
        (lambda: plain.request(1, delay="soon"), "/delay", "is not a duration"),
        (lambda: plain.request(1, delay=1, run_at=datetime.now(UTC)), "/delay", "not both"),
        (lambda: plain.request(1, run_at="2030-01-01"), "/run_at", "is not a datetime"),  # type: ignore[call-overload]
        (lambda: plain.request(1, retry="never"), "/retry", "is not a Retry"),  # type: ignore[call-overload]
        (lambda: plain.request(1, tags=["ok", ""]), "/tags/1", "non-empty"),
        (lambda: app.request("plain", {"x~/y": 1}), "/payload/x~0~1y", "has no such argument"),
        (lambda: app.request("plain", [1]), "/payload", "takes arguments by name"),
        (lambda: app.request(""), "/task", "non-empty"),
    ],
)
def test_an_invalid_submission_names_the_fault(call: Callable[[], object], field: str, words: str) -> None:
    """F2, A1."""
    with pytest.raises(InvalidSubmission, match=words) as caught:
        call()
    assert caught.value.field == field


def test_a_function_that_could_not_be_submitted_is_rejected_when_decorated() -> None:
    """F2."""

    def clashing(ctx: Context, delay: int) -> None: ...

    def starred(ctx: Context, *numbers: int) -> None: ...

    def bare() -> None: ...

    with pytest.raises(TypeError, match="parameter 'delay' has the name of a submission option"):
        App().task(clashing)
    with pytest.raises(TypeError, match=r"\*numbers: 'int' has no name that a payload could use"):
        App().task(starred)
    with pytest.raises(TypeError, match="first parameter of a task must be its context"):
        App().task(bare)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="another process cannot import it"):
        App().task(process=True)(lambda ctx: None)
    with pytest.raises(InvalidSubmission, match="/timeout"):
        App().task(timeout="long")(lambda ctx: None)
    with pytest.raises(ValueError, match="defined twice"):
        app.task(name="plain")(lambda ctx: None)


def test_a_request_without_options_gives_the_same_job_by_a_shorter_path() -> None:
    """A11."""
    assert plain.request(1) == plain.options().request(1)
    assert plain.request(1, lang="de") == plain.options().request(1, lang="de")
    assert charge.request(2.5, currency="EUR") == charge.options().request(2.5, currency="EUR")
    assert charge.request(2.5, currency="EUR").queue == "money"
    with pytest.raises(InvalidSubmission, match="NUL"):
        plain.request("a\x00b")  # type: ignore[call-overload]


def test_every_option_of_a_submission_is_an_option_here() -> None:
    """A1: one list, in the domain, and none missing."""
    parameters = inspect.signature(submission).parameters.values()
    assert {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} | {"connection", *POLICIES} == RESERVED


def test_the_options_of_a_job_override_those_of_its_task_field_by_field() -> None:
    """A1."""
    document = charge.request(1.0, currency="EUR", deadline="1h", priority="low").submission
    assert (document.queue, document.lane, document.timeout_s) == ("money", 3, 5.0)
    assert document.policy == Policy(retry=Retry.never(), max_lost=7, deadline_s=3600.0)
    assert charge.request(1.0, currency="EUR", retry=Retry()).submission.policy == Policy(max_lost=7)


def test_an_option_does_not_change_the_others() -> None:
    """A1: a policy is merged with the one registered for the task; it must contain only the fields that the caller set."""
    assert b'"policy":{"deadline_s":60.0}' in _encoded(app.request("elsewhere", deadline="1m"))
    assert b'"policy":{"retry":{}}' in _encoded(app.request("elsewhere", retry=Retry()))
    assert b"policy" not in _encoded(app.request("elsewhere", key=None, deadline=None))


def test_the_fingerprint_is_of_the_callers_arguments() -> None:
    """A10: a release that changes a decorator does not turn the retry of a submission into a conflict."""
    other = App()
    later = other.task(name="plain", queue="elsewhere", retry=Retry.never())(plain.fn)
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC)

    def print_of(request: Any) -> str:
        assert request.submission.fingerprint is not None
        return str(request.submission.fingerprint)

    first = print_of(plain.request(user_id=1, lang="en", key="k"))
    assert first == print_of(later.request(user_id=1, lang="en", key="k"))
    assert first == print_of(plain.request(1, key="other", lang="en", key_ttl="1h", trace="t", submitted_by="me"))
    assert first != print_of(plain.request(user_id=2, lang="en", key="k"))
    assert first != print_of(plain.request(user_id=1, lang="en", key="k", queue="elsewhere"))
    assert print_of(plain.request(1, key="k", delay="1h")) == print_of(plain.request(1, key="k", delay=3600))
    assert print_of(plain.request(1, key="k", run_at=noon)) == print_of(
        plain.request(1, key="k", run_at=noon.astimezone(timezone(timedelta(hours=2))))
    )
    assert plain.request(1).submission.fingerprint is None


def test_a_type_checker_sees_the_arguments() -> None:
    """mypy checks this file and reports unused ignores as errors, so each ignore proves an error at that line."""
    with pytest.raises(InvalidSubmission):
        plain.request("not a number", languish="en")  # type: ignore[call-overload]
    with pytest.raises(InvalidSubmission):
        plain.options(key="k").request()  # type: ignore[call-arg]
    with pytest.raises(InvalidSubmission):
        plain.options(delay=["1h"]).request(1)  # type: ignore[arg-type]
    plain.options(delay="1h", unique=Unique.of("payload.user_id")).request(1, lang="en")
    plain.request(user_id=1, delay="1h", key="k")
    charge.request(1.0, currency="EUR")


def test_a_request_has_no_connection_yet() -> None:
    """F2."""
    with pytest.raises(TypeError, match="pass the connection to submit_many"):
        plain.request(1, connection=object())


def _encoded(request: Any) -> bytes:
    return msgspec.json.encode(request.submission)
