"""The list of commands. A command's module is imported when it is called, and imports torch when it runs."""

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import openradial
from openradial.cli import INTERRUPTED

OWN_DATA, DATA_SETS = "Your own data", "Data sets"
COMMANDS = {  # help and panel in the list of commands
    "fit": ("Fit a calibrated model to images, texts or a table.", OWN_DATA),
    "evaluate": ("Evaluate a model on known and novel data.", OWN_DATA),
    "predict": ("Predict a class or unknown for each input.", OWN_DATA),
    "inspect": ("Show classes, network and decision of a model.", OWN_DATA),
    "export": ("Export a model to ONNX or torch.export.", OWN_DATA),
    "serve": ("Serve a model over HTTP.", OWN_DATA),
    "play": ("Open a page that compares softmax and radial.", OWN_DATA),
    "data": ("List, download and check data sets.", DATA_SETS),
    "cache": ("Show or clear the features of encoders.", DATA_SETS),
}
HELP = """Open-world classification: a class, or unknown.

[dim]# from a folder with one subfolder of images per class, or from a table[/dim]
openradial [bold]fit[/bold] animals/ --out model
openradial [bold]fit[/bold] flowers.csv --label species --out model

[dim]# metrics and report.html[/dim]
openradial [bold]evaluate[/bold] model --known test/ --novel other/

[dim]# class or unknown for each input[/dim]
openradial [bold]predict[/bold] model photo.jpg more/
"""
EPILOG = "Exit codes: 0 success, 1 failure, 2 wrong use, 3 some inputs could not be read, 130 interrupted."


def load(name: str) -> Any:
    """Import the module of a command and return the command."""
    module, parent = import_module(f"openradial.cli.{name}"), typer.Typer()
    if hasattr(module, "app"):  # it has subcommands
        parent.add_typer(module.app, name=name)
    else:
        parent.command(name)(getattr(module, f"{name}_command"))
    return _without_flag_types(typer.main.get_group(parent).commands[name])


class LazyGroup(TyperGroup):
    """A group that imports a command when it is called, so that help and completion do not wait for it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else load(name), rest

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:  # typer would end without a message
            again = "; no model was written; the same command uses the features in the cache"
            typer.echo(f"error: interrupted{again if ctx.invoked_subcommand == 'fit' else ''}", err=True)
            raise typer.Exit(INTERRUPTED) from error


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, (_help, _panel) in COMMANDS.items():
    app.command(_name, help=_help, rich_help_panel=_panel)(lambda: None)


def command() -> Any:
    """Return the command ``openradial``."""
    return _without_flag_types(typer.main.get_command(app))


def _without_flag_types(command: Any) -> Any:
    """Change a command so that its help does not show <bool> after flags."""
    get_params = command.get_params

    def get_params_without_types(ctx: Any) -> list[Any]:
        params: list[Any] = get_params(ctx)
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params

    command.get_params = get_params_without_types
    for each in getattr(command, "commands", {}).values():
        _without_flag_types(each)
    return command


def show_version(wanted: bool) -> None:
    """Print the version and exit, if wanted."""
    if wanted:
        typer.echo(f"openradial {openradial.__version__}")
        raise typer.Exit


@app.callback(help=HELP, epilog=EPILOG)
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Open-world classification: a class, or unknown."""
