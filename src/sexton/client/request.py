"""One job to be submitted: the caller's options override the decorator's. All are checked before anything is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import msgspec

from sexton.domain.fault import Invalid
from sexton.domain.job import Submission, Unique, encoded_payload, submission
from sexton.domain.retry import Retry
from sexton.domain.targets import Target

from .error_translation import submission_faults
from .job_options import TaskOptions
from .options import Options

DEFAULT_QUEUE = "default"
_TYPES: Mapping[str, tuple[type, ...]] = {"retry": (Retry,), "run_at": (datetime,), "unique": (Unique, bool)}
# The submitter, the trace and the key do not make it a different submission.
_BESIDE_THE_BODY = ("key", "key_ttl", "submitted_by", "trace")


class Request(NamedTuple):
    """Made by `task.request(…)` or `app.request(…)`, taken by `app.submit_many`."""

    submission: Submission
    queue: str | None  # the queue of its run; `None` if only the task's code knows it


class Template:
    """What all jobs of a task have in common."""

    def __init__(self, task: str | Target, options: TaskOptions, *, queue: str | None) -> None:
        self._called = task
        self._options = given_options(options)
        with submission_faults():
            self.submission = _document(task, {}, self._options)
        self._queue = self.submission.queue or queue
        self.task = self.submission.task

    @classmethod
    def of_unknown(cls, task: str | Target) -> Template:
        """For a task that is defined in another program: the database adds the options that its workers registered."""
        return cls(task, {}, queue=None)

    def job(self, payload: Any, options: Mapping[str, Any]) -> Submission:
        """The job, without its time."""
        with submission_faults():
            return _document(self._called, payload, {**self._options, **given_options(options)})

    def plain_request(self, payload: Any) -> Request:
        """Without any option, as in most bulk submissions: 2 µs instead of 7."""
        with submission_faults():
            return Request(msgspec.structs.replace(self.submission, payload=encoded_payload(payload)), self._queue)

    def request(self, payload: Any, options: Options) -> Request:
        given = given_options(options)
        if not given:
            return self.plain_request(payload)
        with submission_faults():
            document = _document(self._called, payload, {**self._options, **given})
            if document.key is not None:
                document = msgspec.structs.replace(document, fingerprint=_fingerprint(self._called, payload, given))
        return Request(document, document.queue or self._queue)


def given_options(options: Mapping[str, Any] | TaskOptions | Options) -> dict[str, Any]:
    return {name: value for name, value in cast(Mapping[str, Any], options).items() if value is not None}


def _document(task: str | Target, payload: Any, options: Mapping[str, Any]) -> Submission:
    for name, types in _TYPES.items():
        if name in options and not isinstance(options[name], types):
            raise Invalid(name, f"{options[name]!r} is not a {' or '.join(kind.__name__ for kind in types)}")
    return submission(task, payload, **options)


def _fingerprint(task: str | Target, payload: Any, given: Mapping[str, Any]) -> str:
    """Two submissions with one key are the same if the caller passed the same values. The decorator's options do not count: a
    release that changes them would turn the retry of a submission into a conflict."""
    body = _document(task, None, {name: value for name, value in given.items() if name not in _BESIDE_THE_BODY})
    if body.run_at is not None:
        body = msgspec.structs.replace(body, run_at=body.run_at.astimezone(UTC))
    return hashlib.sha256(msgspec.json.encode([body, payload], order="deterministic")).hexdigest()
