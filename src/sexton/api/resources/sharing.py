"""The operations that tenants, queues and limits share: each has settings under a name, and a current load."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler

from sexton import wire
from sexton.api.answers.responses import answer
from sexton.api.openapi import examples
from sexton.api.openapi.description import Answer, Operation, body, ok
from sexton.api.requests.bodies import read, read_checked, refuse_unkeepable
from sexton.api.requests.parameters import name_of
from sexton.api.state import ApiRequest, caller_of, state_of
from sexton.domain.sharing import plain_name
from sexton.errors import NotFound
from sexton.operations.caller import Caller
from sexton.operations.pausable_settings import PausableSettings as Changes
from sexton.store.database import Connection

operation = partial(Operation, tag="sharing")

View = TypeVar("View", bound=msgspec.Struct)
Settings = TypeVar("Settings", bound=msgspec.Struct)
Checked = TypeVar("Checked")
CheckedIn = TypeVar("CheckedIn", contravariant=True)


class Put(Protocol[CheckedIn]):
    """Replaces the settings of a name."""

    async def __call__(
        self, connection: Connection, caller: Caller, name: str, settings: CheckedIn, /, *, now: datetime | None
    ) -> None: ...


class SettingsByName(Generic[View]):
    """Creates the operations of one kind, at `/v1/{noun}s` and below.

    `find` reads one by its name. It returns `None` if it does not exist, unless every name has at least the defaults: then
    `is_known` says whether there is more to show than these.
    """

    def __init__(
        self,
        noun: str,
        view: type[View],
        find: Callable[[Connection, str, datetime | None], Awaitable[View | None]],
        *,
        is_known: Callable[[View], bool] = lambda _: True,
        parameter: str = "name",
    ) -> None:
        self._noun, self._view, self._find, self._is_known = noun, view, find, is_known
        self._path = f"/v1/{noun}s"
        self._route = f"{self._path}/{{{parameter}:path}}"
        self._current = {200: Answer(f"The current {noun}.", view)}

    def list(
        self, find_all: Callable[[Connection, datetime | None], Awaitable[Sequence[View]]], *, description: str
    ) -> HTTPRouteHandler:
        @operation(
            f"GET {self._path}",
            id=self._id("list", "s"),
            summary=f"List {self._noun}s",
            description=description,
            answers=ok("Each with its load and its settings.", wire.Page[self._view]),  # type: ignore[name-defined]
            problems=(422,),
        )
        async def list_(request: ApiRequest) -> Response[bytes]:
            state = state_of(request)
            async with state.database.connection() as connection:
                return answer(wire.Page(items=await find_all(connection, state.clock.database_now())))

        return list_

    def show(self, *, missing: str, summary: str = "", description: str = "") -> HTTPRouteHandler:
        @operation(
            f"GET {self._route}",
            id=self._id("get"),
            summary=summary or f"Get a {self._noun}",
            description=description,
            answers=self._current,
            problems=(400, 404, 422),
        )
        async def show(request: ApiRequest) -> Response[bytes]:
            state, name = state_of(request), self._name(request)
            async with state.database.connection() as connection:
                found = await self._find(connection, name, state.clock.database_now())
            if found is None or not self._is_known(found):
                raise NotFound(missing.format(name=repr(name)))
            return answer(found)

        return show

    def set(
        self,
        kind: type[Settings],
        check: Callable[[Settings, str], Checked],
        put: Put[Checked],
        *,
        summary: str,
        description: str,
        examples: Mapping[str, Any],
    ) -> HTTPRouteHandler:
        @operation(
            f"PUT {self._route}",
            id=self._id("set"),
            summary=summary,
            description=description,
            body=body(kind, **examples),
            answers=self._current,
            problems=(404,),
        )
        async def set_(request: ApiRequest) -> Response[bytes]:
            state, name = state_of(request), self._checked_name(request)
            settings = await read_checked(request, kind, lambda one: check(one, name))
            now = state.clock.database_now()
            async with state.database.transaction() as connection:
                await put(connection, caller_of(request), name, settings, now=now)
                return answer(await self._find(connection, name, now))

        return set_

    def remove(
        self,
        remove: Callable[[Connection, Caller, str], Awaitable[bool]],
        *,
        missing: str,
        summary: str,
        description: str,
        done: str,
        problems: tuple[int, ...] = (),
    ) -> HTTPRouteHandler:
        @operation(
            f"DELETE {self._route}",
            id=self._id("remove"),
            summary=summary,
            description=description,
            answers=ok(done, wire.Removed),
            problems=(400, 404, 422, *problems),
        )
        async def remove_(request: ApiRequest) -> Response[bytes]:
            name = self._name(request)
            async with state_of(request).database.transaction() as connection:
                if not await remove(connection, caller_of(request), name):
                    raise NotFound(missing.format(name=repr(name)))
            return answer(wire.Removed(name=name))

        return remove_

    def _id(self, verb: str, ending: str = "") -> str:
        return f"{verb}{self._noun.capitalize()}{ending}"

    def _name(self, request: ApiRequest, suffix: str = "") -> str:
        return name_of(request, f"{self._path}/", suffix)

    def _checked_name(self, request: ApiRequest, suffix: str = "") -> str:
        """Checks the name of new settings. The settings of a limit check its key."""
        return self._name(request, suffix)


class Shares(SettingsByName[View]):
    """Tenants or queues: every name has at least the defaults, and can be paused."""

    def forget(self, changes: Changes, *, stays: str) -> HTTPRouteHandler:
        return self.remove(
            changes.remove,
            missing=f"the {self._noun} {{name}} has no settings",
            summary=f"Reset a {self._noun} to the defaults",
            description=f"It has the defaults again, and a pause ends. {stays}",
            done="It has the defaults again.",
        )

    def set_status(self, changes: Changes, *, description: str) -> HTTPRouteHandler:
        @operation(
            f"PATCH {self._route}",
            documented_path=f"{self._path}/{{name}}/status",
            id=f"{self._id('set')}Status",
            summary=f"Pause or resume a {self._noun}",
            description=description,
            body=body(wire.ShareStatusChange, **examples.SHARE_STATUS_CHANGES),
            answers=self._current,
            problems=(404,),
        )
        async def set_status(request: ApiRequest) -> Response[bytes]:
            state, name = state_of(request), self._checked_name(request, "/status")
            change = await read(request, wire.ShareStatusChange)
            refuse_unkeepable("/note", change.note)
            now = state.clock.database_now()
            async with state.database.transaction() as connection:
                if change.status == "paused":
                    await changes.pause(connection, caller_of(request), name, note=change.note, now=now)
                else:
                    await changes.resume(connection, caller_of(request), name)
                return answer(await self._find(connection, name, now))

        return set_status

    def _checked_name(self, request: ApiRequest, suffix: str = "") -> str:
        return plain_name(self._name(request, suffix))
