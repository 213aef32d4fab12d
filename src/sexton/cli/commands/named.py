"""The common commands of resources with a name: queues, tenants, limits and subscriptions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from sexton.cli.api_access import AsJson, Url, with_client
from sexton.cli.printing import print_json, print_list, up_to

from .set_options import given_settings, takes_settings, with_present

if TYPE_CHECKING:
    from sexton.client.remote.async_client import AsyncClient
    from sexton.wire import QueueView, Stats, TenantView


class List(Protocol):
    def __call__(self, *, url: str | None, as_json: bool) -> None: ...


Print = Callable[[Any, bool], None]  # one of them, as JSON or for people


class NamedCommands:
    """The commands of one kind of thing, such as `sexton queues …`; without a command, its list. They call the methods that the
    client has for the noun: `queue`, `set_queue`, `pause_queue` … `example` is a name for the examples of the help pages."""

    _keeps = False  # whether `set` keeps the settings that are not given

    def __init__(
        self, noun: str, about: str, list_: List, print_: Print, *, argument: str, example: str, metavar: str | None = None
    ) -> None:
        self.app = typer.Typer(
            name=f"{noun}s", add_completion=False, invoke_without_command=True, rich_markup_mode=None, help=about
        )
        self._noun, self._example, self._print = noun, example, print_
        self._name: Any = typer.Argument(metavar=metavar, help=argument)
        self.app.command("list")(list_)

        @self.app.callback(invoke_without_command=True, help=about)
        def default(context: typer.Context, url: Url = None, as_json: AsJson = False) -> None:
            if context.invoked_subcommand is None:
                list_(url=url, as_json=as_json)

    def show(self, about: str) -> None:
        @self._command("show", about)
        def show(name: str = self._name, url: Url = None, as_json: AsJson = False) -> None:
            self._print(with_client(url, lambda client: self._read(client, name)), as_json)

    def set(self, options: type, about: str, *, example: str) -> None:
        """A command with one flag per option."""
        about = f"{about} Settings that you leave out keep their value." if self._keeps else about

        @self._command("set", about, f" {example}")
        @takes_settings(options, keeps=self._keeps)
        def set_(name: str = self._name, url: Url = None, as_json: AsJson = False, **given: Any) -> None:
            named = given_settings(given)

            async def work(client: AsyncClient) -> Any:
                settings = await with_present(self._read(client, name), named, options) if self._keeps else named
                return await self._call(client, "set", name, **settings)

            self._print(with_client(url, work), as_json)

    def change(self, verb: str, about: str, *, done: str) -> None:
        """A command that takes only the name; it prints the name and `done`."""

        @self._command(verb, about)
        def change(name: str = self._name, url: Url = None, as_json: AsJson = False) -> None:
            _tell(with_client(url, lambda client: self._call(client, verb, name)), f"{name} {done}", as_json)

    def _read(self, client: AsyncClient, name: str) -> Awaitable[Any]:
        return getattr(client, self._noun)(name)  # type: ignore[no-any-return]

    def _call(self, client: AsyncClient, verb: str, name: str, **told: Any) -> Awaitable[Any]:
        return getattr(client, f"{verb}_{self._noun}")(name, **told)  # type: ignore[no-any-return]

    def _command(self, verb: str, about: str, options: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
        return self.app.command(verb, help=f"{about}\n\nExample: sexton {self._noun}s {verb} {self._example}{options}")


class ShareCommands(NamedCommands):
    """The commands of queues and of tenants, which have a load, settings and a pause. `row` has the columns of a list between
    load and pause; `settings` is an example for `set`."""

    _keeps = True

    def __init__(
        self, noun: str, options: type, row: Callable[[Any], dict[str, Any]], print_: Print, *, example: str, settings: str
    ) -> None:
        def list_(url: Url = None, as_json: AsJson = False) -> None:
            found = with_client(url, lambda client: getattr(client, f"{noun}s")())
            rows = [{noun: one.name, **load(one), **row(one), "status": _pause(one)} for one in found]
            none = f"no {noun} has live work or settings"
            print_list(found, tuple(rows[0]) if rows else (), [tuple(one.values()) for one in rows], none=none, as_json=as_json)

        about = f"List the {noun}s that have live work or settings. Counts stop at 10,000."
        list_.__doc__ = f"{about}\n\nExample: sexton {noun}s list"
        group = f"List, set, pause and resume {noun}s. Without a command: list."
        super().__init__(noun, group, list_, print_, argument=f"The {noun}.", example=example)
        self.show(f"Show the settings of a {noun}, and its load.")
        self.set(options, f"Change the settings of a {noun}.", example=settings)
        self._pause()
        self.change("resume", f"Resume a paused {noun}.", done="resumed")
        removes = f"Remove the settings of a {noun}: it has the defaults again. Its runs stay."
        self.change("remove", removes, done="has the defaults again")

    def _pause(self) -> None:
        about = f"Start no run of a {self._noun} until it is resumed. Running runs continue."

        @self._command("pause", about, ' --note "the mail server is down"')
        def pause(
            name: str = self._name,
            note: Annotated[str | None, typer.Option(help="The reason, shown with the pause.")] = None,
            url: Url = None,
            as_json: AsJson = False,
        ) -> None:
            _tell(with_client(url, lambda client: self._call(client, "pause", name, note=note)), f"{name} paused", as_json)


def status_fields(noun: str, view: QueueView | TenantView) -> list[tuple[str, Any]]:
    """The first fields of a queue or a tenant, for people."""
    return [
        (noun, view.name),
        ("status", view.status),
        ("note", view.note),
        ("paused at", view.paused_at),
        ("paused by", view.paused_by),
    ]


def load(view: QueueView | TenantView | Stats) -> dict[str, Any]:
    """How many runs are in each state."""
    return {state: up_to(getattr(view, f"{state}_count")) for state in ("ready", "running", "waiting", "parked")}


def _pause(view: QueueView | TenantView) -> str | None:
    return None if view.status == "active" else view.status


def _tell(answer: Any, line: str, as_json: bool) -> None:
    print_json(answer) if as_json else typer.echo(line)
