"""Turn the columns of a table into numbers that a network takes, always in the same way."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openradial.data.examples import Examples
from openradial.data.readers.columns import Column, Numbers, Words
from openradial.data.readers.tables import Table, read_table
from openradial.errors import DataError, check_choice, listed, nearest

FORMAT = "openradial table encoder 1"
MOST_CATEGORIES = 1000  # a column with more is text or an identifier

Missing = Literal["error", "mean"]
Unknown = Literal["error", "zeros"]
Novel = Literal["error", "unknown"]


@dataclass(frozen=True)
class NumberFeature:
    """A column of numbers, encoded as one input: ``(value - shift) / scale``; ``mean`` fills gaps."""

    name: str
    mean: float
    shift: float
    scale: float

    @property
    def width(self) -> int:
        return 1


@dataclass(frozen=True)
class WordFeature:
    """A column of words, encoded as one input per category: 0 or 1, or the share of the category for a missing word."""

    name: str
    categories: tuple[str, ...]
    shares: tuple[float, ...]

    @property
    def width(self) -> int:
        return len(self.categories)


Feature = NumberFeature | WordFeature


@dataclass(frozen=True)
class TableEncoder:
    """The encoding of a table's columns, learnt from training rows and applied to any others.

    Numbers are standardised unless ``standardise=False``, words become one 0/1 input per category. ``missing="mean"``
    fills gaps with the mean of the training rows; ``unknown="zeros"`` accepts words that these did not have.
    """

    features: tuple[Feature, ...]
    classes: tuple[str, ...]
    missing: Missing = "error"
    unknown: Unknown = "error"

    def __post_init__(self) -> None:
        check_choice("missing", self.missing, ("error", "mean"))
        check_choice("unknown", self.unknown, ("error", "zeros"))

    @classmethod
    def fit(
        cls, table: Table, *, standardise: bool = True, missing: Missing = "error", unknown: Unknown = "error"
    ) -> Self:
        """Learn means, scales and categories; pass the training rows only."""
        if len(table.classes) == 1:
            raise DataError(f"a classifier needs two classes or more, the table has one: {table.classes[0]!r}")
        encoder = cls((), table.classes, missing, unknown)
        for name, column in table.columns.items():
            encoder._check_missing(name, column)
        features = [_learn(name, column, standardise) for name, column in table.columns.items()]
        return replace(encoder, features=tuple(features))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a table must have."""
        return tuple(feature.name for feature in self.features)

    @property
    def inputs(self) -> tuple[str, ...]:
        """What each input is: the column, or ``column=category``."""
        return tuple(
            name
            for feature in self.features
            for name in (
                [f"{feature.name}={word}" for word in feature.categories]
                if isinstance(feature, WordFeature)
                else [feature.name]
            )
        )

    @property
    def word_columns(self) -> tuple[str, ...]:
        """The columns that hold words, even if they look like numbers."""
        return tuple(feature.name for feature in self.features if isinstance(feature, WordFeature))

    def read(self, path: Path | str, *, label: str | None = None, delimiter: str | None = None) -> Table:
        """Read another table with the columns and the kinds of columns of the training table."""
        return read_table(path, label=label, features=self.columns, words=self.word_columns, delimiter=delimiter)

    def apply(self, table: Table, *, novel: Novel = "error") -> Examples:
        """Return examples with inputs ``(n, d)`` float32, labelled by this encoder's classes.

        A class that the training rows did not have is an error, or with ``novel="unknown"`` gets label -1.
        """
        check_choice("novel", novel, ("error", "unknown"))
        self._check_columns(table)
        inputs = np.empty((len(table), sum(feature.width for feature in self.features)), dtype=np.float32)
        start = 0
        for feature in self.features:
            column = _of_kind(feature, table.columns[feature.name])
            self._check_missing(feature.name, column)
            inputs[:, start : start + feature.width] = self._encode(feature, column)
            start += feature.width
        return Examples(torch.from_numpy(inputs), self._labels(table, novel), self.classes)

    def to_json(self) -> str:
        features = [asdict(feature) for feature in self.features]
        facts = {"format": FORMAT, "missing": self.missing, "unknown": self.unknown, "classes": self.classes}
        return json.dumps({**facts, "features": features}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        try:
            facts = json.loads(text)
            if facts["format"] != FORMAT:
                raise ValueError(f"format {facts['format']!r}")
            features = tuple(_feature(feature) for feature in facts["features"])
            return cls(features, tuple(facts["classes"]), facts["missing"], facts["unknown"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"expected the JSON of a table encoder ({FORMAT!r}), got {text[:40]!r} ({error}); save it with to_json"
            ) from error

    def _encode(self, feature: Feature, column: Column) -> NDArray[np.float32]:
        if isinstance(feature, NumberFeature):
            assert isinstance(column, Numbers)
            return _encode_numbers(feature, column)
        assert isinstance(column, Words)
        if self.unknown == "error":
            _check_categories(feature, column)
        return _encode_words(feature, column)

    def _check_columns(self, table: Table) -> None:
        lacking = [name for name in self.columns if name not in table.columns]
        if lacking:
            raise DataError(
                f"the table lacks the columns {listed(lacking)} of the training table; "
                f"it has {listed(list(table.columns))}{nearest(lacking[0], list(table.columns))}"
            )
        extra = [name for name in table.columns if name not in self.columns]
        if extra:
            raise DataError(
                f"the table has columns that the training table did not have: {listed(extra)}; "
                "read it with encoder.read, or name the columns in features"
            )

    def _check_missing(self, name: str, column: Column) -> None:
        gaps = column.missing()
        if self.missing == "error" and gaps.any():
            raise DataError(
                f"expected a value, but {int(gaps.sum())} are missing; fill them in, leave the column out, or choose "
                "missing='mean'",
                row=int(gaps.argmax()) + 1,
                column=name,
            )

    def _labels(self, table: Table, novel: Novel) -> Tensor:
        index = {name: i for i, name in enumerate(self.classes)}
        left = [name for i, name in enumerate(table.classes) if name not in index and (table.labels == i).any()]
        if left and novel == "error":
            raise DataError(
                f"the table has classes that the training table did not have: {listed(left)}; "
                f"choose novel='unknown' to label them -1{nearest(left[0], self.classes)}"
            )
        return torch.tensor([*(index.get(name, -1) for name in table.classes), -1])[table.labels]


def _learn(name: str, column: Column, standardise: bool) -> Feature:
    present = ~column.missing()
    if not present.any():
        raise DataError("the column has no values at all; leave it out of features", column=name)
    if isinstance(column, Words):
        return _learn_words(name, column)
    return _learn_numbers(name, column.values[present], standardise)


def _learn_numbers(name: str, values: NDArray[np.float64], standardise: bool) -> NumberFeature:
    if values.min() == values.max():  # rounding could give it a mean beside its value and a tiny deviation
        mean, std = float(values[0]), 1.0
    else:
        with np.errstate(over="ignore"):
            mean, std = float(values.mean()), _deviation(values) if standardise else 1.0
    if not (np.isfinite(mean) and np.isfinite(std)):
        raise DataError(f"numbers up to {np.abs(values).max()} are too large to average; rescale them", column=name)
    return NumberFeature(name, mean, mean if standardise else 0.0, std)


def _deviation(values: NDArray[np.float64]) -> float:
    """Return the standard deviation, also of numbers so small that their squares are zero."""
    std = float(values.std())
    if std == 0:
        apart = values - values.mean()
        peak = float(np.abs(apart).max())
        std = peak * float((apart / peak).std()) if peak else 0.0
    return std or 1.0


def _learn_words(name: str, column: Words) -> WordFeature:
    counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.categories))
    used = np.flatnonzero(counts)
    if len(used) > MOST_CATEGORIES:
        raise DataError(
            f"expected at most {MOST_CATEGORIES} different words, got {len(used)}; leave the column out of features, "
            "or group its words",
            column=name,
        )
    shares = counts[used] / counts.sum()
    return WordFeature(name, tuple(column.categories[i] for i in used), tuple(shares.tolist()))


def _of_kind(feature: Feature, column: Column) -> Column:
    """Return the column, whose kind must be that of the training table; one without any value may be of either."""
    if isinstance(column, Words) == isinstance(feature, WordFeature):
        return column
    if column.missing().all():
        gaps = len(column)
        return Numbers(np.full(gaps, np.nan)) if isinstance(feature, NumberFeature) else Words(np.full(gaps, -1), ())
    row = int((~column.missing()).argmax())
    value = column.categories[column.codes[row]] if isinstance(column, Words) else float(column.values[row])
    was, now = ("numbers", "words") if isinstance(column, Words) else ("words", "numbers")
    way_out = "correct it" if was == "numbers" else f"read the table with words=({feature.name!r},)"
    raise DataError(
        f"the training table has {was} in this column, got {now}: {value!r}; {way_out}",
        row=row + 1,
        column=feature.name,
    )


def _encode_numbers(feature: NumberFeature, column: Numbers) -> NDArray[np.float32]:
    filled = np.where(np.isnan(column.values), feature.mean, column.values)
    with np.errstate(over="ignore"):
        encoded = ((filled - feature.shift) / feature.scale).astype(np.float32)[:, None]
    if not np.isfinite(encoded).all():
        row = int((~np.isfinite(encoded)).argmax())
        raise DataError(
            f"{column.values[row]} is too large for float32; rescale the column", row=row + 1, column=feature.name
        )
    return encoded


def _check_categories(feature: WordFeature, column: Words) -> None:
    unseen = np.array([word not in feature.categories for word in column.categories] + [False])[column.codes]
    if unseen.any():
        row = int(unseen.argmax())
        word = column.categories[column.codes[row]]
        raise DataError(
            f"the training table does not have {word!r} in this column; correct it, or choose unknown='zeros'"
            f"{nearest(word, feature.categories)}",
            row=row + 1,
            column=feature.name,
        )


def _encode_words(feature: WordFeature, column: Words) -> NDArray[np.float32]:
    """Encode each category of the column once, and gaps; each example selects one of these rows."""
    index = {word: i for i, word in enumerate(feature.categories)}
    rows = np.zeros((len(column.categories) + 1, feature.width), dtype=np.float32)
    for i, word in enumerate(column.categories):
        if word in index:
            rows[i, index[word]] = 1
    rows[-1] = feature.shares
    encoded: NDArray[np.float32] = rows[column.codes]
    return encoded


def _feature(facts: dict[str, Any]) -> Feature:
    if "categories" in facts:
        return WordFeature(facts["name"], tuple(facts["categories"]), tuple(facts["shares"]))
    return NumberFeature(**facts)
