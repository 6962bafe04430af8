"""The tree of commands."""

from typing import Annotated

import typer

import openradial
from openradial.cli import data
from openradial.cli.compare import compare_command
from openradial.cli.inspect import inspect_command
from openradial.cli.reproduce import reproduce_command
from openradial.cli.train import train

app = typer.Typer(
    help="Open-world classification: a class, or unknown.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data.app, name="data")
app.command()(train)
app.command("compare")(compare_command)
app.command("reproduce")(reproduce_command)
app.command("inspect")(inspect_command)


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"openradial {openradial.__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Open-world classification: a class, or unknown."""
