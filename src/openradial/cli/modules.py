"""Options that commands share, and models with the user's Python modules that define their networks."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from openradial.classifier import OpenClassifier
    from openradial.conformal import FalseRejectReport

Runtime = StrEnum("Runtime", ["TORCH", "ONNX"])
Model = Annotated[Path, typer.Argument(help="The folder of a model, written by openradial fit.")]
Modules = Annotated[list[str] | None, typer.Option("--module", help="Python module of the network. Repeatable.")]
Rate = Annotated[float | None, typer.Option(help="Another false-reject rate than the model's.")]
Port = Annotated[int, typer.Option(help="Port; 0 chooses a free one.", min=0, max=65535)]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def add_working_directory_to_path() -> None:
    """Let modules be imported from the working directory."""
    sys.path.insert(0, str(Path.cwd()))


def open_model(folder: Path, modules: list[str] | None) -> "OpenClassifier":
    """Load the bundle in a folder, with a network of openradial or of one of the modules."""
    from openradial.bundle import load

    if modules:
        add_working_directory_to_path()
    return load(folder, modules=modules or ())


def known_lines(accuracy: float, rejects: "FalseRejectReport") -> list[tuple[str, str]]:
    """Return the lines of a report on known inputs, as name and text."""
    interval = f"95 % interval {100 * rejects.low:.1f} to {100 * rejects.high:.1f} %"
    called = f"{100 * rejects.measured:.1f} % of them, {100 * rejects.asked:g} % requested; {interval}"
    return [("accuracy", f"{100 * accuracy:.1f} % of {rejects.examples:,} known inputs"), ("called unknown", called)]
