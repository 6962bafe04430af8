"""Columns of numbers and of words, made from texts, Python values or arrays by the same rules.

What counts as a missing value, as a number and as the text of a value is decided here for every format, for training
and for prediction.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openradial.errors import DataError

MISSING = frozenset({"", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL"})
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
CODE = re.compile(r"^\s*0\d+\s*$", re.MULTILINE)  # a number with leading zeros, such as a postal code, is a word


@dataclass(frozen=True, eq=False)
class Numbers:
    """A column of numbers; NaN where one is missing."""

    values: NDArray[np.float64]  # (n,)

    def __len__(self) -> int:
        return len(self.values)

    def missing(self) -> NDArray[np.bool_]:
        return np.isnan(self.values)

    def select(self, which: NDArray[Any]) -> "Numbers":
        return Numbers(self.values[which])

    def to_list(self) -> list[Any]:
        return list(self.values.tolist())


@dataclass(frozen=True, eq=False)
class Words:
    """A column of words as indices into sorted ``categories``; -1 where one is missing."""

    codes: NDArray[np.int64]  # (n,)
    categories: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def missing(self) -> NDArray[np.bool_]:
        return self.codes < 0

    def select(self, which: NDArray[Any]) -> "Words":
        return Words(self.codes[which], self.categories)

    def to_list(self) -> list[Any]:
        words = (*self.categories, None)  # code -1 selects the last one
        return [words[code] for code in self.codes.tolist()]


Column = Numbers | Words


def is_missing(value: Any) -> bool:
    """Return whether a value stands for none: None, nan, or a text such as ``NA``."""
    if isinstance(value, str):
        return value.strip() in MISSING
    return value is None or (isinstance(value, float | np.floating) and bool(np.isnan(value)))


def text_of(value: Any) -> str:
    """Return a value as a word; integers of any size stay exact.

    >>> text_of(2**53 + 1), text_of(True), text_of(b" red ")
    ('9007199254740993', 'true', 'red')
    """
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    return (value.decode("utf-8") if isinstance(value, bytes) else str(value)).strip()


def parse_numbers(texts: Sequence[str]) -> NDArray[np.float64] | None:
    """Return texts as numbers, NaN for those that stand for a missing value; None if one is a word."""
    if "_" in "".join(texts):  # Python reads 1_0 as ten
        return None
    try:
        return np.array(texts, dtype=np.float64)
    except ValueError:
        pass
    try:
        return np.array(["nan" if text.strip() in MISSING else text for text in texts], dtype=np.float64)
    except ValueError:
        return None


def parse_words(column: Words) -> Numbers | None:
    """Return words that are all numbers as numbers; None for others."""
    values = parse_numbers(column.categories)
    return None if values is None else Numbers(np.append(values, np.nan)[column.codes])


def words_or_numbers(column: Column) -> Column:
    """Return words that are all numbers without leading zeros as numbers; other columns as they are."""
    if isinstance(column, Numbers) or not column.categories or CODE.search("\n".join(column.categories)):
        return column
    return parse_words(column) or column


def word_column(values: Iterable[Any]) -> Words:
    """Return a column of words from Python values."""
    texts: dict[str, int] = {}
    codes = [texts.setdefault("" if is_missing(value) else text_of(value), len(texts)) for value in values]
    return sort_categories(np.array(codes, dtype=np.int64), list(texts))


def number_column(name: str, values: Sequence[Any]) -> Numbers:
    """Return a column of numbers from Python values or texts; raise for words and infinite numbers."""
    numbers = np.full(len(values), np.nan)
    for row, value in enumerate(values, 1):
        if is_missing(value):
            continue
        try:
            number = float("no" if isinstance(value, str) and "_" in value else value)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(f"expected a number, got {value!r}; correct it", row=row, column=name) from error
        if not np.isfinite(number):
            raise DataError(f"expected a finite number, got {value!r}; correct it", row=row, column=name)
        numbers[row - 1] = number
    return Numbers(numbers)


def value_column(name: str, values: Sequence[Any], as_words: bool) -> Column:
    """Return a column from the values of JSON: numbers if all are numbers, else words."""
    is_word = as_words or kind_of(name, values) is False
    return word_column(values) if is_word else number_column(name, values)


def kind_of(
    name: str, values: Sequence[Any], row: int = 1, kind: bool | None = None, *, parse: bool = False
) -> bool | None:
    """Return whether values are numbers, None if all are missing; raise where numbers and words are mixed.

    ``kind`` is that of the values before ``row``. With ``parse`` texts such as ``"1.5"`` are numbers.
    """
    for at, value in enumerate(values, row):
        if is_missing(value):
            continue
        if not isinstance(value, bool | int | float | str):
            raise DataError(f"expected a number or a word, got {type(value).__name__}", row=at, column=name)
        if parse and DECIMAL_COMMA.fullmatch(str(value).strip()):
            message = f"numbers need a decimal point, got {value!r}; write 1.5 instead of 1,5, or, if they are words,"
            raise DataError(f"{message} use words=({name!r},) (fit --categorical {quote(name)})", row=at, column=name)
        is_number = parse_numbers([str(value)]) is not None if parse else type(value) in (int, float)
        if kind is not None and is_number != kind:
            message = f"the column mixes numbers and words: got {value!r} after {'numbers' if kind else 'words'}"
            way_out = "correct it, or leave the cell empty if the value is missing, or read all values as words with"
            raise DataError(
                f"{message}; {way_out} words=({name!r},) (fit --categorical {quote(name)})", row=at, column=name
            )
        kind = is_number
    return kind


def array_column(name: str, values: NDArray[Any], as_words: bool) -> Column:
    """Return a column from an array of numbers, truth values or strings."""
    if values.dtype.kind not in "biufSU":
        raise DataError(f"expected an array of numbers or words, got {values.dtype}; convert it", column=name)
    if values.dtype.kind in "iuf" and not as_words:
        return Numbers(values.astype(np.float64))
    distinct, codes = np.unique(values, return_inverse=True)
    return sort_categories(codes, [text_of(value) for value in distinct.tolist()])


def sort_categories(codes: NDArray[np.int64], texts: Sequence[str]) -> Words:
    """Return codes into ``texts`` as words with sorted categories, and -1 for texts that stand for no value."""
    categories = sorted({text for text in texts if text not in MISSING})
    index = {text: i for i, text in enumerate(categories)}
    indices = np.array([index.get(text, -1) for text in texts], dtype=np.int64)
    return Words(indices[codes] if len(codes) else codes, tuple(categories))


class TextColumn:
    """Collects one column of a text file: numbers until the first word, or words from the start."""

    def __init__(self, name: str, as_words: bool) -> None:
        self.name, self.as_words = name, as_words
        self.is_number: bool | None = False if as_words else None  # of the values so far; None if all are missing
        self.chunks: list[NDArray[Any]] = []  # numbers, or codes of words
        self.codes: dict[str, int] = {}
        self.has_codes = False  # whether a number has leading zeros

    def add(self, texts: Sequence[str], row: int) -> None:
        """Append texts, of which the first is that of ``row``."""
        numbers = None if self.is_number is False else parse_numbers(texts)
        if numbers is not None:
            self.is_number = self.is_number or (None if np.isnan(numbers).all() else True)
            self.chunks.append(numbers)
            self.has_codes = self.has_codes or CODE.search("\n".join(texts)) is not None
            return
        if not self.as_words:
            self.is_number = kind_of(self.name, texts, row, self.is_number, parse=True)
        codes = (self.codes.setdefault(text, len(self.codes)) for text in map(str.strip, texts))
        self.chunks.append(np.fromiter(codes, dtype=np.int64, count=len(texts)))

    def column(self) -> Column:
        """Return the column of all texts."""
        if self.is_number is not False:
            return Numbers(np.concatenate([*self.chunks, np.empty(0)]))
        # numbers before the first word are all missing; code -1 selects the last text
        codes = [np.full(len(chunk), -1) if chunk.dtype == np.float64 else chunk for chunk in self.chunks]
        return sort_categories(np.concatenate([*codes, np.empty(0, np.int64)]), [*self.codes, ""])
