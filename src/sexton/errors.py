"""Every error that Sexton raises on purpose. Each says what the caller may do next. `code` is stable and part of the wire
format."""

from __future__ import annotations


class SextonError(Exception):
    """The base class of all errors here."""

    code = "error"
    problem: object | None = None  # the problem document of the API, if the error came from it


class InvalidSubmission(SextonError, ValueError):
    """The submission breaks a rule. Nothing was changed. `field` is a JSON pointer to the fault."""

    code = "invalid_submission"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class AmbiguousCron(UserWarning):
    """A cron line was accepted that other programs read differently; the message shows the readings. Name the `dialect`."""


class KeyReused(SextonError):
    """The idempotency key belongs to a submission with another body: use a new key, or send the first body again."""

    code = "idempotency_key_reused"


class LimitExceeded(SextonError):
    """A tenant has reached a submission limit: `limit` names it, `retry_after_s` says when to try again. Nothing was
    submitted."""

    code = "limit_exceeded"

    def __init__(
        self,
        message: str,
        *,
        limit: str | None = None,
        tenant: str | None = None,
        max: float | None = None,  # noqa: A002  (the name that the API uses)
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.limit, self.tenant, self.max, self.retry_after_s = limit, tenant, max, retry_after_s


class KeyBusy(SextonError):
    """The first submission with this key has not committed yet: try again shortly."""

    code = "idempotency_key_busy"


class UnknownTask(SextonError, LookupError):
    """No task of that name is registered with this app."""

    code = "unknown_task"


class NotFound(SextonError, LookupError):
    """The job, run, execution or dead letter does not exist, or no longer exists."""

    code = "not_found"


class NotAllowedIn(SextonError):
    """The state of the job does not allow this."""

    code = "conflict"

    def __init__(self, action: str, status: str, message: str | None = None) -> None:
        super().__init__(message or f"cannot {action} a job that is {status}")
        self.action = action
        self.status = status


class AlreadyExists(SextonError):
    """A recurring job of that name already exists: choose another name, or ask for an update."""

    code = "already_exists"


class VersionMismatch(SextonError):
    """The job was edited after it was read: read it again, then repeat the edit."""

    code = "version_mismatch"


class LeaseLost(SextonError):
    """Another worker may hold the run now: stop, and discard the result."""

    code = "lease_lost"


class WorkerLost(SextonError):
    """The worker was declared dead, and its runs went to other workers: drop them, and register again."""

    code = "worker_lost"


class JobFailed(SextonError):
    """The awaited job ended without a result. `status` says how, `error` why."""

    code = "job_failed"

    def __init__(self, status: str, error: str | None) -> None:
        super().__init__(f"the job {status}" + (f": {error}" if error else ""))
        self.status = status
        self.error = error


class ResultTimeout(SextonError, TimeoutError):
    """The awaited job has not ended yet. It continues, and can be awaited again."""

    code = "result_timeout"


class DatabaseUnavailable(SextonError):
    """PostgreSQL cannot be reached, or the connection broke. Services retry by themselves."""

    code = "database_unavailable"


class DatabaseDown(DatabaseUnavailable):
    """PostgreSQL, on the only host of the URL, is starting, stopping or not there. So it has ended the sessions of all
    processes, not only of this one."""


class DatabaseRefused(DatabaseUnavailable):
    """PostgreSQL answers, but refuses: the role has no right to it, or a table or function of Sexton is missing. Services wait
    until that is corrected."""

    def __init__(self, refusal: str, fix: str) -> None:
        super().__init__(f"{refusal}; {fix}")
        self.refusal, self.fix = refusal, fix


class ApiUnavailable(SextonError):
    """The HTTP API cannot be reached, or is too busy. It may have done what was sent. A submission is safe to send again."""

    code = "api_unavailable"


class ApiError(SextonError):
    """The HTTP API answered with a problem that has no error class here. `status` is the HTTP status."""

    code = "api_error"

    def __init__(self, message: str, *, status: int, code: str = code) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Contention(SextonError):
    """Another transaction was in the way (deadlock, lock timeout). Nothing was changed, and it is safe to try again.
    `waits_for` says what the other transaction holds, if that is known: `unique`, `limit`, `tenant`, `run` or `table`."""

    code = "contention"

    def __init__(self, message: str, *, waits_for: str | None = None) -> None:
        super().__init__(message)
        self.waits_for = waits_for


class DataRefused(SextonError):
    """PostgreSQL cannot store a value that was sent. Nothing was changed."""

    code = "data_refused"


class SchemaMismatch(SextonError):
    """This version does not know the schema of the database. The message says what to run."""

    code = "schema_mismatch"


class UnsupportedServer(SextonError):
    """This PostgreSQL is older than the oldest version that Sexton supports."""

    code = "unsupported_server"


class ForeignDatabase(SextonError):
    """This database was copied or restored from another one and has not been adopted, so nothing fires from it."""

    code = "foreign_database"


class InvalidSetting(SextonError):
    """A setting is missing or not valid. The message names its variable."""

    code = "invalid_setting"


class EmbeddedUnavailable(SextonError):
    """The embedded PostgreSQL is not installed or could not be started."""

    code = "embedded_unavailable"


class PermanentError(SextonError):
    """Raise it in a handler when another attempt cannot help: the run goes to the dead letters at once."""

    code = "permanent"


class OutboundRefused(PermanentError):
    """The job calls an address that no live worker allows. `outbound_allow` and `outbound_ports` allow more addresses."""

    code = "outbound_refused"


class NotHere(SextonError):
    """This worker lacks a secret or a setting that the job needs. The run goes back, uses no attempt, and waits for a worker
    that has it."""

    code = "not_here"

    def __init__(self, lacks: str, message: str) -> None:
        super().__init__(message)
        self.lacks = lacks  # such as "secret stripe"


class TargetFailed(SextonError):
    """The target of the job did not answer, or its answer was not as expected. The run is tried again."""

    code = "target_failed"


class ArgumentsMismatch(SextonError, TypeError):
    """The payload does not match the arguments of the handler. The run is tried again, because a newer worker may accept
    them."""

    code = "arguments_mismatch"


class RunFailed(SextonError):
    """`ctx.fail(run, "…")` of a batch handler: this attempt of one run has failed, for a reason in words."""

    code = "run_failed"


class RetryLater(SextonError):
    """Raise it in a handler to fail this attempt. The next one starts no sooner than in `delay_s` seconds (`Retry-After`)."""

    code = "retry_later"

    def __init__(self, message: str, *, delay_s: float) -> None:
        super().__init__(message)
        self.delay_s = delay_s


class Snooze(SextonError):
    """Control flow of `ctx.snooze`: postpones the run, and uses no attempt."""

    code = "snoozed"

    def __init__(self, delay_s: float, reason: str | None = None) -> None:
        super().__init__(f"snoozed for {delay_s:g} s")
        self.delay_s = delay_s
        self.reason = reason
