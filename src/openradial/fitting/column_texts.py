"""Free text beside the other columns of a table: its features, and their weight."""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from openradial.data.examples import Examples
from openradial.data.inputs import Inputs, TableInputs
from openradial.data.readers.columns import word_column
from openradial.data.readers.tables import Table
from openradial.data.readers.texts import COLUMN
from openradial.data.sources import DataSource
from openradial.encoders import Encoder
from openradial.encoders.networks import MixedEncoder
from openradial.errors import OptionError, listed
from openradial.fitting.encoding import encode_source
from openradial.fitting.options import FitOptions
from openradial.heads.ridge import best_alpha
from openradial.scorers.statistics import ClassStatistics

RATIOS = (0.5, 1.0, 2.0)  # of the spread of the text to that of the other columns
ROWS = 2_000  # that choose one of these


class ColumnTexts(NamedTuple):
    """The encoder of the free text of a table beside its other columns, and the weighted features of the text."""

    encoder: Encoder
    train: Tensor
    test: Tensor | None
    notes: tuple[str, ...]


def encode_texts(options: FitOptions, source: DataSource, inputs: Inputs, train: Examples) -> ColumnTexts | None:
    """Encode the free text of a table, if it has any; ``train`` are the indices and labels of the training rows."""
    if not isinstance(inputs, TableInputs) or not inputs.encoder.texts:
        if options.encoder == "auto":
            return None
        message = f"{source.name} has no column of free text for the encoder {options.encoder}"
        raise OptionError(f"{message}; name the column of texts with text (--text), or leave the encoder out")
    tables = [table for table in (source.train, source.test) if isinstance(table, Table)]
    texts = [replace(table, columns={COLUMN: word_column(inputs.encoder.join_texts(table))}) for table in tables]
    as_texts = DataSource(source.name, "texts", texts[0], texts[1] if texts[1:] else None, text=COLUMN)
    encoded, encoder, notes = encode_source(options, as_texts)
    assert encoder is not None
    assert isinstance(encoded.train, Examples)
    columns = inputs.encoder.apply(tables[0].select(train.inputs), novel="unknown").inputs
    weight = choose_weight(columns, encoded.train.inputs[train.inputs], train.labels)
    test = weight * encoded.test.inputs if isinstance(encoded.test, Examples) else None
    notes = (f"free text is encoded by {encoder.name}: {listed(inputs.encoder.texts)}", *notes)
    net, inputs = MixedEncoder(encoder.net, columns.shape[1], weight), replace(inputs, tokens=encoder.inputs)  # type: ignore[arg-type]
    return ColumnTexts(replace(encoder, net=net, inputs=inputs), weight * encoded.train.inputs, test, notes)


def choose_weight(columns: Tensor, z: Tensor, y: Tensor) -> float:
    """Return the weight of the features of texts ``(n, d)`` beside other columns ``(n, m)``.

    With a ratio of 1 both have the same variance in all. Of three ratios, ridge regression on at most 2,000 rows
    chooses the one with the smallest leave-one-out error.
    """
    spread, unit = (float((x.double() - x.double().mean(0)).square().sum()) for x in (columns, z))
    if not (spread and unit):  # no other columns, or all rows are equal
        return 1.0
    rows = torch.linspace(0, len(y) - 1, min(len(y), ROWS)).long()
    classes, labels = torch.unique(y[rows], return_inverse=True)

    def error(weight: float) -> float:
        both = torch.cat([columns[rows], weight * z[rows]], 1).double()
        return best_alpha(ClassStatistics.of(both, labels, len(classes)), both, labels, is_all=True)[0]

    return min((ratio * math.sqrt(spread / unit) for ratio in RATIOS), key=error)
