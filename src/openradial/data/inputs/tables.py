"""Rows of a table, encoded as the training rows were."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from openradial.data.inputs.base import Inputs, in_parts
from openradial.data.readers.table_files import MISSING, Column, Numbers, Words
from openradial.data.readers.tables import Table
from openradial.data.table_encoder import NumberFeature, TableEncoder
from openradial.errors import DataError, listed, nearest

Row = Mapping[str, Any]


@dataclass(frozen=True)
class TableInputs(Inputs):
    """Rows by the encoder that was fitted on the training table.

    Raw rows are a :class:`openradial.data.Table`, or mappings from column to value, of which other columns than the
    encoder's are not looked at. None, nan and what counts as missing in a file (an empty text, ``NA``) are gaps.

    >>> encoder = TableEncoder((NumberFeature("length", mean=2.0, shift=2.0, scale=0.5),), ("a", "b"))
    >>> TableInputs(encoder).prepare([{"length": 3.0}, {"length": "1.5", "comment": "?"}])
    tensor([[ 2.],
            [-1.]])
    """

    kind: ClassVar[str] = "table"
    dtype: ClassVar[torch.dtype] = torch.float32

    encoder: TableEncoder

    @property
    def shape(self) -> tuple[int | None, ...]:
        return (len(self.encoder.inputs),)

    def prepare(self, raw: Table | Row | Sequence[Row]) -> Tensor:
        if not isinstance(raw, Table):
            raw = self._table(_rows(raw))
        return self.encoder.apply(raw, novel="unknown").inputs

    def chunks(self, raw: Any) -> Iterator[Any]:
        rows = self.rows_at_once(len(self.encoder.inputs))
        if isinstance(raw, Tensor):
            yield from torch.split(raw, rows)
        elif isinstance(raw, Table):
            yield from (raw.select(torch.arange(at, min(at + rows, len(raw)))) for at in range(0, len(raw), rows))
        else:
            yield from in_parts(_rows(raw), rows)

    def record(self) -> dict[str, Any]:
        return {"encoder": json.loads(self.encoder.to_json())}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        return cls(TableEncoder.from_json(json.dumps(record["encoder"])))

    def _table(self, rows: Sequence[Row]) -> Table:
        columns = {
            feature.name: (_numbers if isinstance(feature, NumberFeature) else _words)(feature.name, rows)
            for feature in self.encoder.features
        }
        return Table(columns, torch.full((len(rows),), -1), ())


def _rows(raw: Any) -> Any:
    return [raw] if isinstance(raw, Mapping) else raw


def _values(name: str, rows: Sequence[Row]) -> list[Any]:
    """A column's values, None where one is missing."""
    values = []
    for place, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise DataError(f"a row must be a mapping from column to value, got {type(row).__name__} as row {place}")
        if name not in row:
            own = listed([str(key) for key in row])
            raise DataError(f"row {place} has no column {name!r}; its columns are {own or 'none'}{_hint(name, row)}")
        values.append(None if _is_gap(row[name]) else row[name])
    return values


def _hint(name: str, row: Row) -> str:
    return nearest(name, [str(key) for key in row])


def _is_gap(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip() in MISSING
    return value is None or (isinstance(value, float | np.floating) and bool(np.isnan(value)))


def _numbers(name: str, rows: Sequence[Row]) -> Column:
    numbers = np.full(len(rows), np.nan)
    for place, value in enumerate(_values(name, rows)):
        if value is None:
            continue
        try:
            numbers[place] = float(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"column {name!r} must hold numbers, got {value!r} in row {place + 1}; correct it"
            ) from error
        if not np.isfinite(numbers[place]):
            raise DataError(f"column {name!r} must hold finite numbers, got {value!r} in row {place + 1}; correct it")
    return Numbers(numbers)


def _words(name: str, rows: Sequence[Row]) -> Column:
    words = [None if value is None else str(value).strip() for value in _values(name, rows)]
    categories = sorted({word for word in words if word is not None})
    place = {word: i for i, word in enumerate(categories)}
    return Words(np.array([-1 if word is None else place[word] for word in words], dtype=np.int64), tuple(categories))
