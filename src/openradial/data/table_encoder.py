"""Turn the columns of a table into numbers that a network takes, always in the same way."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openradial.data.column_types import FORMATS, USED, ColumnType, date_format, options, parse_date
from openradial.data.examples import Examples
from openradial.data.readers.columns import Column, Numbers, Words, is_missing, parse_words
from openradial.data.readers.tables import Table, read_table
from openradial.errors import DataError, check_choice, listed, nearest

FORMAT = "openradial table encoder 1"
MOST_CATEGORIES = 1000  # a column with more is text or an identifier
PARTS = ("year", "month", "weekday", "hour", "elapsed days")  # of a date

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

    @classmethod
    def fit(cls, name: str, column: Numbers, standardise: bool) -> Self:
        values = column.values[~column.missing()]
        if values.min() == values.max():  # rounding could give it a mean beside its value and a tiny deviation
            mean, std = float(values[0]), 1.0
        else:
            mean, std = float(values.mean()), _deviation(values) if standardise else 1.0
        return cls(name, mean, mean if standardise else 0.0, std)

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.name,)

    def encode(self, column: Numbers) -> NDArray[np.float32]:
        filled = np.where(column.missing(), self.mean, column.values)
        with np.errstate(over="ignore"):
            encoded = ((filled - self.shift) / self.scale).astype(np.float32)[:, None]
        if not np.isfinite(encoded).all():
            row = int((~np.isfinite(encoded)).argmax())
            message = f"{column.values[row]} is too large for float32; rescale the column"
            raise DataError(message, row=row + 1, column=self.name)
        return encoded


@dataclass(frozen=True)
class WordFeature:
    """A column of words, encoded as one input per category: 0 or 1, or the share of the category for a missing word."""

    name: str
    categories: tuple[str, ...]
    shares: tuple[float, ...]

    @classmethod
    def fit(cls, name: str, column: Words) -> Self:
        counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.categories))
        used = np.flatnonzero(counts)
        if len(used) > MOST_CATEGORIES:
            message = f"expected at most {MOST_CATEGORIES} different words, got {len(used)}; group them"
            raise DataError(f"{message}, or leave the column out with {options('drop', name=name)}", column=name)
        shares = counts[used] / counts.sum()
        return cls(name, tuple(column.categories[i] for i in used), tuple(shares.tolist()))

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={word}" for word in self.categories)

    def encode(self, column: Words) -> NDArray[np.float32]:
        # each category of the column is encoded once, and gaps; each example selects one of these rows
        rows = np.array(column.categories, dtype=object)[:, None] == np.array(self.categories, dtype=object)
        encoded: NDArray[np.float32] = np.vstack([rows, self.shares]).astype(np.float32)[column.codes]
        return encoded

    def check_categories(self, column: Words) -> None:
        """Raise for a word that the training table does not have."""
        unseen = np.array([word not in self.categories for word in column.categories] + [False])[column.codes]
        if unseen.any():
            row = int(unseen.argmax())
            word = column.categories[column.codes[row]]
            message = f"the training table does not have {word!r} in this column; correct it, or choose unknown='zeros'"
            raise DataError(f"{message}{nearest(word, self.categories)}", row=row + 1, column=self.name)


@dataclass(frozen=True)
class DateFeature:
    """A column of dates, encoded as those of year, month, weekday, hour and elapsed days that vary in training rows.

    Standardised parts have a variance of 1 together, so that a date counts as much as a column of numbers.
    Parts outside their range in the training rows, ``low`` to ``high``, count as its end: that time has passed makes no
    example unknown. ``format`` is that of the day, as strptime takes it.
    """

    name: str
    format: str
    parts: tuple[NumberFeature, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    @classmethod
    def fit(cls, name: str, column: Words, standardise: bool) -> Self:
        encoder = cls(name, date_format(name, column) or FORMATS[0], (), (), ())
        values = {part: each for part, each in encoder._values(column).items() if np.nanmin(each) < np.nanmax(each)}
        fitted = (NumberFeature.fit(part, Numbers(each), standardise) for part, each in values.items())
        wider = np.sqrt(len(values)) if standardise else 1.0  # all parts together count as much as one number
        parts = tuple(replace(part, scale=float(part.scale * wider)) for part in fitted)
        low, high = (tuple(float(end(each)) for each in values.values()) for end in (np.nanmin, np.nanmax))
        return cls(name, encoder.format, parts, low, high)

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(f"{self.name}.{part.name}" for part in self.parts)

    @property
    def example(self) -> str:
        return f"{datetime(2024, 5, 17):{self.format}}"

    def encode(self, column: Words) -> NDArray[np.float32]:
        values, encoded = self._values(column), [np.empty((len(column), 0), np.float32)]
        for part, low, high in zip(self.parts, self.low, self.high, strict=True):
            encoded.append(part.encode(Numbers(values[part.name].clip(low, high))))
        return np.hstack(encoded)

    def _values(self, column: Words) -> dict[str, NDArray[np.float64]]:
        """Return all parts of each date; NaN for a missing one."""
        rows = np.full((len(column.categories) + 1, 5), np.nan)  # code -1 selects the last one
        for code in np.unique(column.codes[~column.missing()]):
            date = parse_date(column.categories[code], self.format)
            if date is None:
                message = f"expected a date like {self.example}, got {column.categories[code]!r}"
                row = int((column.codes == code).argmax()) + 1
                raise DataError(f"{message}; correct it, or leave it empty", row=row, column=self.name)
            hour = date.hour + date.minute / 60
            rows[code] = date.year, date.month, date.weekday(), hour, date.toordinal() + hour / 24
        return dict(zip(PARTS, rows[column.codes].T, strict=True))


Feature = NumberFeature | WordFeature | DateFeature


@dataclass(frozen=True)
class TableEncoder:
    """The encoding of a table's columns, learnt from training rows and applied to any others.

    Numbers are standardised unless ``standardise=False``, words become one 0/1 input per category, and dates their
    parts. ``missing="mean"`` fills gaps with the mean of the training rows; ``unknown="zeros"`` accepts words that
    these did not have. Columns of free text, ``texts``, are no inputs: see :meth:`join_texts`.
    """

    features: tuple[Feature, ...]
    classes: tuple[str, ...]
    missing: Missing = "error"
    unknown: Unknown = "error"
    texts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice("missing", self.missing, ("error", "mean"))
        check_choice("unknown", self.unknown, ("error", "zeros"))

    @classmethod
    def fit(
        cls,
        table: Table,
        *,
        types: Mapping[str, ColumnType] | None = None,
        standardise: bool = True,
        missing: Missing = "error",
        unknown: Unknown = "error",
    ) -> Self:
        """Learn means, scales and categories; pass the training rows only.

        ``types`` are those of the columns, see :func:`openradial.data.infer_types`; columns of a type without features
        are left out. By default all columns are used, numbers as numbers and words as categories.
        """
        if len(table.classes) == 1:
            raise DataError(f"a classifier needs two classes or more, the table has one: {table.classes[0]!r}")
        used = {name: column for name, column in table.columns.items() if types is None or types[name] in USED}
        texts = [name for name in used if (types or {}).get(name) == "free text"]
        letters = {name: sum(map(len, getattr(used.pop(name), "categories", ()))) for name in texts}
        encoder = cls((), table.classes, missing, unknown, tuple(sorted(letters, key=letters.__getitem__)))
        for name, column in used.items():
            encoder._check_missing(name, column)
        features = (_fit_feature(name, column, (types or {}).get(name), standardise) for name, column in used.items())
        return replace(encoder, features=tuple(features))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a table must have."""
        return (*(feature.name for feature in self.features), *self.texts)

    @property
    def inputs(self) -> tuple[str, ...]:
        """What each input is: the column, or ``column=category``."""
        return tuple(name for feature in self.features for name in feature.inputs)

    @property
    def word_columns(self) -> tuple[str, ...]:
        """The columns that hold words, even if they look like numbers."""
        words = (feature.name for feature in self.features if not isinstance(feature, NumberFeature))
        return (*words, *self.texts)

    def read(self, path: Path | str, *, label: str | None = None, delimiter: str | None = None) -> Table:
        """Read another table with the columns and the kinds of columns of the training table."""
        return read_table(path, label=label, features=self.columns, words=self.word_columns, delimiter=delimiter)

    def apply(self, table: Table, *, novel: Novel = "error") -> Examples:
        """Return examples with inputs ``(n, d)`` float32, labelled by this encoder's classes.

        A class that the training rows did not have is an error, or with ``novel="unknown"`` gets label -1.
        """
        check_choice("novel", novel, ("error", "unknown"))
        self._check_columns(table)
        inputs = np.empty((len(table), len(self.inputs)), dtype=np.float32)
        start = 0
        for feature in self.features:
            end = start + len(feature.inputs)
            inputs[:, start:end] = self._encode(feature, table.columns[feature.name])
            start = end
        return Examples(torch.from_numpy(inputs), self._labels(table, novel), self.classes)

    def join_texts(self, table: Table) -> list[str]:
        """Return the free text of each row: its columns, one per line; a missing text is empty.

        Columns of short texts come first, such as a title before a body: an encoder reads the beginning.
        """
        columns = (table.columns[name].to_list() for name in self.texts)
        return ["\n".join(str(text) for text in row if not is_missing(text)) for row in zip(*columns, strict=True)]

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        try:
            facts = json.loads(text)
            if (given := facts.pop("format")) != FORMAT:
                raise ValueError(f"format {given!r}")
            features = [{name: _plain(value) for name, value in feature.items()} for feature in facts.pop("features")]
            return cls(tuple(map(_feature, features)), **{name: _plain(value) for name, value in facts.items()})
        except (AttributeError, ValueError, KeyError, TypeError) as error:
            message = f"expected the JSON of a table encoder ({FORMAT!r}), got {text[:40]!r} ({error})"
            raise DataError(f"{message}; save it with to_json") from error

    def _encode(self, feature: Feature, column: Column) -> NDArray[np.float32]:
        if isinstance(column, Words) and isinstance(feature, NumberFeature):
            column = parse_words(column) or column
        if isinstance(column, Words) == isinstance(feature, NumberFeature):
            if not column.missing().all():  # a column without any value may be of either kind
                row = int((~column.missing()).argmax())
                was, now = ("numbers", "words") if isinstance(column, Words) else ("words", "numbers")
                way_out = "correct it" if was == "numbers" else f"read the table with words=({feature.name!r},)"
                message = f"the training table has {was} in this column, got {now}: {column.to_list()[row]!r}"
                raise DataError(f"{message}; {way_out}", row=row + 1, column=feature.name)
            n, is_number = len(column), isinstance(feature, NumberFeature)
            column = Numbers(np.full(n, np.nan)) if is_number else Words(np.full(n, -1), ())
        self._check_missing(feature.name, column)
        if isinstance(feature, NumberFeature):
            assert isinstance(column, Numbers)
            return feature.encode(column)
        assert isinstance(column, Words)
        if self.unknown == "error" and isinstance(feature, WordFeature):
            feature.check_categories(column)
        return feature.encode(column)

    def _check_columns(self, table: Table) -> None:
        lacking = [name for name in self.columns if name not in table.columns]
        if lacking:
            names = list(table.columns)
            message = f"the table lacks the columns {listed(lacking)} of the training table; it has {listed(names)}"
            raise DataError(f"{message}{nearest(lacking[0], names)}")
        extra = [name for name in table.columns if name not in self.columns]
        if extra:
            message = f"the table has columns that the training table did not have: {listed(extra)}"
            raise DataError(f"{message}; read it with encoder.read, or name the columns in features")

    def _check_missing(self, name: str, column: Column) -> None:
        gaps = column.missing()
        if self.missing == "error" and gaps.any():
            way_out = "fill them in, leave the column out, or choose missing='mean'"
            message = f"expected a value, but {int(gaps.sum())} are missing; {way_out}"
            raise DataError(message, row=int(gaps.argmax()) + 1, column=name)

    def _labels(self, table: Table, novel: Novel) -> Tensor:
        index = {name: i for i, name in enumerate(self.classes)}
        left = [name for i, name in enumerate(table.classes) if name not in index and (table.labels == i).any()]
        if left and novel == "error":
            message = f"the table has classes that the training table did not have: {listed(left)}"
            raise DataError(f"{message}; choose novel='unknown' to label them -1{nearest(left[0], self.classes)}")
        return torch.tensor([*(index.get(name, -1) for name in table.classes), -1])[table.labels]


def _fit_feature(name: str, column: Column, kind: ColumnType | None, standardise: bool) -> Feature:
    if column.missing().all():
        raise DataError(f"the column has no values at all; leave it out with {options('drop', name=name)}", column=name)
    if isinstance(column, Numbers):
        return NumberFeature.fit(name, column, standardise)
    return DateFeature.fit(name, column, standardise) if kind == "date" else WordFeature.fit(name, column)


def _feature(record: dict[str, Any]) -> Feature:
    if "parts" in record:
        return DateFeature(**record | {"parts": tuple(NumberFeature(**part) for part in record["parts"])})
    return WordFeature(**record) if "categories" in record else NumberFeature(**record)


def _deviation(values: NDArray[np.float64]) -> float:
    """Return the standard deviation, also of numbers so small that their squares are zero."""
    std = float(values.std())
    if std == 0:
        apart = values - values.mean()
        peak = float(np.abs(apart).max())
        std = peak * float((apart / peak).std()) if peak else 0.0
    return std or 1.0


def _plain(value: Any) -> Any:
    """Return a list of JSON as a tuple."""
    return tuple(value) if isinstance(value, list) else value
