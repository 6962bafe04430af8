"""Columns of numbers and of words, read from CSV, Parquet and NPZ files.

Rows are counted from 1 in messages, and the header of a CSV file is not one of them.
"""

import csv
import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np
from numpy.typing import NDArray

from openradial.errors import DataError, listed, require

MISSING = frozenset({"", "?", "NA", "N/A", "NaN", "nan", "null", "NULL"})
DELIMITERS = (",", ";", "\t")
CHUNK = 512  # rows; more are slower, because Python's garbage collector then looks at each of them
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")


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


@dataclass(frozen=True, eq=False)
class Words:
    """A column of words as places in sorted ``categories``; -1 where one is missing."""

    codes: NDArray[np.int64]  # (n,)
    categories: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def missing(self) -> NDArray[np.bool_]:
        return self.codes < 0

    def select(self, which: NDArray[Any]) -> "Words":
        return Words(self.codes[which], self.categories)


Column = Numbers | Words
Columns = Mapping[str, Column]
Choose = Callable[[Sequence[str]], list[str]]  # from the columns that there are to those that are read


def read_csv(path: Path, choose: Choose, *, words: Collection[str] = (), delimiter: str | None = None) -> Columns:
    """The chosen columns of a CSV file in UTF-8 with a header.

    A column is one of numbers if every value is one; ``words`` names columns that are words even so.
    """
    with _csv_errors(path), path.open(encoding="utf-8-sig", newline="") as stream:
        delimiter = delimiter or _delimiter(stream)
        reader = csv.reader(stream, delimiter=delimiter, skipinitialspace=True, strict=True)
        names = [name.strip() for name in next(reader, [])]
        _check_header(path, names)
        columns = {name: _Texts(path, name, name in words) for name in choose(names)}
        row = 1
        for rows in _chunks(reader):
            _check_lengths(path, rows, names, row)
            for name, texts in zip(names, zip(*rows, strict=True), strict=True):
                if name in columns:
                    columns[name].add(texts, row)
            row += len(rows)
    return {name: column.finish() for name, column in columns.items()}


def read_parquet(path: Path, choose: Choose, *, words: Collection[str] = ()) -> Columns:
    """The chosen columns of a Parquet file, by their types."""
    arrow = require("pyarrow", "tables", "reading Parquet")
    parquet = require("pyarrow.parquet", "tables", "reading Parquet")
    try:
        with parquet.ParquetFile(path) as opened:
            names = list(opened.schema_arrow.names)
            _check_differ(path, names)
            table = opened.read(columns=choose(names))
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{path} is no whole Parquet file ({_one_line(error)}); write or copy it again") from error
    return {name: _arrow_column(path, name, table[name], name in words) for name in table.column_names}


def read_npz(path: Path, choose: Choose, *, words: Collection[str] = ()) -> Columns:
    """The chosen columns of an NPZ file: an array ``(n,)`` is one, ``x`` of ``(n, d)`` is ``x0``, ``x1``, ..."""
    names: list[str] = []
    found: dict[str, NDArray[Any]] = {}
    for name, array in read_arrays(path).items():
        if array.ndim not in (1, 2):
            raise DataError(
                f"{path} must hold arrays of shape (n,) or (n, d), got {name!r} of shape {array.shape}; "
                "reshape it to one row per example"
            )
        parts = {name: array} if array.ndim == 1 else {f"{name}{i}": array[:, i] for i in range(array.shape[1])}
        names += parts
        found |= parts
    _check_differ(path, names)
    return {name: _array_column(path, name, found[name], name in words) for name in choose(names)}


@dataclass
class _Texts:
    """One column of a CSV file while it is read: numbers until the first word, or words from the start."""

    path: Path
    name: str
    only_words: bool
    numbers: list[NDArray[np.float64]] = field(default_factory=list)
    codes: list[NDArray[np.int64]] = field(default_factory=list)
    found: dict[str, int] = field(default_factory=dict)

    def add(self, texts: Sequence[str], row: int) -> None:
        parsed = None if self.only_words else _floats(texts)
        if parsed is not None and (self.numbers or not self.codes):
            self.numbers.append(parsed)
            return
        if not self.only_words:
            self._check_only_words(texts, row)
        self._add_words(texts)

    def finish(self) -> Column:
        if self.codes:
            return _sorted(np.concatenate(self.codes), list(self.found))
        return Numbers(np.concatenate([*self.numbers, np.empty(0)]))

    def _add_words(self, texts: Sequence[str]) -> None:
        found = self.found
        if self.numbers:  # all missing so far, else the check would have failed
            count = sum(map(len, self.numbers))
            self.codes.append(np.full(count, found.setdefault("", len(found)), dtype=np.int64))
            self.numbers.clear()
        stripped = (text.strip() for text in texts)
        codes = (found.setdefault(text, len(found)) for text in stripped)
        self.codes.append(np.fromiter(codes, dtype=np.int64, count=len(texts)))

    def _check_only_words(self, texts: Sequence[str], row: int) -> None:
        """Raise where numbers and words meet, naming the first value that differs in kind from those before."""
        before = any(not np.isnan(chunk).all() for chunk in self.numbers)
        kind: bool | None = True if before else (False if self.codes else None)  # whether those before are numbers
        for place, text in enumerate(texts):
            if text.strip() in MISSING:
                continue
            if DECIMAL_COMMA.fullmatch(text.strip()):
                raise DataError(
                    f"{self.path}: numbers need a decimal point, got {text!r} in column {self.name!r}, "
                    f"row {row + place}; write 1.5 instead of 1,5, or pass words=({self.name!r},) if they are words"
                )
            is_number = _floats([text]) is not None
            if kind is not None and is_number != kind:
                raise DataError(
                    f"{self.path}: column {self.name!r} mixes numbers and words: row {row + place} has {text!r} after "
                    f"{'numbers' if kind else 'words'}; correct it, or pass words=({self.name!r},) to take all as words"
                )
            kind = is_number


def _floats(texts: Sequence[str]) -> NDArray[np.float64] | None:
    """The texts as numbers, with NaN for those that stand for no value, or None if one is a word."""
    try:
        return np.array(texts, dtype=np.float64)
    except ValueError:
        pass
    try:
        return np.array(["nan" if text.strip() in MISSING else text for text in texts], dtype=np.float64)
    except ValueError:
        return None


def _sorted(codes: NDArray[np.int64], found: Sequence[str]) -> Words:
    """Words with their categories sorted, and -1 for texts that stand for no value."""
    categories = sorted({text for text in found if text not in MISSING})
    place = {text: i for i, text in enumerate(categories)}
    places = np.array([place.get(text, -1) for text in found], dtype=np.int64)
    return Words(places[codes] if len(codes) else codes, tuple(categories))


@contextmanager
def _csv_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise DataError(f"{path} must be text in UTF-8 ({error.reason} at byte {error.start}); save it so") from error
    except csv.Error as error:
        raise DataError(f"{path} has a broken or unclosed quote ({error}); double each quote inside quotes") from error


def _delimiter(stream: TextIO) -> str:
    """The delimiter that cuts the header into most names."""
    header = stream.readline()
    stream.seek(0)
    return max(DELIMITERS, key=lambda delimiter: len(next(csv.reader([header], delimiter=delimiter), [])))


def _chunks(reader: Iterator[list[str]]) -> Iterator[list[list[str]]]:
    while rows := list(islice(reader, CHUNK)):
        full = [row for row in rows if row]  # an empty line is no row
        if full:
            yield full


def _check_header(path: Path, names: Sequence[str]) -> None:
    if not any(names):
        raise DataError(f"{path} must begin with a line of column names, got an empty line")
    if "" in names:
        raise DataError(
            f"{path}: each column needs a name, column {names.index('') + 1} of the header has none; "
            "name it, or write the file without its index"
        )
    if _floats(names) is not None:
        raise DataError(
            f"{path} must begin with a line of column names, got numbers ({listed(names, 3)}); add a header"
        )
    _check_differ(path, names)


def _check_differ(path: Path, names: Sequence[str]) -> None:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise DataError(f"{path}: column names must differ, got {twice[0]!r} {len(twice)} times; rename one")


def _check_lengths(path: Path, rows: Sequence[Sequence[str]], names: Sequence[str], row: int) -> None:
    if set(map(len, rows)) != {len(names)}:
        place = next(i for i, values in enumerate(rows) if len(values) != len(names))
        raise DataError(
            f"{path}: the header names {len(names)} columns, row {row + place} has {len(rows[place])} values; "
            "correct the row, or quote values that contain the delimiter"
        )


def _arrow_column(path: Path, name: str, values: Any, as_words: bool) -> Column:
    arrow = require("pyarrow", "tables", "reading Parquet")
    kind = values.type.value_type if arrow.types.is_dictionary(values.type) else values.type
    is_word = arrow.types.is_string(kind) or arrow.types.is_large_string(kind) or arrow.types.is_boolean(kind)
    is_number = arrow.types.is_integer(kind) or arrow.types.is_floating(kind) or arrow.types.is_decimal(kind)
    if not (is_word or is_number or arrow.types.is_null(kind)):
        raise DataError(
            f"{path}: column {name!r} must hold numbers or words, got {kind}; convert it, or leave it out of features"
        )
    if is_word or as_words:
        encoded = values.cast(kind).cast(arrow.string()).combine_chunks().dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return _sorted(codes, [*encoded.dictionary.to_pylist(), ""])  # code -1 finds the last one
    numbers = values.cast(kind).cast(arrow.float64(), safe=False)
    return Numbers(np.array(numbers.to_numpy(), dtype=np.float64))


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an NPZ file by name; never a pickle."""
    try:
        with path.open("rb") as stream:  # NumPy leaves a path open when its archive is damaged
            return _loaded(stream)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{path} is no whole NPZ file ({_one_line(error)}); write or copy it again") from error
    except ValueError as error:
        if "Object arrays" in str(error):
            raise DataError(
                f"{path} holds an array of Python objects, which could run code when loaded; "
                "save numbers, or words as a NumPy array of strings"
            ) from error
        raise DataError(f"{path} is no NPZ file; write it with numpy.savez(path, x=..., y=...)") from error


def _loaded(stream: BinaryIO) -> dict[str, NDArray[Any]]:
    stored = np.load(stream, allow_pickle=False)
    if not isinstance(stored, np.lib.npyio.NpzFile):
        raise ValueError("one array alone")
    arrays = {name: stored[name] for name in stored.files}
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("files that are no arrays")
    return arrays


def _array_column(path: Path, name: str, values: NDArray[Any], as_words: bool) -> Column:
    if values.dtype.kind in "biuf" and not as_words and values.dtype.kind != "b":
        return Numbers(values.astype(np.float64))
    if values.dtype.kind not in "biufSU":
        raise DataError(f"{path}: array {name!r} must hold numbers or words, got {values.dtype}; convert it")
    texts = np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values
    categories, codes = np.unique(texts, return_inverse=True)
    names = [str(name).lower() if values.dtype.kind == "b" else str(name).strip() for name in categories.tolist()]
    return _sorted(codes, names)


def _one_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
