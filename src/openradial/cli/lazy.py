"""Commands that are loaded when they are called, so that help and completion do not wait for torch."""

from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup


class Place(NamedTuple):
    """Where a command is found, what the list of commands says of it, and in which group it stands there."""

    where: str  # module:function, or module:app for a command with commands of its own
    text: str
    panel: str

    def load(self, name: str) -> Any:
        """The command itself."""
        module, _, attribute = self.where.partition(":")
        found = getattr(import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            function, found = found, typer.Typer(add_completion=False)
            found.command(name)(function)
        command = typer.main.get_command(found)
        command.name = name
        return command


class LazyGroup(TyperGroup):
    """A group that knows its commands by name and one line, until one of them is called."""

    places: dict[str, Place]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else self.places[name].load(name), rest


def lazy_app(places: dict[str, Place], **options: Any) -> typer.Typer:
    """An application of commands that are loaded when they are called."""
    group = type("Commands", (LazyGroup,), {"places": places})
    app = typer.Typer(cls=group, **options)
    for name, place in places.items():
        app.command(name, help=place.text, rich_help_panel=place.panel)(_nothing)
    return app


def _nothing() -> None:
    """Stands for a command in the list."""
