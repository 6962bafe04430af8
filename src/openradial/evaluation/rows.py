"""Inputs to predict, one after the other: image files, folders of them, rows of tables, lines; never all in memory."""

import csv
import json
import os
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from openradial.bundle import ImageInputs, Inputs, PointInputs, SequenceInputs, TableInputs, TextInputs
from openradial.data.readers.folder import is_image
from openradial.data.readers.table_files import DELIMITERS, read_arrays
from openradial.data.readers.tables import CSV, PARQUET
from openradial.errors import DataError, OptionError, listed, nearest, require

STDIN = "-"
JSON_LINES = (".jsonl", ".ndjson")
AT_ONCE = 1024  # rows of a Parquet file


class Row(NamedTuple):
    """One input: its name, and what a bundle takes or what is wrong with it."""

    name: str
    raw: Any
    error: str | None = None


def rows_of(paths: Iterable[str], inputs: Inputs, stdin: TextIO | None = None) -> Iterator[Row]:
    """The inputs that paths stand for, of the kind that a bundle takes; ``-`` reads the standard input.

    Images: files, folders (with what is below them) and NPZ files; from the standard input one path per line.
    Tables: CSV, JSON lines, Parquet and NPZ; from the standard input CSV or JSON lines. Texts: one per file, or per
    line of the standard input. Points and sequences: NPZ, points also CSV.
    """
    for path in paths:
        if path == STDIN:
            yield from _from_lines(sys.stdin if stdin is None else stdin, inputs)
        elif not Path(path).exists():
            yield Row(path, None, "there is no such file")
        else:
            yield from _from_path(Path(path), inputs)


def count_rows(paths: Iterable[str], inputs: Inputs) -> int | None:
    """How many rows there will be, where that can be had at once."""
    if not isinstance(inputs, ImageInputs | TextInputs):
        return None
    total = 0
    for path in paths:
        if path == STDIN or Path(path).suffix == ".npz":
            return None
        total += sum(1 for _ in image_files(Path(path))) if Path(path).is_dir() else 1
    return total


def image_files(folder: Path) -> Iterator[str]:
    """All images in a folder and below, sorted by name."""
    for place, folders, names in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__MACOSX")
        yield from (os.path.join(place, name) for name in sorted(names) if is_image(name) and not name.startswith("."))


def _from_path(path: Path, inputs: Inputs) -> Iterator[Row]:
    if isinstance(inputs, ImageInputs):
        return _images(path)
    if path.is_dir():
        raise OptionError(f"this model takes {inputs.kind}, and {path} is a folder; name files")
    if isinstance(inputs, TextInputs):
        return iter([_text_file(path)])
    if isinstance(inputs, TableInputs):
        return _table(path, inputs)
    return _arrays(path, inputs)


def _images(path: Path) -> Iterator[Row]:
    if path.is_dir():
        found = image_files(path)
        first = next(found, None)
        if first is None:
            return iter([Row(str(path), None, "the folder holds no images")])
        return (Row(name, name) for name in chain([first], found))
    if path.suffix == ".npz":
        pixels = _only(path, lambda array: array.ndim in (3, 4) and array.dtype == np.uint8, "uint8 images")
        if pixels.ndim == 4 and pixels.shape[1] in (1, 3) and pixels.shape[3] not in (1, 3):
            pixels = pixels.transpose(0, 2, 3, 1)
        return (Row(f"{path}:{place}", image) for place, image in enumerate(pixels, 1))
    return iter([Row(str(path), str(path))])


def _text_file(path: Path) -> Row:
    try:
        return Row(str(path), path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        return Row(str(path), None, f"cannot be read as text in UTF-8 ({error})")


def _table(path: Path, inputs: TableInputs) -> Iterator[Row]:
    ending = path.suffix.lower()
    if ending in PARQUET:
        return _parquet(path, inputs)
    if ending == ".npz":
        return _npz_rows(path, inputs)
    if ending in JSON_LINES or ending in CSV:
        return _text_rows(path, inputs, is_json=ending in JSON_LINES)
    raise OptionError(
        f"a table must be one of {', '.join((*CSV, *JSON_LINES, *PARQUET, '.npz'))}, got {path.name!r}; convert it"
    )


def _text_rows(path: Path, inputs: TableInputs, *, is_json: bool) -> Iterator[Row]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            yield from _json_rows(str(path), stream) if is_json else _csv_rows(str(path), stream, inputs)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        yield Row(str(path), None, f"cannot be read any further ({error})")


def _from_lines(stream: TextIO, inputs: Inputs) -> Iterator[Row]:
    if isinstance(inputs, TableInputs):
        first = next((line for line in stream if line.strip()), "")
        lines = chain([first], stream) if first else iter(())
        return _json_rows("-", lines) if first.lstrip().startswith("{") else _csv_rows("-", lines, inputs)
    lines = (line.rstrip("\r\n") for line in stream)
    if isinstance(inputs, ImageInputs):
        return (Row(line, line) for line in lines if line)
    if isinstance(inputs, TextInputs):
        return (Row(f"-:{number}", line) for number, line in enumerate(lines, 1) if line)
    raise OptionError(f"this model takes {inputs.kind}, which cannot be read from the standard input; name an NPZ file")


def _json_rows(name: str, lines: Iterable[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
            error = None if isinstance(found, dict) else "the line must be a JSON object of column names and values"
        except ValueError as wrong:
            found, error = None, f"the line is no JSON ({wrong})"
        yield Row(f"{name}:{number}", found, error)


def _csv_rows(name: str, lines: Iterable[str], inputs: TableInputs) -> Iterator[Row]:
    lines = iter(lines)
    header = next(lines, "")
    delimiter = max(DELIMITERS, key=header.count)
    reader = csv.reader(chain([header], lines), delimiter=delimiter, skipinitialspace=True)
    names = [column.strip() for column in next(reader, [])]
    _check_columns(name, names, inputs)
    for number, values in enumerate((row for row in reader if row), 1):
        if len(values) == len(names):
            yield Row(f"{name}:{number}", dict(zip(names, values, strict=True)))
        else:
            yield Row(f"{name}:{number}", None, f"the row has {len(values)} values for {len(names)} columns")


def _parquet(path: Path, inputs: TableInputs) -> Iterator[Row]:
    arrow = require("pyarrow", "tables", "reading Parquet")
    parquet = require("pyarrow.parquet", "tables", "reading Parquet")
    numbers = count(1)
    try:
        with parquet.ParquetFile(path) as opened:
            _check_columns(str(path), list(opened.schema_arrow.names), inputs)
            for part in opened.iter_batches(AT_ONCE, columns=list(inputs.encoder.columns)):
                yield from (Row(f"{path}:{next(numbers)}", row) for row in part.to_pylist())
    except (arrow.ArrowException, OSError) as error:
        yield Row(str(path), None, f"is no whole Parquet file ({str(error).splitlines()[0]})")


def _npz_rows(path: Path, inputs: TableInputs) -> Iterator[Row]:
    columns: dict[str, Any] = {}
    for name, array in read_arrays(path).items():
        columns |= {name: array} if array.ndim == 1 else {f"{name}{i}": array[:, i] for i in range(array.shape[1])}
    _check_columns(str(path), list(columns), inputs)
    wanted = {name: columns[name] for name in inputs.encoder.columns}
    for number, values in enumerate(zip(*wanted.values(), strict=True), 1):
        yield Row(f"{path}:{number}", dict(zip(wanted, (value.item() for value in values), strict=True)))


def _arrays(path: Path, inputs: Inputs) -> Iterator[Row]:
    if path.suffix.lower() in CSV and isinstance(inputs, PointInputs):
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = list(csv.reader(stream))
        return (Row(f"{path}:{number}", row) for number, row in enumerate(rows[1:], 1))
    if path.suffix.lower() != ".npz":
        raise OptionError(f"this model takes {inputs.kind} from NPZ files, got {path.name!r}")
    wanted = 3 if isinstance(inputs, SequenceInputs) else 2
    found = _only(path, lambda array: array.ndim == wanted and array.dtype.kind in "iuf", f"{wanted}-dimensional")
    return (Row(f"{path}:{place}", row) for place, row in enumerate(found, 1))


def _only(path: Path, fits: Any, what: str) -> Any:
    arrays = read_arrays(path)
    found = [array for array in arrays.values() if fits(array)]
    if len(found) != 1:
        raise DataError(f"{path} must hold one array of {what}, got {len(found)} among {listed(list(arrays))}")
    return found[0]


def _check_columns(name: str, names: list[str], inputs: TableInputs) -> None:
    lacking = [column for column in inputs.encoder.columns if column not in names]
    if lacking:
        raise DataError(
            f"{name} lacks the columns {listed(lacking)} that the model was fitted on; it has {listed(names) or 'none'}"
            f"{nearest(lacking[0], names)}"
        )
