"""Tables: columns of numbers and words, one of which may hold the labels."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from openradial.data.readers.columns import Column, Numbers, number_column, word_column
from openradial.data.readers.table_files import check_lengths, check_row, read_columns, table_errors
from openradial.errors import DataError, OptionError, listed, nearest

LARGEST = 1e150  # squares of larger numbers have no finite sum
WHOLE = re.compile(r"([+-]?\d+)\.0*")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?")


@dataclass(frozen=True, eq=False)
class Table:
    """Feature columns and labels of a file; :class:`TableEncoder` turns them into examples.

    ``labels`` ``(n,)`` are indices into ``classes``, or -1 throughout if no column holds labels.
    """

    columns: Mapping[str, Column]
    labels: Tensor
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            if len(column) != len(self.labels):
                lengths = f"{name!r} has {len(column)} values for {len(self.labels)} rows"
                raise DataError(f"columns must be of one length: {lengths}")
            if isinstance(column, Numbers) and (is_large := np.abs(column.values) > LARGEST).any():
                row = int(is_large.argmax())
                wanted = "finite number" if np.isinf(column.values[row]) else f"number up to {LARGEST:g}"
                message = f"expected a {wanted}, got {column.values[row]}; correct it, or leave it empty"
                raise DataError(message, row=row + 1, column=name)

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def from_rows(cls, rows: Sequence[Mapping[str, Any]], numbers: Mapping[str, bool]) -> Self:
        """Return rows as a table without labels; ``numbers`` says of each column whether it holds numbers."""
        for number, row in enumerate(rows, 1):
            check_row(row, numbers, number)
        columns: dict[str, Column] = {}
        for name, is_number in numbers.items():
            values = [row[name] for row in rows]
            columns[name] = number_column(name, values) if is_number else word_column(values)
        return cls(columns, torch.full((len(rows),), -1), ())

    def select(self, which: Tensor) -> Self:
        """Return the rows at the given indices, or where a mask is true."""
        rows = which.cpu().numpy()
        columns = {name: column.select(rows) for name, column in self.columns.items()}
        return type(self)(columns, self.labels[which], self.classes)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a mapping from column to value."""
        columns = {name: column.to_list() for name, column in self.columns.items()}
        return (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))


def read_table(
    path: Path | str,
    *,
    label: str | None,
    features: Sequence[str] | None = None,
    words: Collection[str] = (),
    delimiter: str | None = None,
) -> Table:
    """Read a table from a CSV, JSON Lines, Parquet or NPZ file.

    ``label`` names the column with the classes, or is None where there is none. ``features`` names the columns to use,
    by default all others. ``words`` names columns whose numbers are codes and not quantities; numbers with leading
    zeros always are. The delimiter of a CSV file (comma, semicolon or tab) is found from its header.
    """
    path = Path(path)
    words = {*words, label} if label is not None else set(words)  # labels are words, so that no integer is rounded
    with table_errors(path):
        columns = read_columns(path, lambda names: select_columns(names, label, features), words, delimiter)
        check_lengths(columns)
        rows = len(next(iter(columns.values())))
        if rows == 0:
            raise DataError("expected rows below the column names, got none")
        table = {name: column for name, column in columns.items() if name != label}
        if label is None:
            return Table(table, torch.full((rows,), -1), ())
        return Table(table, *classes_of(label, columns[label]))


def classes_of(name: str, column: Column) -> tuple[Tensor, tuple[str, ...]]:
    """Return labels and classes of a label column: ``1.0`` is the class ``1``, and numbers are in numeric order."""
    if column.missing().any():
        message = f"each row needs a label, but {int(column.missing().sum())} have none; fill it in or remove the rows"
        raise DataError(message, row=int(column.missing().argmax()) + 1, column=name)
    assert not isinstance(column, Numbers)
    names = [WHOLE.sub(r"\1", name) if WHOLE.fullmatch(name) else name for name in column.categories]
    are_numbers = all(map(NUMBER.fullmatch, names))
    classes = sorted(set(names), key=lambda name: (Decimal(name) if are_numbers else 0, name))
    index = {name: i for i, name in enumerate(classes)}
    indices = torch.tensor([index[name] for name in names], dtype=torch.int64)
    return indices[torch.from_numpy(column.codes)], tuple(classes)


def select_columns(names: Sequence[str], label: str | None, features: Sequence[str] | None) -> list[str]:
    """Return the columns to read: the features, then the label."""
    for name in [*(features or ()), label]:
        if name is not None and name not in names:
            what = "label column" if name == label else "column"
            there = f"the columns are {listed(names) or 'none'}{nearest(name, names)}"
            raise DataError(f"there is no {what} of this name; {there}", column=name)
    selected = list(names if features is None else features)
    if len(set(selected)) < len(selected):
        raise OptionError(f"features must name each column once, got {', '.join(selected)}")
    if label in selected:
        if features is not None:
            raise OptionError(f"features must not contain the label column {label!r}; remove it")
        selected.remove(label)
    if not selected and features is None:
        raise DataError(f"there is no column besides the label {label!r}; a table needs at least one feature")
    return selected if label is None else [*selected, label]
