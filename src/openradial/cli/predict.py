"""``openradial predict``: predict a class or unknown for each input."""

import csv
import json
import sys
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from openradial.cli import BROKEN_INPUTS
from openradial.cli.modules import Modules, Rate, Runtime, open_model
from openradial.errors import OptionError

if TYPE_CHECKING:
    from openradial.classifier import OpenClassifier
    from openradial.export import OnnxModel

WIDTHS = {"input": 40, "label": 16, "probability": 13, "distance": 10, "p-value": 10}
MOST_LABEL = 40  # characters
CONTROL = dict.fromkeys([*range(32), *range(127, 160)], "\ufffd")  # a terminal would obey them
NUMBERS = ("probability", "distance", "p_value", "unknown_score")
Write = Callable[[dict[str, Any]], object]
OutputFormat = StrEnum("OutputFormat", ["TABLE", "JSONL", "CSV"])


def predict_command(
    model: Annotated[
        Path, typer.Argument(help="The folder of a model, written by openradial fit; with --runtime onnx a file.")
    ],
    inputs: Annotated[
        list[str], typer.Argument(help="Images, folders of images, tables; - reads paths or rows from standard input.")
    ],
    form: Annotated[
        OutputFormat, typer.Option("--format", help="A table, or jsonl or csv for programs.")
    ] = OutputFormat.TABLE,
    false_reject_rate: Rate = None,
    runtime: Annotated[Runtime, typer.Option(help="torch, or onnx for an exported file.")] = Runtime.TORCH,
    module: Modules = None,
) -> None:
    """Predict a class or unknown for each input, with probability, distance, p-value and the nearest classes.

    Predictions are printed as inputs are read. An input that cannot be read gets a line with its error; the exit code
    is then 3.
    """
    loaded = _load(model, runtime, module)
    from openradial.classifier import predict_rows, records
    from openradial.data import progress
    from openradial.data.sources import count_inputs, stream

    predict = partial(loaded.predict, false_reject_rate=false_reject_rate)
    label_width = min(MOST_LABEL, max(map(len, loaded.classes)) + 2)
    write, broken = WRITERS[form](sys.stdout, max(WIDTHS["label"], label_width)), 0
    with progress.bar("predicting", count_inputs(inputs, loaded.preprocessing.kind), unit="inputs") as advance:
        rows = stream(inputs, loaded.preprocessing.kind, columns=loaded.preprocessing.columns)
        for run in predict_rows(predict, rows):
            for record, row in zip(records(run), run.rows, strict=True):
                if loaded.preprocessing.kind == "texts":
                    column = next(iter(loaded.preprocessing.columns), "")
                    record["text"] = row.raw.get(column, "") if isinstance(row.raw, dict) else row.raw
                write(record)
            broken += run.predictions is None
            advance(len(run.rows))
    sys.stdout.flush()
    if broken:
        typer.echo(f"{broken:,} input{'s' * (broken != 1)} could not be read", err=True)
        raise typer.Exit(BROKEN_INPUTS)


def _load(model: Path, runtime: Runtime, modules: list[str] | None) -> "OpenClassifier | OnnxModel":
    if runtime is Runtime.TORCH:
        return open_model(model, modules)
    if model.is_dir():
        message = f"--runtime onnx needs a file written by openradial export, got the folder {model}"
        raise OptionError(f"{message}; run: openradial export {model} --to onnx")
    from openradial import export

    return export.OnnxModel(model)


def _table_writer(stream: TextIO, label_width: int) -> Write:
    widths = WIDTHS | {"label": label_width}
    stream.write("".join(f"{name:<{width}}" for name, width in widths.items()) + "nearest classes\n")

    def write(record: dict[str, Any]) -> None:
        name = _cut(record["input"], widths["input"] - 2)
        if record.get("text"):
            text = " ".join(str(record["text"])[:200].split())
            name = _cut(text, widths["input"] - 2, keeps_end=False)
        if "error" in record:
            stream.write(f"{name:<{widths['input']}}error: {record['error']}".translate(CONTROL) + "\n")
            return
        label = _cut(record["label"], widths["label"] - 2, keeps_end=False)
        numbers = (record["probability"], record["distance"], record["p_value"])
        cells = (name, label, *(f"{value:.4f}" if value is not None else "" for value in numbers))
        top = ", ".join(f"{each['class']} {each['probability'] or 0:.2f}" for each in record["top"])
        line = "".join(f"{c:<{width}}" for c, width in zip(cells, widths.values(), strict=True)) + top
        stream.write(line.translate(CONTROL) + "\n")

    return write


def _jsonl_writer(stream: TextIO, _label_width: int) -> Write:
    return lambda record: stream.write(json.dumps(record, ensure_ascii=False) + "\n")


def _csv_writer(stream: TextIO, _label_width: int) -> Write:
    from openradial.classifier import TOP

    top_names = [f"{name}_{rank}" for rank in range(1, TOP + 1) for name in ("class", "probability")]
    names = ["input", "label", "is_unknown", "nearest", *NUMBERS, *top_names, "error"]
    writer = csv.DictWriter(stream, names, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()

    def write(record: dict[str, Any]) -> None:
        top = enumerate(record.get("top", []), 1)
        flat = {f"{name}_{rank}": each[name] for rank, each in top for name in ("class", "probability")}
        writer.writerow({**record, **flat})

    return write


WRITERS = {OutputFormat.TABLE: _table_writer, OutputFormat.JSONL: _jsonl_writer, OutputFormat.CSV: _csv_writer}


def _cut(text: str, width: int, keeps_end: bool = True) -> str:
    """Return the end or the start of a text that is too long: the end of a path is the informative part."""
    return text if len(text) <= width else f"…{text[1 - width :]}" if keeps_end else f"{text[: width - 1]}…"
