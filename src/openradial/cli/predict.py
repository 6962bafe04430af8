"""``openradial predict``: a class or unknown for each input, as they come."""

import csv
import json
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from openradial.bundle import Bundle, Predictions
from openradial.bundle.predictions import TOP
from openradial.cli import BROKEN_INPUTS
from openradial.cli.modules import Modules, open_model
from openradial.data import progress
from openradial.data.sources import count_inputs, stream
from openradial.errors import OptionError
from openradial.evaluation import predict_rows, records
from openradial.export import OnnxModel

WIDTHS = {"input": 40, "label": 16, "probability": 13, "distance": 10, "p-value": 10}
NUMBERS = ("probability", "distance", "p_value", "unknown_score")


class Format(StrEnum):
    """How answers are written."""

    TABLE = "table"
    JSONL = "jsonl"
    CSV = "csv"


class Runtime(StrEnum):
    """What computes."""

    TORCH = "torch"
    ONNX = "onnx"


def predict_command(
    model: Annotated[
        Path, typer.Argument(help="The folder of a model, as openradial fit writes it; with --runtime onnx a file.")
    ],
    inputs: Annotated[
        list[str], typer.Argument(help="Images, folders of images, tables; - reads paths or rows from the input.")
    ],
    form: Annotated[
        Format, typer.Option("--format", help="table for people, jsonl or csv for programs.")
    ] = Format.TABLE,
    false_reject_rate: Annotated[float | None, typer.Option(help="Another rate than the model's own.")] = None,
    runtime: Annotated[
        Runtime, typer.Option(help="torch, or onnx: the file that openradial export wrote, by onnxruntime.")
    ] = Runtime.TORCH,
    module: Modules = None,
) -> None:
    """Say for each input which class it is, or unknown; with probability, distance, p-value and the nearest classes.

    Answers are written as inputs are read. A broken input is a line with its error; the exit code is then 3.
    """
    loaded = _loaded(model, runtime, module)

    def predict(raw: Sequence[Any]) -> Predictions:
        return loaded.predict(raw, false_reject_rate)

    write, broken = WRITERS[form](sys.stdout), 0
    with progress.bar("predicting", count_inputs(inputs, loaded.preprocessing.kind), unit="inputs") as advance:
        rows = stream(inputs, loaded.preprocessing.kind, columns=loaded.preprocessing.columns)
        for run in predict_rows(predict, rows):
            for record in records(run):
                write(record)
            broken += run.predictions is None
            advance(len(run.rows))
    sys.stdout.flush()
    if broken:
        typer.echo(f"{broken:,} input{'s' * (broken != 1)} could not be read", err=True)
        raise typer.Exit(BROKEN_INPUTS)


def _loaded(model: Path, runtime: Runtime, modules: list[str] | None) -> Bundle | OnnxModel:
    if runtime is Runtime.TORCH:
        return open_model(model, modules)
    if model.is_dir():
        raise OptionError(
            f"--runtime onnx takes the file that openradial export wrote, got the folder {model}; run: openradial "
            f"export {model} --to onnx"
        )
    return OnnxModel(model)


def _table_writer(stream: TextIO) -> Callable[[dict[str, Any]], None]:
    stream.write("".join(f"{name:<{width}}" for name, width in WIDTHS.items()) + "nearest classes\n")

    def write(record: dict[str, Any]) -> None:
        name = _cut(record["input"], WIDTHS["input"] - 2)
        if "error" in record:
            stream.write(f"{name:<{WIDTHS['input']}}error: {record['error']}\n")
            return
        label = _cut(record["label"], WIDTHS["label"] - 2)
        numbers = (record["probability"], record["distance"], record["p_value"])
        cells = (name, label, *(f"{value:.4f}" if value is not None else "" for value in numbers))
        near = ", ".join(f"{each['class']} {each['probability'] or 0:.2f}" for each in record["top"])
        stream.write("".join(f"{c:<{width}}" for c, width in zip(cells, WIDTHS.values(), strict=True)) + near + "\n")

    return write


def _jsonl_writer(stream: TextIO) -> Callable[[dict[str, Any]], None]:
    def write(record: dict[str, Any]) -> None:
        stream.write(json.dumps(record, ensure_ascii=False) + "\n")

    return write


def _csv_writer(stream: TextIO) -> Callable[[dict[str, Any]], None]:
    near = [f"{name}_{place}" for place in range(1, TOP + 1) for name in ("class", "probability")]
    names = ["input", "label", "is_unknown", "nearest", *NUMBERS, *near, "error"]
    writer = csv.DictWriter(stream, names, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()

    def write(record: dict[str, Any]) -> None:
        top = enumerate(record.get("top", []), 1)
        flat = {f"{name}_{place}": each[name] for place, each in top for name in ("class", "probability")}
        writer.writerow({**record, **flat})

    return write


WRITERS = {Format.TABLE: _table_writer, Format.JSONL: _jsonl_writer, Format.CSV: _csv_writer}


def _cut(text: str, width: int) -> str:
    """The end of a text that is too long: of a path the end says more."""
    return text if len(text) <= width else f"…{text[1 - width :]}"
