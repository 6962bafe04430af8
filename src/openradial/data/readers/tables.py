"""Tables: one row per example, columns of numbers and words, one of them the label."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openradial.data.readers.table_files import Column, Columns, Numbers, Words, read_csv, read_npz, read_parquet
from openradial.errors import DataError, OptionError, listed, nearest

CSV, PARQUET, NPZ = (".csv", ".tsv", ".txt"), (".parquet", ".pq"), (".npz",)
WHOLE = re.compile(r"([+-]?\d+)\.0*")


@dataclass(frozen=True, eq=False)
class Table:
    """Feature columns and labels as they are in a file; :class:`TableEncoder` turns them into examples.

    ``labels`` ``(n,)`` are places in ``classes``, or -1 throughout if no column holds labels.
    """

    columns: Mapping[str, Column]
    labels: Tensor
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            if len(column) != len(self.labels):
                raise DataError(
                    f"columns must be of one length: {name!r} has {len(column)} values for {len(self.labels)} rows"
                )

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, which: Tensor) -> Self:
        """The rows at the given places, or where a mask is true."""
        rows = which.cpu().numpy()
        columns = {name: column.select(rows) for name, column in self.columns.items()}
        return type(self)(columns, self.labels[which], self.classes)


def read_table(
    path: Path | str,
    *,
    label: str | None,
    features: Sequence[str] | None = None,
    words: Collection[str] = (),
    delimiter: str | None = None,
) -> Table:
    """Read a table from CSV (``.csv``, ``.tsv``, ``.txt``), Parquet or NPZ.

    ``label`` names the column with the classes, or is None where there is none. ``features`` names the columns to use,
    by default all others. ``words`` names columns whose numbers are codes and not quantities. The delimiter of a CSV
    file (comma, semicolon or tab) is found from its header.
    """
    path = Path(path)
    _check_file(path)

    def choose(names: Sequence[str]) -> list[str]:
        return _chosen(path, names, label, features)

    if path.suffix.lower() in CSV:
        # labels are words whatever they look like
        columns = read_csv(path, choose, words={*words, label} if label else words, delimiter=delimiter)
    else:
        columns = (read_parquet if path.suffix.lower() in PARQUET else read_npz)(path, choose, words=words)
    return _table(path, columns, label)


def _table(path: Path, columns: Columns, label: str | None) -> Table:
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{path}: arrays must have one row per example, got lengths {lengths}")
    rows = next(iter(lengths.values()))
    if rows == 0:
        raise DataError(f"{path} names columns and has no rows")
    features = {name: column for name, column in columns.items() if name != label}
    for name, column in features.items():
        _check_finite(path, name, column)
    if label is None:
        return Table(features, torch.full((rows,), -1), ())
    labels, classes = _labels(path, label, columns[label])
    return Table(features, labels, classes)


def _check_file(path: Path) -> None:
    if path.suffix.lower() not in (*CSV, *PARQUET, *NPZ):
        raise OptionError(f"a table must be one of {', '.join((*CSV, *PARQUET, *NPZ))}, got {path.name!r}; convert it")
    if not path.is_file():
        raise DataError(f"expected a table at {path}; there is no such file")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty (0 bytes); write or copy it again")


def _chosen(path: Path, names: Sequence[str], label: str | None, features: Sequence[str] | None) -> list[str]:
    """The columns to read: the features, then the label."""
    for name in [*(features or ()), *([label] if label is not None else [])]:
        if name not in names:
            what = "label column" if name == label else "column"
            raise DataError(
                f"{path} has no {what} {name!r}; its columns are {listed(names) or 'none'}{nearest(name, names)}"
            )
    chosen = list(names if features is None else features)
    if len(set(chosen)) < len(chosen):
        raise OptionError(f"features must name each column once, got {', '.join(chosen)}")
    if label in chosen:
        if features is not None:
            raise OptionError(f"features must not hold the label column {label!r}; take it out")
        chosen.remove(label)
    if not chosen:
        raise DataError(f"{path} has no column besides the label {label!r}; a table needs at least one feature")
    return chosen if label is None else [*chosen, label]


def _check_finite(path: Path, name: str, column: Column) -> None:
    if isinstance(column, Numbers) and np.isinf(column.values).any():
        row = int(np.isinf(column.values).argmax())
        raise DataError(
            f"{path}: column {name!r} must hold finite numbers, got {column.values[row]} in row {row + 1}; "
            "correct it, or leave it empty and choose missing='mean'"
        )


def _labels(path: Path, name: str, column: Column) -> tuple[Tensor, tuple[str, ...]]:
    if column.missing().any():
        row = int(column.missing().argmax())
        raise DataError(
            f"{path}: each row needs a label, row {row + 1} has none in column {name!r} "
            f"({int(column.missing().sum())} in all); fill it in or leave the rows out"
        )
    if isinstance(column, Numbers):
        values, codes = np.unique(column.values, return_inverse=True)
        column = Words(codes, tuple(str(value) for value in values.tolist()))
    return _classes(column)


def _classes(column: Words) -> tuple[Tensor, tuple[str, ...]]:
    """Labels in the order of the class names; ``1.0`` is the class ``1``, and numbers are in the order of numbers."""
    names = [WHOLE.sub(r"\1", name) if WHOLE.fullmatch(name) else name for name in column.categories]
    try:
        classes = sorted(set(names), key=lambda name: (float(name), name))
    except ValueError:
        classes = sorted(set(names))
    place: dict[str, int] = {name: i for i, name in enumerate(classes)}
    places: NDArray[np.int64] = np.array([place[name] for name in names], dtype=np.int64)
    return torch.from_numpy(places[column.codes]), tuple(classes)
