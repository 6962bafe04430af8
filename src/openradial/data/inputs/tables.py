"""Rows of a table, encoded as the training rows were."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openradial.data.inputs.base import Inputs
from openradial.data.inputs.texts import TextInputs, TokenInputs
from openradial.data.readers.columns import Column, Numbers
from openradial.data.readers.tables import Table
from openradial.data.table_encoder import TableEncoder
from openradial.errors import DataError


@dataclass(frozen=True)
class TableInputs(Inputs):
    """Rows by the encoder that was fitted on the training table.

    Raw rows are a :class:`openradial.data.Table`; mappings from column to value, where other columns are ignored; or,
    if all columns hold numbers, a NumPy array ``(b, columns)``. A value is missing if it is None, nan, or what counts
    as missing in a file (an empty text, ``NA``). Prepared rows are numbers ``(b, d)``; with free text the ``tokens`` of
    each row follow, as numbers too.

    >>> from openradial.data.table_encoder import NumberFeature
    >>> encoder = TableEncoder((NumberFeature("length", mean=2.0, shift=2.0, scale=0.5),), ("a", "b"))
    >>> TableInputs(encoder).prepare([{"length": 3.0}, {"length": "1.5", "comment": "?"}])
    tensor([[ 2.],
            [-1.]])
    """

    kind: ClassVar[str] = "table"

    encoder: TableEncoder
    tokens: TextInputs | TokenInputs | None = None  # how the free text of a row becomes tokens, beside its numbers

    @property
    def shape(self) -> tuple[int | None, ...]:
        return (len(self.encoder.inputs),) if self.tokens is None else (None,)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.encoder.columns

    def prepare(self, raw: Table | Mapping[str, Any] | Sequence[Mapping[str, Any]] | NDArray[Any]) -> Tensor:
        if isinstance(raw, np.ndarray):
            raw = self._table(raw)
        if not isinstance(raw, Table):
            numbers = {name: name not in self.encoder.word_columns for name in self.columns}
            raw = Table.from_rows(self.items(raw), numbers)
        known = {name: column for name, column in raw.columns.items() if name in self.columns}
        table = replace(raw, columns=known)
        x = self.encoder.apply(table, novel="unknown").inputs
        if self.tokens is None:
            return x
        tokens = self.tokens.prepare(self.encoder.join_texts(table))
        padding = tokens.new_full((len(x), int(tokens.shape[1] < 2)), getattr(self.tokens, "pad", 0))
        return torch.cat([x, tokens, padding], 1)  # at least two tokens: an exported graph is not traced for one

    def check(self, x: Tensor) -> None:
        super().check(x)
        if self.tokens is not None:
            self.tokens.check(x[:, len(self.encoder.inputs) :].long())

    def rows_at_once(self, items: Any) -> int:
        return super().rows_at_once(items) if self.tokens is None else self.tokens.rows_at_once(items)

    def items(self, raw: Any) -> Any:
        return [raw] if isinstance(raw, Mapping) else raw

    def chunks(self, raw: Any) -> Iterator[Any]:
        table = self._table(raw) if isinstance(raw, np.ndarray) else raw
        if isinstance(table, Table):
            yield from map(table.select, torch.split(torch.arange(len(table)), self.rows_at_once(table)))
        else:
            yield from super().chunks(table)

    def _table(self, rows: NDArray[Any]) -> Table:
        """Return an array of numbers as a table: one column per feature, in their order."""
        features = self.encoder.features
        if self.encoder.word_columns:
            raise DataError("the table has columns of words; pass rows as mappings from column to value")
        if rows.dtype.kind not in "biuf" or rows.ndim != 2 or rows.shape[1] != len(features):
            wanted = f"numbers of shape (b, {len(features)}), one column per feature"
            raise DataError(f"expected {wanted}, got {rows.dtype} of shape {rows.shape}")
        return Table(number_columns(rows, self.columns), torch.full((len(rows),), -1), ())

    def record(self) -> dict[str, Any]:
        return {"encoder": json.loads(self.encoder.to_json()), "tokens": self.tokens and self.tokens.record()}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        tokens = record["tokens"]
        kind = TokenInputs if "tokenizer" in (tokens or ()) else TextInputs
        return cls(TableEncoder.from_json(json.dumps(record["encoder"])), tokens and kind.from_record(tokens))


def number_columns(rows: NDArray[Any], names: Sequence[str]) -> dict[str, Column]:
    """Return an array ``(n, columns)`` as columns by name; NaN is a missing value."""
    return {name: Numbers(column.astype(np.float64)) for name, column in zip(names, rows.T, strict=True)}
