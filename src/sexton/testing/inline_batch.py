"""One inline call of a batch task."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import msgspec

from sexton.domain.batch import run_arguments
from sexton.errors import PermanentError
from sexton.handlers.context import Call, Context
from sexton.handlers.python.batch.context import BatchContext, Run
from sexton.handlers.python.batch.shared_call import results_of
from sexton.registry import Definition


async def run_batch(definition: Definition, calls: Sequence[Call]) -> list[Any]:
    """The result of each run, in order. The first error that a run ends with is raised, after the call has ended."""
    arguments = run_arguments(definition.fn)
    results: dict[int, Any] = {}
    errors: list[BaseException] = []
    undecided = set(range(len(calls)))

    def decide(index: int, result: Any, error: BaseException | None) -> bool:
        if index not in undecided:
            return False
        undecided.discard(index)
        results[index] = result
        if error is not None:
            errors.append(error)
        return True

    try:
        runs = [Run(Context(call), arguments.read(call.arguments), index) for index, call in enumerate(calls)]
    except msgspec.ValidationError as error:
        raise PermanentError(f"payload: {error}") from None
    answer = definition.fn(BatchContext(definition.name, runs, decide, undecided.__contains__), runs)
    if inspect.isawaitable(answer):
        answer = await answer
    returned = results_of(answer, len(calls))
    if errors:
        raise errors[0]
    return [results.get(index, returned[index]) for index in range(len(calls))]
