"""Predict inputs as they are read: in batches, in bounded memory, and past inputs that are broken."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from openradial.classifier.predictions import Predictions
from openradial.data.sources import RawInput
from openradial.errors import DataError, DTypeError, ShapeError

BATCH = 256  # inputs; so that progress is seen
BROKEN = (DataError, ShapeError, DTypeError)  # what a single input may cause


class PredictedRows(NamedTuple):
    """Inputs in their order with their predictions, or a single one with its error."""

    rows: list[RawInput]
    predictions: Predictions | None
    error: str | None = None


def predict_rows(
    predict: Callable[[Sequence[Any]], Predictions], rows: Iterable[RawInput], batch_size: int = BATCH
) -> Iterator[PredictedRows]:
    """Predict inputs in their order, ``batch_size`` at a time; a broken input does not affect the others."""
    rows = iter(rows)
    while batch := list(islice(rows, batch_size)):
        yield from _predict(predict, batch)


def records(part: PredictedRows) -> Iterator[dict[str, Any]]:
    """Yield one JSON record per input: ``input`` and its prediction, or ``input`` and ``error``."""
    if part.predictions is None:
        yield {"input": part.rows[0].name, "error": part.error}
        return
    for row, prediction in zip(part.rows, part.predictions, strict=True):
        yield {"input": row.name, **prediction.as_dict()}


def _predict(predict: Callable[[Sequence[Any]], Predictions], rows: list[RawInput]) -> Iterator[PredictedRows]:
    """Predict a batch; halve it until what is broken is alone."""
    error: BaseException | None = next((row.error for row in rows if row.error is not None), None)
    if error is None:
        try:
            yield PredictedRows(rows, predict([row.raw for row in rows]))
            return
        except BROKEN as broken:
            error = broken
    if len(rows) == 1:
        assert isinstance(error, BROKEN)
        yield PredictedRows(rows, None, error.reason)  # the name of the input tells path and row
        return
    half = len(rows) // 2
    yield from _predict(predict, rows[:half])
    yield from _predict(predict, rows[half:])
