"""Every error Sexton raises on purpose. Each says what the caller may do next; `code` is stable and goes over the wire."""

from __future__ import annotations


class SextonError(Exception):
    """Root of all of them."""

    code = "error"
    problem: object | None = None  # the API's own document, if that is where the error came from


class InvalidSubmission(SextonError, ValueError):
    """The submission breaks a rule; nothing was changed. `field` is a JSON pointer to the fault."""

    code = "invalid_submission"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class KeyReused(SextonError):
    """The idempotency key belongs to a submission with another body: use a new key, or send the first body again."""

    code = "idempotency_key_reused"


class LimitExceeded(SextonError):
    """A tenant has submitted more than it may: `limit` says which of its limits, `retry_after_s` when to try again. Nothing was
    submitted."""

    code = "limit_exceeded"

    def __init__(
        self,
        message: str,
        *,
        limit: str | None = None,
        tenant: str | None = None,
        max: float | None = None,  # noqa: A002  (as the API spells it)
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
    """There is no such job, run, execution or dead letter (any more)."""

    code = "not_found"


class NotAllowedIn(SextonError):
    """The job is in a state that forbids this."""

    code = "conflict"

    def __init__(self, action: str, status: str, message: str | None = None) -> None:
        super().__init__(message or f"cannot {action} a job that is {status}")
        self.action = action
        self.status = status


class AlreadyExists(SextonError):
    """There is a recurring job of that name: give another name, or ask for it to be updated."""

    code = "already_exists"


class VersionMismatch(SextonError):
    """The job has been edited since it was read: read it again, and decide anew."""

    code = "version_mismatch"


class LeaseLost(SextonError):
    """Another worker may hold the run by now: stop, and let the result go."""

    code = "lease_lost"


class WorkerLost(SextonError):
    """The worker was declared dead, and others have what it held: drop that, and join anew."""

    code = "worker_lost"


class JobFailed(SextonError):
    """The awaited job ended without a result. `status` says how, `error` why."""

    code = "job_failed"

    def __init__(self, status: str, error: str | None) -> None:
        super().__init__(f"the job {status}" + (f": {error}" if error else ""))
        self.status = status
        self.error = error


class ResultTimeout(SextonError, TimeoutError):
    """The awaited job has not ended yet; it goes on, and may be awaited again."""

    code = "result_timeout"


class DatabaseUnavailable(SextonError):
    """PostgreSQL cannot be reached or broke off; services retry by themselves."""

    code = "database_unavailable"


class ApiUnavailable(SextonError):
    """The HTTP API cannot be reached, or is too busy. What was sent may have been done; a submission may be sent again."""

    code = "api_unavailable"


class ApiError(SextonError):
    """The HTTP API answered with a problem that has no error of its own here. `status` is HTTP's."""

    code = "api_error"

    def __init__(self, message: str, *, status: int, code: str = code) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Contention(SextonError):
    """Another transaction was in the way (deadlock, lock timeout); nothing was changed, and trying again is safe."""

    code = "contention"


class DataRefused(SextonError):
    """PostgreSQL cannot keep a value that was sent; nothing was changed."""

    code = "data_refused"


class SchemaMismatch(SextonError):
    """The database's schema is not the one this version knows. The message says what to run."""

    code = "schema_mismatch"


class UnsupportedServer(SextonError):
    """This PostgreSQL is older than Sexton can work with."""

    code = "unsupported_server"


class ForeignDatabase(SextonError):
    """This database was copied or restored from elsewhere and has not been adopted, so nothing fires from it."""

    code = "foreign_database"


class InvalidSetting(SextonError):
    """A setting is missing or cannot be used; the message names its variable."""

    code = "invalid_setting"


class EmbeddedUnavailable(SextonError):
    """The embedded PostgreSQL is not installed or could not be started."""

    code = "embedded_unavailable"


class PermanentError(SextonError):
    """Raise it in a handler when another attempt cannot help: the run goes to the dead letters at once."""

    code = "permanent"


class OutboundRefused(PermanentError):
    """The job calls an address that this worker does not let jobs call. `outbound_allow` and `outbound_ports` open what they
    name."""

    code = "outbound_refused"


class TargetFailed(SextonError):
    """What the job calls did not answer, or not as it should have. The run is tried again."""

    code = "target_failed"


class ArgumentsMismatch(SextonError, TypeError):
    """The payload does not fit the handler's arguments. The run is tried again: a newer worker may know them."""

    code = "arguments_mismatch"


class RetryLater(SextonError):
    """Raise it in a handler to fail this attempt and be tried again no sooner than `delay_s` from now (`Retry-After`)."""

    code = "retry_later"

    def __init__(self, message: str, *, delay_s: float) -> None:
        super().__init__(message)
        self.delay_s = delay_s


class Snooze(SextonError):
    """Control flow of `ctx.snooze`: put the run back for later, spending no attempt."""

    code = "snoozed"

    def __init__(self, delay_s: float, reason: str | None = None) -> None:
        super().__init__(f"snoozed for {delay_s:g} s")
        self.delay_s = delay_s
        self.reason = reason


class HandedOver(SextonError):
    """Control flow of a handler whose work goes on elsewhere (an HTTP target that answered 202): the run leaves this worker,
    and whoever was given its lease ends it over HTTP."""

    code = "handed_over"

    def __init__(self) -> None:
        super().__init__("handed over: whoever was called ends the run by calling back")
