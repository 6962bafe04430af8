"""Sequences in text files: ``.ts`` (aeon, sktime, timeseriesclassification.com) and ``.tsv`` (the UCR archive).

Sequences of different length are padded at the end with NaN. Missing values inside a sequence are filled in: on the
straight line between their neighbours, or with the nearest value at an end. No NaN is left before the padding.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from openradial.data.examples import Examples
from openradial.data.readers.columns import parse_numbers
from openradial.errors import DataError

Values = NDArray[np.float32]  # (t, c)


def read_ts(path: Path | str) -> Examples:
    """Read a ``.ts`` file: a header of ``@`` lines, then one example per line, ``channel:channel:...:label``."""
    lines = read_lines(Path(path))
    classes, start = _header(lines, path)
    rows, labels = [], []
    for i, line in enumerate(lines[start:], start=start + 1):
        if line.strip():
            *channels, label = line.strip().split(":")
            rows.append(_channels(channels, f"{path}, line {i}"))
            labels.append(label.strip())
    return _examples(rows, labels, classes, path)


def read_tsv(path: Path | str, *, classes: Iterable[str] | None = None) -> Examples:
    """Read a ``.tsv`` file of one channel: each line is a label and the values, separated by tabs.

    Trailing NaN mean that a sequence has ended. ``classes`` are the labels in the file unless given.
    """
    return parse_tsv(read_lines(Path(path)), path, classes=classes)


def parse_tsv(lines: Sequence[str], where: Path | str, *, classes: Iterable[str] | None = None) -> Examples:
    """Read the lines of a ``.tsv`` file."""
    rows, labels = [], []
    for i, line in enumerate(lines, start=1):
        if line.strip():
            label, *fields = line.rstrip("\r\n").split("\t")
            try:
                is_class = float(label).is_integer()  # other numbers begin a row whose label is missing
            except ValueError:
                is_class = label.strip() != ""
            if not is_class:
                message = f"expected a class label in the first column, got {label!r}; is the label missing?"
                raise DataError(f"{where}, line {i}: {message}")
            labels.append(label.strip())
            rows.append(_series(fields, f"{where}, line {i}"))
    return _examples(rows, labels, label_names(labels) if classes is None else tuple(classes), where)


def read_lines(path: Path) -> list[str]:
    """Read the lines of a UTF-8 text file."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} should be text in UTF-8, but {error}; is it packed?") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def label_names(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the different labels in order: by number where all are numbers, else by letter."""
    names = sorted(set(labels))
    try:
        return tuple(sorted(names, key=float))
    except ValueError:
        return tuple(names)


def _header(lines: Sequence[str], path: Path | str) -> tuple[tuple[str, ...], int]:
    """Return the classes, and the index of the first line of data."""
    tags: dict[str, list[str]] = {}
    for i, line in enumerate(lines):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if not words[0].startswith("@"):
            raise DataError(f"{path}, line {i + 1}: expected a header line like @problemName, got {line[:40]!r}")
        if words[0].lower() == "@data":
            return _classes(tags, path), i + 1
        tags[words[0].lower()] = words[1:]
    raise DataError(f"{path} should have a line @data after its header and has none; is this a .ts file?")


def _classes(tags: dict[str, list[str]], path: Path | str) -> tuple[str, ...]:
    if [word.lower() for word in tags.get("@timestamps", [])] == ["true"]:
        raise DataError(f"{path} has time stamps, which cannot be read; write it with @timeStamps false")
    given, *classes = tags.get("@classlabel", ["false"]) or ["false"]
    if given.lower() != "true" or not classes:
        line = " ".join(["@classLabel", *tags["@classlabel"]]) if "@classlabel" in tags else "no such line"
        raise DataError(f"{path} should name its classes, @classLabel true NAME NAME ..., got {line}")
    return tuple(classes)


def _channels(channels: Sequence[str], where: str) -> Values:
    if not channels:
        raise DataError(f"{where}: expected channel:...:label, got a line without ':'; the label is missing")
    columns = [_numbers(channel.split(","), where) for channel in channels]
    lengths = sorted({len(column) for column in columns})
    if len(lengths) > 1:
        raise DataError(f"{where}: the channels of a sequence must be equally long, got {lengths[0]} and {lengths[-1]}")
    return _filled(np.stack(columns, axis=1), where)


def _series(fields: Sequence[str], where: str) -> Values:
    values = _numbers(fields, where)
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        raise DataError(f"{where}: expected a label and values separated by tabs, got no value")
    return _filled(values[: known[-1] + 1, None], where)


def _numbers(fields: Sequence[str], where: str) -> Values:
    values = parse_numbers(fields)
    if values is None:
        wrong = next(field for field in fields if parse_numbers([field]) is None)
        raise DataError(f"{where}: expected numbers, or ? where one is missing, got {wrong[:40]!r}")
    if (abs(values) > np.finfo(np.float32).max).any():
        raise DataError(f"{where}: expected numbers that fit into float32, got {values[np.nanargmax(abs(values))]}")
    return values.astype(np.float32)


def _filled(values: Values, where: str) -> Values:
    """Fill in missing values from the same channel."""
    missing = np.isnan(values)
    if missing.all(axis=0).any():
        empty = int(missing.all(axis=0).argmax())
        raise DataError(f"{where}: channel {empty} has no value at all; leave this example out")
    for channel in np.flatnonzero(missing.any(axis=0)):
        gap = missing[:, channel]
        values[gap, channel] = np.interp(np.flatnonzero(gap), np.flatnonzero(~gap), values[~gap, channel])
    return values


def _examples(rows: list[Values], labels: list[str], classes: tuple[str, ...], where: Path | str) -> Examples:
    if not rows:
        raise DataError(f"{where} should have one example per line and has none")
    channels = {row.shape[1] for row in rows}
    if len(channels) > 1:
        raise DataError(f"{where}: all examples must have as many channels, got {min(channels)} and {max(channels)}")
    numbers = {name: i for i, name in enumerate(classes)}
    unlisted = next((label for label in labels if label not in numbers), None)
    if unlisted is not None:
        raise DataError(f"{where}: label {unlisted!r} is not one of the classes {', '.join(classes)}")
    inputs = pad_sequence(list(map(torch.from_numpy, rows)), batch_first=True, padding_value=np.nan)  # (n, t, c)
    return Examples(inputs, torch.tensor([numbers[label] for label in labels]), classes)
