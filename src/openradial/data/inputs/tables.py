"""Rows of a table, encoded as the training rows were."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from openradial.data.inputs.base import Inputs, in_parts
from openradial.data.readers.tables import Table
from openradial.data.table_encoder import NumberFeature, TableEncoder


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

    @property
    def columns(self) -> tuple[str, ...]:
        return self.encoder.columns

    def prepare(self, raw: Table | Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Tensor:
        if not isinstance(raw, Table):
            numbers = {feature.name: isinstance(feature, NumberFeature) for feature in self.encoder.features}
            raw = Table.from_rows(_rows(raw), numbers)
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


def _rows(raw: Any) -> Any:
    return [raw] if isinstance(raw, Mapping) else raw
