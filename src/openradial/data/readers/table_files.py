"""Files of tables: CSV, JSON Lines, Parquet and NPZ files, read into columns for training or row by row for prediction.

Both ways use the same code to open a file, to find its columns and to split its rows. Rows are counted from 1, without
the header of a CSV file and without empty lines.
"""

import csv
import gzip
import json
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openradial.data.readers import columns as cells
from openradial.data.readers.columns import Column, Numbers, TextColumn
from openradial.errors import DataError, OptionError, first_line, listed, located, nearest, require

CSV = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
JSON_LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
PARQUET, NPZ = (".parquet", ".pq"), (".npz",)
TABLES = (*CSV, *JSON_LINES, *PARQUET, *NPZ)
TABLES_TEXT = ".csv, .tsv, .txt, .jsonl, .ndjson (each also as .gz), .parquet, .pq, .npz"
DELIMITERS = (",", ";", "\t")
UNEXPECTED = (MemoryError, RuntimeError, SyntaxError, TokenError, TypeError)  # what NumPy and zipfile raise as well
CHUNK = 512  # rows at a time; more are slower, because Python's garbage collector then visits each of them
csv.field_size_limit(1 << 24)  # characters of a value; after one that is longer, the rest of a file cannot be read


class RawInput(NamedTuple):
    """One input to predict: its name, and its value as a model takes it or the error that prevents that."""

    name: str
    raw: Any
    error: DataError | None = None


TableRow = tuple[int, dict[str, Any] | DataError]  # the number of a row, and its values by column or the error in it


def ending_of(path: Path) -> str:
    """Return the ending that tells the format, in lower case, with ``.gz`` and what stands before it.

    >>> ending_of(Path("data/Flowers.CSV.gz"))
    '.csv.gz'
    """
    name = path.name.lower()
    stem = name.removesuffix(".gz")
    return Path(stem).suffix + name[len(stem) :]


def stream_table(path: Path, columns: Sequence[str]) -> Iterator[RawInput]:
    """Yield the rows of a table file in bounded memory (an NPZ file is loaded), each with at least ``columns``.

    A row that is broken comes with its error. A file that cannot be read any further ends with an error as its last
    row; a file without the columns raises at once.
    """
    return _to_the_end(path, _stream(path, columns))


def stream_lines(lines: Iterable[str], columns: Sequence[str]) -> Iterator[RawInput]:
    """Yield the rows of CSV or JSON Lines that come from a stream; an object in the first line means JSON Lines."""
    lines = iter(lines)
    first = next((line for line in lines if line.strip()), "").removeprefix("\ufeff")
    rest = chain([first], lines)
    rows = json_rows(rest) if first.lstrip().startswith("{") else _stream_csv(rest, columns)
    return _to_the_end(Path("-"), rows)


def _to_the_end(path: Path, rows: Iterator[TableRow]) -> Iterator[RawInput]:
    """Yield rows; an error that ends them is the last one, unless it is that of a missing column."""
    number = 0
    try:
        with table_errors(path):
            for number, row in rows:
                error = row if isinstance(row, DataError) else None
                yield RawInput(f"{path}:{number}", row if error is None else None, error)
    except DataError as error:
        if not number and error.column is not None:
            raise
        yield RawInput(f"{path}:{number + 1}", None, error)


def check_table(path: Path) -> None:
    """Raise unless the path is a regular file that is not empty, with an ending of a table."""
    if ending_of(path) not in TABLES:
        raise OptionError(f"a table must be one of {TABLES_TEXT}, got {path.name!r}; convert it")
    if not path.is_file():
        raise DataError("expected a table, but there is no such file")
    if path.stat().st_size == 0:
        raise DataError("the file is empty (0 bytes); write or copy it again")


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Load the arrays of an NPZ file by name; never a pickle."""
    with table_errors(path), path.open("rb") as stream:  # NumPy leaves a path open when its archive is damaged
        try:
            stored = np.load(stream, allow_pickle=False)
            if not isinstance(stored, np.lib.npyio.NpzFile):
                raise ValueError("one array alone")
            arrays = {name: stored[name] for name in stored.files}
            if not all(isinstance(array, np.ndarray) for array in arrays.values()):
                raise ValueError("files that are not arrays")
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, *UNEXPECTED) as error:
            raise DataError(f"the NPZ file is damaged ({first_line(error)}); write or copy it again") from error
        except ValueError as error:
            if "Object arrays" in str(error):
                message = "the file holds an array of Python objects, which could run code when loaded"
                raise DataError(f"{message}; save numbers, or words as a NumPy array of strings") from error
            raise DataError("this is not an NPZ file; write it with numpy.savez(path, x=..., y=...)") from error
    return arrays


@contextmanager
def table_errors(path: Path) -> Iterator[None]:
    """Turn what reading a file may raise into a DataError with the path of the file."""
    try:
        with located(path):
            yield
    except UnicodeDecodeError as error:
        message = f"expected text in UTF-8, got {error.reason} at byte {error.start}; save the file as UTF-8"
        raise DataError(message, path=path) from error
    except csv.Error as error:
        message = f"a quote is broken or not closed ({error}); double each quote inside quotes"
        if "field limit" in str(error):
            message = f"a value is too long for CSV ({error}); shorten it, or write JSON Lines, which has no limit"
        raise DataError(message, path=path) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"the gzip file is damaged ({error}); write or copy it again", path=path) from error
    except (OSError, SystemError) as error:  # SystemError for an array of words that are not Unicode
        raise DataError(f"the file cannot be read ({getattr(error, 'strerror', None) or error})", path=path) from error


def open_text(path: Path) -> IO[str]:
    """Open a text file in UTF-8, with or without a byte order mark, packed as ``.gz`` or not."""
    opener: Callable[..., IO[str]] = gzip.open if path.suffix.lower() == ".gz" else open
    return opener(path, "rt", encoding="utf-8-sig", newline="")


def csv_rows(lines: Iterable[str], delimiter: str | None = None) -> Iterator[list[str]]:
    """Yield the header of a CSV file, then its rows; empty lines are skipped.

    The delimiter is the one of comma, semicolon and tab that splits the header into most names. Quotes may contain
    delimiters and line ends.
    """
    lines, header = iter(lines), []
    for line in lines:
        header.append(line)
        if sum(text.count('"') for text in header) % 2 == 0 or len(header) == CHUNK:
            break

    def read(delimiter: str, lines: Iterable[str], strict: bool) -> Any:
        return csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=strict)

    if delimiter is None:
        delimiter = max(DELIMITERS, key=lambda each: len(next(read(each, header, False), [])))
    reader = read(delimiter, chain(header, lines), True)
    yield _checked_header([name.strip() for name in next(reader, [])])
    try:
        yield from filter(None, reader)
    except csv.Error as error:
        raise csv.Error(f"line {reader.line_num}: {error}") from error


def json_rows(lines: Iterable[str]) -> Iterator[TableRow]:
    """Yield the objects of JSON Lines; a line that is not one comes with its error."""
    for number, line in enumerate(filter(str.strip, lines), 1):
        message = "the line must be a JSON object of column names and values"
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            values, message = None, f"the line is not valid JSON ({error})"
        yield number, values if isinstance(values, dict) else DataError(message, row=number)


def npz_columns(path: Path) -> dict[str, NDArray[Any]]:
    """Load the columns of an NPZ file: an array ``(n,)`` is one, ``x`` of ``(n, d)`` is ``x0``, ``x1``, ..."""
    columns: list[tuple[str, NDArray[Any]]] = []
    for name, array in read_arrays(path).items():
        if array.ndim not in (1, 2):
            message = f"expected arrays of shape (n,) or (n, d), got {array.shape}; reshape it to one row per example"
            raise DataError(message, column=name)
        columns += [(name, array)] if array.ndim == 1 else [(f"{name}{i}", part) for i, part in enumerate(array.T)]
    _check_unique([name for name, _ in columns])
    return dict(columns)


Select = Callable[[Sequence[str]], list[str]]  # from the columns of a file to those that are read


def read_columns(path: Path, select: Select, words: Collection[str], delimiter: str | None) -> dict[str, Column]:
    """Read the selected columns of a file into memory; those in ``words`` hold words even if they look like numbers."""
    check_table(path)
    ending = ending_of(path)
    if ending in CSV:
        columns = _read_csv(path, select, words, delimiter)
    elif ending in JSON_LINES:
        columns = _read_json(path, select, words)
    elif ending in NPZ:
        arrays = npz_columns(path)
        columns = {name: cells.array_column(name, arrays[name], name in words) for name in select(list(arrays))}
    else:
        with open_parquet(path) as opened:
            names = list(opened.schema_arrow.names)
            _check_unique(names)
            table = opened.read(columns=select(names))
        columns = {name: _arrow_column(name, table[name], name in words) for name in table.column_names}
    return {name: column if name in words else cells.words_or_numbers(column) for name, column in columns.items()}


def _read_csv(path: Path, select: Select, words: Collection[str], delimiter: str | None) -> dict[str, Column]:
    with open_text(path) as stream:
        reader = csv_rows(stream, delimiter)
        names = next(reader)
        columns = {name: TextColumn(name, name in words) for name in select(names)}
        row = 1
        while rows := list(islice(reader, CHUNK)):
            if set(map(len, rows)) != {len(names)}:
                at = next(i for i, values in enumerate(rows) if len(values) != len(names))
                raise _ragged(rows[at], names, row + at)
            for name, texts in zip(names, zip(*rows, strict=True), strict=True):
                if name in columns:
                    columns[name].add(texts, row)
            row += len(rows)
    codes = [name for name, column in columns.items() if column.has_codes]
    if codes:  # their leading zeros are lost
        return _read_csv(path, select, {*words, *codes}, delimiter)
    return {name: column.column() for name, column in columns.items()}


def _read_json(path: Path, select: Select, words: Collection[str]) -> dict[str, Column]:
    values: dict[str, list[Any]] = {}
    with open_text(path) as stream:
        for number, row in json_rows(stream):
            if isinstance(row, DataError):
                raise row
            if number == 1:
                values = {name: [] for name in select(list(row))}
            check_row(row, values, number)
            for name, column in values.items():
                column.append(row[name])
    if not values:
        raise DataError("expected one JSON object per line, got none")
    return {name: cells.value_column(name, column, name in words) for name, column in values.items()}


def _stream(path: Path, columns: Sequence[str]) -> Iterator[TableRow]:
    check_table(path)
    ending = ending_of(path)
    if ending in PARQUET:
        with open_parquet(path) as opened:
            check_columns(list(opened.schema_arrow.names), columns)
            rows = (row for batch in opened.iter_batches(CHUNK, columns=list(columns)) for row in batch.to_pylist())
            yield from enumerate(rows, 1)
    elif ending in NPZ:
        arrays = npz_columns(path)
        check_columns(list(arrays), columns)
        check_lengths({name: arrays[name] for name in columns})
        matrices = {name.rstrip("0123456789") for name in columns if name[-1:].isdigit()}
        others = [name for name in arrays if name not in columns and name.rstrip("0123456789") in matrices]
        if others:  # columns of a matrix have no names that would tell whether they are the same
            sys.stderr.write(f"note: {path}: the model uses {listed(columns)} and ignores {listed(others)}\n")
        values = zip(*(arrays[name] for name in columns), strict=True)
        rows = (dict(zip(columns, (value.item() for value in row), strict=True)) for row in values)
        yield from enumerate(rows, 1)
    else:
        with open_text(path) as stream:
            yield from json_rows(stream) if ending in JSON_LINES else _stream_csv(stream, columns)


def _stream_csv(lines: Iterable[str], columns: Sequence[str]) -> Iterator[TableRow]:
    reader = csv_rows(lines)
    names = next(reader)
    check_columns(names, columns)
    for number, values in enumerate(reader, 1):
        fits = len(values) == len(names)
        yield number, dict(zip(names, values, strict=True)) if fits else _ragged(values, names, number)


def check_columns(names: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise unless all wanted columns exist; the error names those that are missing."""
    lacking = [name for name in wanted if name not in names]
    if lacking:
        there = f"there are {listed(names) or 'none'}{nearest(lacking[0], names)}"
        message = f"the model was fitted on the columns {listed(lacking)}, which are missing; {there}"
        raise DataError(message, column=lacking[0])


def check_lengths(columns: Mapping[str, Sized]) -> None:
    """Raise unless all columns have the same length."""
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"arrays must have one row per example, got lengths {lengths}")


def check_row(row: Any, columns: Iterable[str], number: int) -> None:
    """Raise unless a row is a mapping with these columns."""
    if not isinstance(row, Mapping):
        raise DataError(f"a row must be a mapping from column to value, got {type(row).__name__}", row=number)
    lacking = [name for name in columns if name not in row]
    if lacking:
        names = [str(key) for key in row]
        what = f"column {lacking[0]!r}" if len(lacking) == 1 else f"columns {listed(lacking)}"
        hint = nearest(lacking[0], names)
        raise DataError(f"the row has no {what}; its columns are {listed(names) or 'none'}{hint}", row=number)


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file; what is wrong with it is a DataError."""
    arrow = require("pyarrow", "tables", "reading Parquet")
    parquet = require("pyarrow.parquet", "tables", "reading Parquet")
    try:
        with parquet.ParquetFile(path) as opened:
            yield opened
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"the Parquet file is damaged ({first_line(error)}); write or copy it again") from error


def _arrow_column(name: str, values: Any, as_words: bool) -> Column:
    arrow = require("pyarrow", "tables", "reading Parquet")
    kind = values.type.value_type if arrow.types.is_dictionary(values.type) else values.type
    is_word = arrow.types.is_string(kind) or arrow.types.is_large_string(kind) or arrow.types.is_boolean(kind)
    is_number = arrow.types.is_integer(kind) or arrow.types.is_floating(kind) or arrow.types.is_decimal(kind)
    is_word = is_word or as_words or arrow.types.is_date(kind) or arrow.types.is_timestamp(kind)
    if not (is_word or is_number or arrow.types.is_null(kind)):
        message = f"expected numbers, words or dates, got {kind}; convert it, or leave it out with fit --drop {name}"
        raise DataError(message, column=name)
    values = values.cast(kind)
    if is_word:
        return cells.word_column(values.to_pylist())
    return Numbers(np.array(values.cast(arrow.float64(), safe=False).to_numpy(), dtype=np.float64))


def _checked_header(names: list[str]) -> list[str]:
    if not any(names):
        raise DataError("expected a line of column names first, got an empty line")
    if "" in names:
        message = f"each column needs a name, column {names.index('') + 1} of the header has none"
        raise DataError(f"{message}; name it, or write the file without its index")
    if cells.parse_numbers(names) is not None:
        raise DataError(f"expected a line of column names first, got numbers ({listed(names, 3)}); add a header")
    _check_unique(names)
    return names


def _check_unique(names: Sequence[str]) -> None:
    name, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise DataError(f"column names must differ, got {count} of this name; rename one", column=name)


def _ragged(values: Sequence[str], names: Sequence[str], row: int) -> DataError:
    message = f"the header names {len(names)} columns, but the row has {len(values)} values"
    return DataError(f"{message}; correct the row, or quote values that contain the delimiter", row=row)
