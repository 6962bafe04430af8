"""``openradial export``: a bundle as one file for deployment."""

import json
from dataclasses import asdict
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from openradial.bundle import Bundle
from openradial.cli.modules import Modules, open_model
from openradial.data.sources import stream
from openradial.errors import DataError
from openradial.export import to_onnx, to_torch

MOST = 1000  # inputs that an export is checked on


class Target(StrEnum):
    """What is written."""

    ONNX = "onnx"
    TORCH = "torch"


WRITERS = {Target.ONNX: (to_onnx, ".onnx"), Target.TORCH: (to_torch, ".pt2")}


def export_command(
    model: Annotated[Path, typer.Argument(help="The folder of a model, as openradial fit writes it.")],
    to: Annotated[Target, typer.Option(help="An ONNX file, or a .pt2 file of torch.export.")] = Target.ONNX,
    out: Annotated[Path | None, typer.Option(help="The file; by default beside the model, with its name.")] = None,
    check: Annotated[
        list[str] | None, typer.Option(help="Inputs to check the export on, as for predict; else noise. Repeatable.")
    ] = None,
    module: Modules = None,
    as_json: Annotated[bool, typer.Option("--json", help="The result for a script.")] = False,
) -> None:
    """Write a model as one file that runs without openradial, if it says the same as PyTorch does."""
    bundle = open_model(model, module)
    write, ending = WRITERS[to]
    path = out or model.resolve().with_name(f"{model.resolve().name}{ending}")
    agreement = write(bundle, path, _inputs(bundle, check) if check else None)
    if as_json:
        typer.echo(json.dumps({"file": str(path), "bytes": path.stat().st_size, **asdict(agreement)}))
        return
    typer.echo(f"checked on {agreement}")
    typer.echo(f"written: {path} ({path.stat().st_size / 1e6:.2f} MB)")


def _inputs(bundle: Bundle, paths: list[str]) -> list[object]:
    """The first readable inputs that the paths stand for."""
    rows = stream(paths, bundle.preprocessing.kind, columns=bundle.preprocessing.columns)
    found = list(islice((row.raw for row in rows if row.error is None), MOST))
    if not found:
        raise DataError(f"there is no input to check on in {', '.join(paths)}; name others, or leave --check out")
    return found
