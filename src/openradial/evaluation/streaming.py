"""Predictions of rows as they come: in batches, in bounded memory, and past rows that are broken."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from openradial.bundle import Predictions
from openradial.errors import DataError, DTypeError, ShapeError
from openradial.evaluation.rows import Row

Predict = Callable[[Sequence[Any]], Predictions]
AT_ONCE = 1024  # rows
BROKEN = (DataError, ShapeError, DTypeError)  # what a single input may cause


class Run(NamedTuple):
    """Rows that follow each other, with their predictions or with what is wrong with the only one."""

    rows: list[Row]
    predictions: Predictions | None
    error: str | None = None


def predict_rows(predict: Predict, rows: Iterable[Row], at_once: int = AT_ONCE) -> Iterator[Run]:
    """Predict rows in their order, ``at_once`` at a time; a broken row costs itself alone."""
    rows = iter(rows)
    while part := list(islice(rows, at_once)):
        yield from _runs(predict, part)


def records(run: Run) -> Iterator[dict[str, Any]]:
    """One record per row, as JSON can hold it: ``input`` and what is said of it, or ``input`` and ``error``."""
    if run.predictions is None:
        yield {"input": run.rows[0].name, "error": run.error}
        return
    for row, said in zip(run.rows, run.predictions.rows(), strict=True):
        yield {"input": row.name, **said}


def _runs(predict: Predict, rows: list[Row]) -> Iterator[Run]:
    """Halve until what is broken stands alone."""
    run = _tried(predict, rows)
    if run is not None:
        yield run
        return
    half = len(rows) // 2
    yield from _runs(predict, rows[:half])
    yield from _runs(predict, rows[half:])


def _tried(predict: Predict, rows: list[Row]) -> Run | None:
    """The rows as one run, or None if several hold one that is broken."""
    wrong = next((row.error for row in rows if row.error is not None), None)
    if wrong is None:
        try:
            return Run(rows, predict([row.raw for row in rows]))
        except BROKEN as error:
            wrong = _of_one_row(str(error)).removeprefix(f"{rows[0].name} ")
    return Run(rows, None, wrong) if len(rows) == 1 else None


def _of_one_row(message: str) -> str:
    """The message without the number of the row in its batch, which is always the first.

    >>> _of_one_row("column 'a' must hold numbers, got 'x' in row 1; correct it")
    "column 'a' must hold numbers, got 'x'; correct it"
    """
    return re.sub(r" (?:in|as) row 1\b", "", re.sub(r"^row 1 ", "the row ", message))
