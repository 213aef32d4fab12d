"""Commands of a worker's allow-list: the handler of each, the input of a script, and the meaning of its exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from typing import Any

import msgspec

from sexton.domain.fault import Invalid
from sexton.domain.targets import SCRIPT_TASK, SecretRef
from sexton.domain.targets.command import Command
from sexton.errors import PermanentError, RetryLater, SextonError
from sexton.handlers.context import Call, Context, Stopped
from sexton.handlers.handle import Handle, Handler
from sexton.handlers.process_handle import ProcessHandle
from sexton.handlers.python.process_pool import how_it_ended
from sexton.handlers.redaction import to_hide

from .output import Listener
from .process import OUTPUT_GRACE_S, Order, ScriptProcess

Reveal = Callable[[SecretRef], str]

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LAST_WORDS_LIMIT = 300


class ScriptFailed(SextonError):
    """The script ended with a code that means failure, or was killed."""

    code = "script_failed"


def scripts(commands: Mapping[str, Command], reveal: Reveal) -> dict[str, Handler]:
    """The tasks that a worker with this allow-list knows. `reveal` returns the value of a secret."""
    return {SCRIPT_TASK + name: Script(name, command, reveal) for name, command in commands.items()}


class Script:
    __slots__ = ("_command", "_name", "_reveal")

    def __init__(self, name: str, command: Command, reveal: Reveal) -> None:
        self._name = name
        self._command = command
        self._reveal = reveal

    def start(self, call: Call, context: Context) -> Handle:
        payload = (call.payload_json or "null").encode()
        refs = {name: ref for name, ref in self._command.environment.items() if isinstance(ref, SecretRef)}
        secrets = {name: self._reveal(ref) for name, ref in refs.items()}
        order = self._order(call, context, msgspec.json.decode(payload), secrets)
        redacted = to_hide(secrets[name].removeprefix(ref.prefix) for name, ref in refs.items())
        return ScriptHandle(self, order, payload, context, redacted)

    def failure(self, code: int, last_words: str) -> SextonError:
        """What an exit code other than 0 means."""
        message = f"{self._name} {how_it_ended(code)}" + (f": {last_words[:LAST_WORDS_LIMIT]}" if last_words else "")
        if code in self._command.retry_codes:
            return RetryLater(message, delay_s=self._command.retry_after_s)
        return PermanentError(message) if self._command.is_permanent(code) else ScriptFailed(message)

    def _order(self, call: Call, context: Context, payload: Any, secrets: dict[str, str]) -> Order:
        command = self._command
        try:
            argv = command.filled(payload)
        except Invalid as fault:
            raise PermanentError(str(fault)) from None
        limits = {
            "memory_mib": command.memory_mib,
            "cpu_s": command.cpu_s,
            "files": command.files,
            "processes": command.processes,
        }
        return Order(
            argv=argv,
            environment=self._environment(call, context, secrets),
            directory=command.directory,
            user=command.user,
            group=command.group,
            limits={name: limit for name, limit in limits.items() if limit is not None},
        )

    def _environment(self, call: Call, context: Context, secrets: dict[str, str]) -> dict[str, str]:
        """Contains no variable of the worker: its environment contains the database password."""
        plain = {name: value for name, value in self._command.environment.items() if isinstance(value, str)}
        own = {
            "SEXTON_JOB_ID": str(call.job_id),
            "SEXTON_RUN_ID": str(call.run_id),
            "SEXTON_ATTEMPT": str(call.attempt),
            "SEXTON_SCHEDULED_FOR": call.fire_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
            "SEXTON_IDEMPOTENCY_KEY": context.idempotency_key,
        }
        trace = {} if call.trace is None else {"TRACEPARENT": call.trace}
        return {"PATH": PATH, "LANG": "C.UTF-8", **plain, **secrets, **own, **trace}


class ScriptHandle(ProcessHandle[ScriptProcess]):
    __slots__ = ("_errors", "_output", "_script")

    killed = "its processes were killed"

    def __init__(self, script: Script, order: Order, payload: bytes, context: Context, secrets: Sequence[str]) -> None:
        self._script = script
        self._output, self._errors = Listener(context.log, secrets), Listener(context.log, secrets)
        super().__init__(context, self._run(order, payload))

    async def _run(self, order: Order, payload: bytes) -> None:
        try:
            if not self.done.done():
                self._process = await ScriptProcess.spawn(payload, self._output, self._errors)
                if self.done.done():  # stopped meanwhile
                    self._process.force_stop()
                await self._settle(await self._process.run(order))
        except (Exception, Stopped) as error:
            self._fail(error)
        finally:
            self._process = None
            self._output.close()
            self._errors.close()
            self.done.cancel()  # has an effect only while the loop is closing

    async def _settle(self, code: int) -> None:
        await asyncio.wait([self._output.closed, self._errors.closed], timeout=OUTPUT_GRACE_S)
        if code == 0:
            self._succeed(self._output.result())
        elif self._context.cancelled:  # its exit code says nothing about the job then
            self._fail(Stopped("it stopped when asked"))
        else:
            self._fail(self._script.failure(code, self._errors.last_words()))

    def _fail(self, error: BaseException) -> None:
        # A traceback of this module does not help the user.
        super()._fail(error.with_traceback(None) if isinstance(error, SextonError) else error)
