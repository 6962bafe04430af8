"""Modules of the user's that make networks: they lie beside the run."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from openradial.bundle import Bundle, load

Modules = Annotated[
    list[str] | None,
    typer.Option("--module", help="A module of yours that makes the model's network. Repeatable."),
]


def look_beside_the_run() -> None:
    """Let modules be imported from the folder that the command was started in."""
    sys.path.insert(0, str(Path.cwd()))


def open_model(folder: Path, modules: list[str] | None) -> Bundle:
    """The bundle in a folder, with a network of ours or of one of the modules."""
    if modules:
        look_beside_the_run()
    return load(folder, modules=modules or ())
