"""Open models on the command line, with the user's Python modules that define their networks."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from openradial.bundle import Bundle

Model = Annotated[Path, typer.Argument(help="The folder of a model, written by openradial fit.")]
Modules = Annotated[
    list[str] | None,
    typer.Option("--module", help="Python module that defines the network. Repeatable."),
]
Rate = Annotated[float | None, typer.Option(help="Another false-reject rate than the model's.")]


def add_working_directory_to_path() -> None:
    """Let modules be imported from the working directory."""
    sys.path.insert(0, str(Path.cwd()))


def open_model(folder: Path, modules: list[str] | None) -> "Bundle":
    """Load the bundle in a folder, with a network of openradial or of one of the modules."""
    from openradial.bundle import load

    if modules:
        add_working_directory_to_path()
    return load(folder, modules=modules or ())
