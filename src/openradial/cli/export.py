"""``openradial export``: write a model as one file for deployment."""

import json
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openradial.cli.modules import Json, Model, Modules, Runtime, open_model
from openradial.errors import DataError

if TYPE_CHECKING:
    from openradial.classifier import OpenClassifier

MOST = 1000  # inputs that an export is checked on


def export_command(
    model: Model,
    to: Annotated[Runtime, typer.Option(help="An ONNX file, or a .pt2 file of torch.export.")] = Runtime.ONNX,
    out: Annotated[Path | None, typer.Option(help="The file; by default next to the model, with its name.")] = None,
    check: Annotated[
        list[str] | None, typer.Option(help="Inputs to check the export on, as for predict; else noise. Repeatable.")
    ] = None,
    module: Modules = None,
    as_json: Json = False,
) -> None:
    """Write a model as one file that runs without openradial, after comparing its predictions with PyTorch's."""
    from openradial import export
    from openradial.files import writable

    write, ending = (export.to_onnx, ".onnx") if to is Runtime.ONNX else (export.to_torch, ".pt2")
    path = out or model.resolve().with_name(f"{model.resolve().name}{ending}")
    writable(path)
    bundle = open_model(model, module)
    agreement = write(bundle, path, _inputs(bundle, check) if check else None)
    if as_json:
        typer.echo(json.dumps({"file": str(path), "bytes": path.stat().st_size, **asdict(agreement)}))
        return
    typer.echo(f"checked on {agreement}")
    typer.echo(f"written: {path} ({path.stat().st_size / 1e6:.2f} MB)")
    for file in export.tokenizer_files(bundle.preprocessing, path):
        typer.echo(f"beside it: {file.name}")


def _inputs(bundle: "OpenClassifier", paths: list[str]) -> list[object]:
    """Return the first readable inputs of the paths."""
    from openradial.data.sources import stream

    rows = stream(paths, bundle.preprocessing.kind, columns=bundle.preprocessing.columns)
    readable = list(islice((row.raw for row in rows if row.error is None), MOST))
    if not readable:
        raise DataError(f"no input to check on in {', '.join(paths)}; name other files, or leave --check out")
    return readable
