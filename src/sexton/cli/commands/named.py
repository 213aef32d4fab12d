"""The commands that things with a name share: queues, tenants, limits and subscriptions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import typer

from sexton.cli.api_access import AsJson, Url, with_client
from sexton.cli.printing import print_json

from .set_options import said, takes_settings, with_present

if TYPE_CHECKING:
    from sexton.client.remote.async_client import AsyncClient
    from sexton.wire import QueueView, TenantView

T = TypeVar("T")


class List(Protocol):
    def __call__(self, *, url: str | None, as_json: bool) -> None: ...


class NamedCommands:
    """The commands of one kind, `sexton {kind} …`; without a command, its list. `example` is a name for the examples of the
    help pages."""

    def __init__(self, kind: str, about: str, list_: List, *, argument: str, example: str, metavar: str | None = None) -> None:
        self.app = typer.Typer(name=kind, add_completion=False, invoke_without_command=True, rich_markup_mode=None, help=about)
        self._kind, self._example = kind, example
        self._name: Any = typer.Argument(metavar=metavar, help=argument)
        self.app.command("list")(list_)

        @self.app.callback(invoke_without_command=True, help=about)
        def default(context: typer.Context, url: Url = None, as_json: AsJson = False) -> None:
            if context.invoked_subcommand is None:
                list_(url=url, as_json=as_json)

    def show(self, read: Callable[[AsyncClient, str], Awaitable[T]], print_: Callable[[T, bool], None], about: str) -> None:
        @self._command("show", about)
        def show(name: str = self._name, url: Url = None, as_json: AsJson = False) -> None:
            print_(with_client(url, lambda client: read(client, name)), as_json)

    def set(
        self,
        options: type,
        write: Callable[[AsyncClient, str, dict[str, Any]], Awaitable[T]],
        print_: Callable[[T, bool], None],
        about: str,
        *,
        example: str,
        keeps: Callable[[AsyncClient, str], Awaitable[Any]] | None = None,
    ) -> None:
        """A command with one flag per option. With `keeps`, which reads what is set, the rest stays."""

        @self._command("set", about, f" {example}")
        @takes_settings(options, keeps=keeps is not None)
        def set_(name: str = self._name, url: Url = None, as_json: AsJson = False, **given: Any) -> None:
            named = said(given)

            async def work(client: AsyncClient) -> T:
                settings = named if keeps is None else await with_present(keeps, client, name, named, options)
                return await write(client, name, settings)

            print_(with_client(url, work), as_json)

    def pause(self, work: Callable[[AsyncClient, str, str | None], Awaitable[Any]], about: str, *, example_note: str) -> None:
        @self._command("pause", about, f' --note "{example_note}"')
        def pause(
            name: str = self._name,
            note: Annotated[str | None, typer.Option(help="Why, for whoever looks.")] = None,
            url: Url = None,
            as_json: AsJson = False,
        ) -> None:
            _tell(with_client(url, lambda client: work(client, name, note)), f"{name} paused", as_json)

    def change(self, verb: str, work: Callable[[AsyncClient, str], Awaitable[Any]], about: str, *, done: str) -> None:
        """A command that takes the name alone; `done` follows the name in what it prints."""

        @self._command(verb, about)
        def change(name: str = self._name, url: Url = None, as_json: AsJson = False) -> None:
            _tell(with_client(url, lambda client: work(client, name)), f"{name} {done}", as_json)

    def _command(self, verb: str, about: str, options: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
        return self.app.command(verb, help=f"{about}\n\nExample: sexton {self._kind} {verb} {self._example}{options}")


def standing(noun: str, view: QueueView | TenantView) -> list[tuple[str, Any]]:
    """The first fields of a queue or a tenant, as people read them."""
    return [
        (noun, view.name),
        ("status", view.status),
        ("note", view.note),
        ("paused at", view.paused_at),
        ("paused by", view.paused_by),
    ]


def _tell(answer: Any, line: str, as_json: bool) -> None:
    print_json(answer) if as_json else typer.echo(line)
