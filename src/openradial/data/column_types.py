"""Types of the columns of a table: number, category, date, free text, identifier or constant."""

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, time
from functools import lru_cache
from shlex import quote
from typing import Literal

import numpy as np

from openradial.data.readers.columns import Column, Numbers, Words
from openradial.errors import DataError, listed

ColumnType = Literal["number", "category", "date", "free text", "identifier", "constant"]
# types that become inputs, each with a feature in table_encoder
USED: tuple[ColumnType, ...] = ("number", "category", "date", "free text")
# strptime formats of a day, a time may follow; of two that fit all values, the first one counts
FORMATS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y")
FEW = 20  # so many different values are never identifiers
MOSTLY = 0.8  # share of dates from which the other values are broken dates
CHANCE = 40  # n random integers in a range below n * n / 40 all differ with probability exp(-20): others count rows
NAME = re.compile(r"(^|[ _-])(?i:id|uuid|guid|key|index)$|[a-z]I[dD]$")  # of identifiers


def infer_types(
    columns: Mapping[str, Column], numeric: Collection[str] = (), categorical: Collection[str] = ()
) -> dict[str, ColumnType]:
    """Return the type of each column; ``numeric`` and ``categorical`` name columns whose type is given.

    - constant: one value, or none.
    - number: numbers, except integers that all differ and either count rows or are called an identifier.
    - date: dates of one format, see ``FORMATS``, with or without a time.
    - identifier: such integers; and words with fewer than two rows each on average.
    - free text: such words, if the median has three words or more.
    - category: all others.
    """
    given: dict[str, ColumnType] = dict.fromkeys(numeric, "number")
    given |= dict.fromkeys(categorical, "category")
    return {name: given.get(name) or _infer(name, column) for name, column in columns.items()}


def _infer(name: str, column: Column) -> ColumnType:
    present = int((~column.missing()).sum())
    if isinstance(column, Numbers):
        values = column.values[~column.missing()]
        if not present or values.min() == values.max():
            return "constant"
        may_count = NAME.search(name) or np.ptp(values) < present**2 / CHANCE
        is_whole = present > FEW and may_count and bool((values == np.floor(values)).all())
        return "identifier" if is_whole and len(np.unique(values)) == present else "number"
    words = distinct_words(column)
    if len(words) < 2:
        return "constant"
    if date_format(name, column) is not None:
        return "date"
    if len(words) <= FEW or 2 * len(words) <= present:
        return "category"
    return "free text" if np.median([len(text.split()) for text in words]) >= 3 else "identifier"


def distinct_words(column: Words) -> list[str]:
    """Return the different words in the rows of a column."""
    counts = np.bincount(column.codes[~column.missing()], minlength=len(column.categories))
    return [word for word, count in zip(column.categories, counts, strict=True) if count]


def parse_date(text: str, day_format: str) -> datetime | None:
    """Return a date with its time as the clock showed it, or None.

    >>> parse_date("2024-05-17T08:30:00+02:00", "%Y-%m-%d")
    datetime.datetime(2024, 5, 17, 8, 30)
    """
    day, _, clock = text.replace("T", " ", 1).partition(" ")
    date = _parse_day(day, day_format)
    try:
        return date and datetime.combine(date, time.fromisoformat(clock).replace(tzinfo=None)) if clock else date
    except ValueError:
        return None


@lru_cache(2**14)  # strptime is slow, and many times share a day
def _parse_day(text: str, day_format: str) -> datetime | None:
    try:
        return datetime.strptime(text, day_format)
    except ValueError:
        return None


def date_format(name: str, column: Words) -> str | None:
    """Return the format of a column of dates, None for other words; raise if most are dates, but not of one format.

    All categories count, also those of rows that were not selected: a part of the rows may fit several formats.
    """
    texts = column.categories
    some = texts[:: max(1, len(texts) // 100)]
    counts = {day: _count(texts, [day]) for day in FORMATS if _count(some, [day])}
    if _count(some, counts) < MOSTLY * len(some) or _count(texts, counts) < MOSTLY * len(texts):
        return None
    best = max(counts, key=counts.__getitem__)
    if counts[best] == len(texts):
        return best
    wrong = next(text for text in texts if parse_date(text, best) is None)
    like = f"{datetime(2024, 5, 17):{best}}"
    message = f"{counts[best]:,} of {len(texts):,} values are dates like {like}, but {wrong!r} is not"
    raise DataError(f"{message}; correct it, or use {options('categorical', 'drop', name=name)}", column=name)


def _count(texts: Iterable[str], formats: Collection[str]) -> int:
    return sum(any(parse_date(text, day) for day in formats) for text in texts)


def options(*ways: str, name: str) -> str:
    """Return options of fit for a column, as Python and as the command line have them.

    >>> options("drop", name="id")
    'drop (--drop id)'
    """
    return " or ".join(f"{way} (--{way} {quote(name)})" for way in ways)


def type_notes(columns: Mapping[str, Column], types: Mapping[str, ColumnType]) -> list[str]:
    """Return a note for each column that is left out, and for dates that begin with the day."""
    constant = [name for name, kind in types.items() if kind == "constant"]
    notes = [f"columns with one value or none are left out: {listed(constant)}"] if constant else []
    for name, kind in types.items():
        column = columns[name]
        if kind == "identifier":
            words = [] if isinstance(column, Numbers) else distinct_words(column)
            count = len(words) or int((~column.missing()).sum())
            why = f"{count:,} different values in {len(column):,} rows look like identifiers"
            ways = options(*[] if words else ["numeric"], "categorical", name=name)
            notes.append(f"column {name!r} is left out: {why}; {ways} uses it")
        elif kind == "date" and (day := date_format(name, column) or "").startswith("%d"):  # type: ignore[arg-type]
            notes.append(f"column {name!r}: dates are read as {datetime(2024, 5, 17):{day}}, the day first")
    return notes


def describe_types(types: Mapping[str, ColumnType]) -> str:
    """Return the types in one line.

    >>> describe_types({"age": "number", "id": "identifier", "weight": "number"})
    'number: age, weight; left out: id (identifier)'
    """
    lines: list[tuple[str, list[str]]] = [(kind, [name for name in types if types[name] == kind]) for kind in USED]
    lines.append(("left out", [f"{name} ({kind})" for name, kind in types.items() if kind not in USED]))
    return "; ".join(f"{kind}: {listed(names)}" for kind, names in lines if names)
