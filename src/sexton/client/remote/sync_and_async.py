"""One implementation for both clients. An operation is written once, as a coroutine, and a descriptor gives it the type that
each client needs. `AsyncClient` has the coroutine unchanged. On `Client` the same coroutine runs to its end inside the call:
what it awaits there (`client.py`) blocks instead of suspending, so it needs no event loop."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from .call import Call, Pages

P = ParamSpec("P")
T = TypeVar("T")


class Blocking:
    """Its operations return when they are done."""

    __slots__ = ()


class Awaited:
    """Its operations are awaited."""

    __slots__ = ()


class _TwoFaced:
    """Chooses the function for the class of the client."""

    _blocking: Callable[..., Any]
    _awaited: Callable[..., Any]

    def _of(self, obj: object, owner: type) -> Callable[..., Any]:
        function = self._blocking if issubclass(owner, Blocking) else self._awaited
        bound: Callable[..., Any] = function.__get__(obj, owner)
        return bound


class Operation(_TwoFaced, Generic[P, T]):
    """An operation with one result."""

    def __init__(self, awaited: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        @wraps(awaited)
        def blocking(face: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return finished(awaited(face, *args, **kwargs))

        self._awaited, self._blocking = awaited, blocking

    @overload
    def __get__(self, obj: None, owner: type[Blocking]) -> Callable[Concatenate[Any, P], T]: ...
    @overload
    def __get__(self, obj: None, owner: type[Awaited]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, obj: Blocking, owner: type[Blocking]) -> Callable[P, T]: ...
    @overload
    def __get__(self, obj: Awaited, owner: type[Awaited]) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, obj: object, owner: type) -> Callable[..., Any]:
        return self._of(obj, owner)


class Stream(_TwoFaced, Generic[P, T]):
    """An operation with many results, one by one."""

    def __init__(self, awaited: Callable[Concatenate[Any, P], AsyncGenerator[T, None]]) -> None:
        def blocking(face: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
            return _stepped(awaited(face, *args, **kwargs))

        self._awaited, self._blocking = awaited, _signed(blocking, awaited, f"Iterator[{_inner(awaited)}]")

    @overload
    def __get__(self, obj: None, owner: type[Blocking]) -> Callable[Concatenate[Any, P], Iterator[T]]: ...
    @overload
    def __get__(self, obj: None, owner: type[Awaited]) -> Callable[Concatenate[Any, P], AsyncIterator[T]]: ...
    @overload
    def __get__(self, obj: Blocking, owner: type[Blocking]) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, obj: Awaited, owner: type[Awaited]) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, obj: object, owner: type) -> Callable[..., Any]:
        return self._of(obj, owner)


def call(build: Callable[Concatenate[Any, P], Call[T]]) -> Operation[P, T]:
    """Sends what `build` returns."""

    async def sent(face: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        answer: T = await face._send(build(face, *args, **kwargs))
        return answer

    return Operation(_signed(sent, build, _inner(build)))


def pages(build: Callable[Concatenate[Any, P], Pages[T]]) -> Stream[P, T]:
    """Iterates over all pages of what `build` returns."""

    def walked(face: Any, /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        walk: AsyncGenerator[T, None] = face._walk(build(face, *args, **kwargs))
        return walk

    return Stream(_signed(walked, build, f"AsyncIterator[{_inner(build)}]"))


def finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    coroutine.close()
    raise RuntimeError("an operation of the blocking client must not wait for an event loop")


def _stepped(source: AsyncGenerator[T, None]) -> Iterator[T]:
    try:
        while True:
            try:
                item = finished(source.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        finished(source.aclose())


def _signed(function: Callable[P, T], source: Callable[..., Any], returns: str) -> Callable[P, T]:
    """With the name, the documentation and the parameters of its source, for `help()` and `inspect`."""
    wraps(source)(function)
    function.__annotations__ = {**source.__annotations__, "return": returns}
    function.__signature__ = inspect.signature(source).replace(return_annotation=returns)  # type: ignore[attr-defined]
    return function


def _inner(function: Callable[..., Any]) -> str:
    """`wire.Job` from `Call[wire.Job]`: annotations are texts here."""
    written: str = function.__annotations__["return"]
    return written.partition("[")[2].removesuffix("]").removesuffix(", None")
