"""`ctx.transaction()`: the handler's own writes and the end of its run commit together, so the effect happens exactly once,
even if the worker dies. The end of the run is the last statement; if the lease was lost meanwhile, everything rolls back."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from sexton.clock import Clock
from sexton.domain.outcome import Succeeded
from sexton.domain.run import Report, report
from sexton.errors import LeaseLost
from sexton.handlers.context import live_output_of
from sexton.ids import Rng
from sexton.store.database import Database
from sexton.store.postgres import caller_connection
from sexton.store.work import runs

from .execution import Execution, encoded_result


class Transaction:
    """`async with` uses Sexton's pool or the caller's async connection, `with` the caller's sync connection.

    If the caller has already started a transaction on its connection, the caller also commits: the run ends with that commit,
    and does not end if the caller rolls back.
    """

    def __init__(self, database: Database, execution: Execution, connection: object | None, *, clock: Clock, rng: Rng) -> None:
        self._database, self._execution, self._connection = database, execution, connection
        self._clock, self._rng = clock, rng
        self._own: AbstractAsyncContextManager[Any] | None = None
        self._entered: Any = None
        self.result: object = None  # stored with the execution, like a return value

    async def __aenter__(self) -> Any:
        if self._connection is None:
            self._own = self._database.transaction()
            self._entered = await self._own.__aenter__()
        else:
            self._entered = self._connection
        return getattr(self._entered, "raw", self._entered)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> bool | None:
        if error is None:
            self._execution.ending = True
            try:
                await self._finish()
            except BaseException as failure:
                self._execution.ending = False
                if self._own is not None:
                    await self._own.__aexit__(type(failure), failure, failure.__traceback__)
                raise
        return None if self._own is None else await self._own.__aexit__(kind, error, traceback)

    def __enter__(self) -> Any:
        if self._connection is None:
            raise TypeError(
                "ctx.transaction() in a sync function needs your own connection: with ctx.transaction(connection): …"
            )
        return self._connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        if error is None:
            self._execution.ending = True
            try:
                query, arguments = runs.finish_statement([self._report()], now=self._clock.database_now())
                self._check(caller_connection.run_sync(self._connection, query, *arguments))
            except BaseException:
                self._execution.ending = False
                raise

    async def _finish(self) -> None:
        outcome = self._report()
        if self._own is not None:
            self._check(await runs.finish(self._entered, [outcome], now=self._clock.database_now()))
        else:
            query, arguments = runs.finish_statement([outcome], now=self._clock.database_now())
            self._check(await caller_connection.run(self._connection, query, *arguments))

    def _report(self) -> Report:
        execution = self._execution
        started_at = execution.started_at if execution.started_at is not None else execution.taken_at
        live = None if execution.context is None else live_output_of(execution.context)
        return report(
            execution.claimed.lease,
            Succeeded(self.result),
            self._rng,
            started_s=started_at - execution.taken_at,
            took_s=self._clock.monotonic() - started_at,
            result=None if self.result is None else encoded_result(self.result),
            progress=None if live is None else live.progress_json,
            output=None if live is None else live.output,
            key=execution.claimed.idempotency_key,
        )

    def _check(self, finished: list[Any]) -> None:
        if not finished:
            raise LeaseLost("the lease of this run was lost; the transaction is rolled back")
