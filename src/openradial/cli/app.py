"""The tree of commands."""

from typing import Annotated

import typer

import openradial
from openradial.cli.lazy import Place, lazy_app

YOURS, RESEARCH, SETS = "Your own data", "Networks and experiments", "Data sets"
HERE = "openradial.cli"
COMMANDS = {
    "fit": Place(f"{HERE}.fit:fit_command", "A model from a folder of images or a table, calibrated.", YOURS),
    "evaluate": Place(f"{HERE}.evaluate:evaluate_command", "Numbers and a report on known and novel data.", YOURS),
    "predict": Place(f"{HERE}.predict:predict_command", "A class or unknown for each input.", YOURS),
    "inspect": Place(f"{HERE}.inspect:inspect_command", "What a model holds: classes, network, decision.", YOURS),
    "export": Place(f"{HERE}.export:export_command", "A model as one file, ONNX or torch.export.", YOURS),
    "serve": Place(f"{HERE}.serve:serve_command", "The model over HTTP.", YOURS),
    "play": Place(f"{HERE}.play:play_command", "A page to see, draw and try: softmax beside radial.", YOURS),
    "compare": Place(f"{HERE}.compare:compare_command", "Ways of being open-world, side by side.", RESEARCH),
    "data": Place(f"{HERE}.data:app", "List, get, find, check and split data sets.", SETS),
}
HELP = """Open-world classification: a class, or unknown.

[dim]# from a folder with one folder of images per class, or from a table[/dim]
openradial [bold]fit[/bold] animals/ --out model
openradial [bold]fit[/bold] flowers.csv --label species --out model

[dim]# numbers and report.html[/dim]
openradial [bold]evaluate[/bold] model --known test/ --novel other/

[dim]# class or unknown for each[/dim]
openradial [bold]predict[/bold] model photo.jpg more/
"""
EPILOG = "Exit codes: 0 done, 1 failure, 2 bad use, 3 some inputs could not be read, 130 interrupted."

app = lazy_app(
    COMMANDS,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(wanted: bool) -> None:
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
