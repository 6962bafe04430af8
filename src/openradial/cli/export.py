"""``openradial export``: write a model as one file for deployment."""

import json
from dataclasses import asdict
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openradial.cli.modules import Model, Modules, open_model
from openradial.errors import DataError

if TYPE_CHECKING:
    from openradial.bundle import Bundle

MOST = 1000  # inputs that an export is checked on


class ExportFormat(StrEnum):
    """The format of the file."""

    ONNX = "onnx"
    TORCH = "torch"


ENDINGS = {ExportFormat.ONNX: ".onnx", ExportFormat.TORCH: ".pt2"}


def export_command(
    model: Model,
    to: Annotated[ExportFormat, typer.Option(help="An ONNX file, or a .pt2 file of torch.export.")] = ExportFormat.ONNX,
    out: Annotated[Path | None, typer.Option(help="The file; by default next to the model, with its name.")] = None,
    check: Annotated[
        list[str] | None, typer.Option(help="Inputs to check the export on, as for predict; else noise. Repeatable.")
    ] = None,
    module: Modules = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Write a model as one file that runs without openradial, after comparing its predictions with PyTorch's."""
    from openradial import export

    bundle = open_model(model, module)
    path = out or model.resolve().with_name(f"{model.resolve().name}{ENDINGS[to]}")
    write = export.to_onnx if to is ExportFormat.ONNX else export.to_torch
    agreement = write(bundle, path, _inputs(bundle, check) if check else None)
    if as_json:
        typer.echo(json.dumps({"file": str(path), "bytes": path.stat().st_size, **asdict(agreement)}))
        return
    typer.echo(f"checked on {agreement}")
    typer.echo(f"written: {path} ({path.stat().st_size / 1e6:.2f} MB)")


def _inputs(bundle: "Bundle", paths: list[str]) -> list[object]:
    """Return the first readable inputs of the paths."""
    from openradial.evaluation import rows_of

    rows = rows_of(paths, bundle.preprocessing)
    inputs = list(islice((row.raw for row in rows if row.error is None), MOST))
    if not inputs:
        raise DataError(f"no input to check on in {', '.join(paths)}; name other files, or leave --check out")
    return inputs
