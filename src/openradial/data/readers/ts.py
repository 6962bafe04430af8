"""Sequences in text files: ``.ts`` (aeon, sktime, timeseriesclassification.com) and ``.tsv`` (the UCR archive).

Sequences of different length are padded at the end with NaN. Missing values inside a sequence are filled in: on the
straight line between their neighbours, or with the nearest value at an end. No NaN is left before the padding.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from openradial.data.examples import Examples
from openradial.data.readers.columns import parse_numbers
from openradial.errors import DataError, located
from openradial.files import expecting

Values = NDArray[np.float32]  # (t, c)
SequenceRow = tuple[int, str, Values]  # number of the line, label, values


def read_ts(path: Path | str) -> Examples:
    """Read a ``.ts`` file: a header of ``@`` lines, then one example per line, ``channel:channel:...:label``."""
    lines = read_lines(Path(path))
    with located(path):
        classes, start = _header(lines)
        return _examples(_rows(lines, path, _parse_ts, start), classes)


def read_tsv(path: Path | str, *, classes: Iterable[str] | None = None) -> Examples:
    """Read a ``.tsv`` file of one channel: each line is a label and the values, separated by tabs.

    Trailing NaN mean that a sequence has ended. ``classes`` are the labels in the file unless given.
    """
    return parse_tsv(read_lines(Path(path)), path, classes=classes)


def parse_tsv(lines: Sequence[str], path: Path | str, *, classes: Iterable[str] | None = None) -> Examples:
    """Read the lines of a ``.tsv`` file."""
    with located(path):
        rows = _rows(lines, path, _parse_tsv)
        return _examples(rows, label_names(label for _, label, _ in rows) if classes is None else tuple(classes))


def read_lines(path: Path) -> list[str]:
    """Read the lines of a UTF-8 text file."""
    with expecting("text in UTF-8", path, "is it packed?"):
        return path.read_text(encoding="utf-8").splitlines()


def label_names(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the different labels in order: by number where all are numbers, else by letter."""
    names = sorted(set(labels))
    try:
        return tuple(sorted(names, key=float))
    except ValueError:
        return tuple(names)


def _rows(
    lines: Sequence[str], path: Path | str, parse: Callable[[str], tuple[str, Values]], start: int = 0
) -> list[SequenceRow]:
    rows = []
    for number, line in enumerate(lines[start:], start=start + 1):
        if line.strip():
            with located(path, number):
                rows.append((number, *parse(line)))
    return rows


def _header(lines: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """Return the classes, and the index of the first line of data."""
    tags: dict[str, list[str]] = {}
    for i, line in enumerate(lines):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if not words[0].startswith("@"):
            raise DataError(f"expected a header line like @problemName, got {line[:40]!r}", row=i + 1)
        if words[0].lower() == "@data":
            return _classes(tags), i + 1
        tags[words[0].lower()] = words[1:]
    raise DataError("expected a line @data after the header, got none; is this a .ts file?")


def _classes(tags: dict[str, list[str]]) -> tuple[str, ...]:
    if [word.lower() for word in tags.get("@timestamps", [])] == ["true"]:
        raise DataError("time stamps cannot be read; write the file with @timeStamps false")
    given, *classes = tags.get("@classlabel", ["false"]) or ["false"]
    if given.lower() != "true" or not classes:
        line = " ".join(["@classLabel", *tags["@classlabel"]]) if "@classlabel" in tags else "no such line"
        raise DataError(f"expected the names of the classes, @classLabel true NAME NAME ..., got {line}")
    return tuple(classes)


def _parse_ts(line: str) -> tuple[str, Values]:
    *channels, label = line.strip().split(":")
    if not channels:
        raise DataError("expected channel:...:label, got a line without ':'; the label is missing")
    columns = [_numbers(channel.split(",")) for channel in channels]
    lengths = sorted({len(column) for column in columns})
    if len(lengths) > 1:
        raise DataError(f"the channels of a sequence must be equally long, got {lengths[0]} and {lengths[-1]}")
    return label.strip(), _filled(np.stack(columns, axis=1))


def _parse_tsv(line: str) -> tuple[str, Values]:
    label, *fields = line.rstrip("\r\n").split("\t")
    try:
        is_class = float(label).is_integer()  # other numbers begin a row whose label is missing
    except ValueError:
        is_class = label.strip() != ""
    if not is_class:
        raise DataError(f"expected a class label in the first column, got {label!r}; is the label missing?")
    values = _numbers(fields)
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        raise DataError("expected a label and values separated by tabs, got no value")
    return label.strip(), _filled(values[: known[-1] + 1, None])


def _numbers(fields: Sequence[str]) -> Values:
    values = parse_numbers(fields)
    if values is None:
        wrong = next(field for field in fields if parse_numbers([field]) is None)
        raise DataError(f"expected numbers, or ? where one is missing, got {wrong[:40]!r}")
    if (abs(values) > np.finfo(np.float32).max).any():
        raise DataError(f"expected numbers that fit into float32, got {values[np.nanargmax(abs(values))]}")
    return values.astype(np.float32)


def _filled(values: Values) -> Values:
    """Fill in missing values from the same channel."""
    missing = np.isnan(values)
    if missing.all(axis=0).any():
        empty = int(missing.all(axis=0).argmax())
        raise DataError(f"channel {empty} has no value at all; leave this example out")
    for channel in np.flatnonzero(missing.any(axis=0)):
        gap = missing[:, channel]
        values[gap, channel] = np.interp(np.flatnonzero(gap), np.flatnonzero(~gap), values[~gap, channel])
    return values


def _examples(rows: list[SequenceRow], classes: tuple[str, ...]) -> Examples:
    if not rows:
        raise DataError("expected one example per line, got none")
    numbers, channels = {name: i for i, name in enumerate(classes)}, rows[0][2].shape[1]
    for row, label, values in rows:
        if values.shape[1] != channels:
            message = f"expected as many channels as in the first example, {channels}, got {values.shape[1]}"
            raise DataError(message, row=row)
        if label not in numbers:
            raise DataError(f"label {label!r} is not one of the classes {', '.join(classes)}", row=row)
    sequences = [torch.from_numpy(values) for _, _, values in rows]
    inputs = pad_sequence(sequences, batch_first=True, padding_value=np.nan)  # (n, t, c)
    return Examples(inputs, torch.tensor([numbers[label] for _, label, _ in rows]), classes)
