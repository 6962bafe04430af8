"""Open data by path or name: folders of images, tables, NPZ images and named data sets.

:func:`open` reads labelled data for fit, evaluate and compare; :func:`stream` reads raw inputs one by one for predict.
Both use the same readers, so that they see the same rows, columns and labels.
"""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openradial.data import catalog
from openradial.data.catalog import Kind
from openradial.data.column_types import ColumnType
from openradial.data.examples import Examples
from openradial.data.readers import table_files
from openradial.data.readers.columns import array_column
from openradial.data.readers.embeddings import holds_embeddings, read_embeddings
from openradial.data.readers.folder import ImageFolder, free_memory, image_files, scan, scan_unlabelled, skipped
from openradial.data.readers.images import ImageStatistics, image_statistics
from openradial.data.readers.table_files import CSV, NPZ, TABLES, TABLES_TEXT, ending_of, read_arrays, table_errors
from openradial.data.readers.table_files import RawInput as RawInput
from openradial.data.readers.tables import Table, classes_of, read_table
from openradial.data.readers.texts import COLUMN, free_text_column, holds_texts, other_files, read_text_folder
from openradial.errors import DataError, OptionError, listed, nearest
from openradial.files import check_regular

Data = Examples | Table | ImageFolder
LABELS = ("y", "label", "labels", "target")  # arrays of an NPZ file that hold classes where none is named
TESTS = ("test", "val", "validation")
STDIN = "-"


@dataclass(frozen=True, eq=False)
class DataSource:
    """Data of one kind: all of it in ``train``, or a part for training and a part for testing."""

    name: str
    kind: Kind
    train: Data
    test: Data | None = None
    label: str | None = None  # the column or array that holds the classes
    text: str | None = None  # the column of a table that holds texts; no other column is read
    image_statistics: ImageStatistics | None = None  # of a folder of images
    types: Mapping[str, ColumnType] | None = None  # of the columns of a table; None infers them
    is_embedded: bool = False  # whether points are features that were computed elsewhere
    groups: Tensor | None = None  # of features: examples that no split separates

    @property
    def classes(self) -> tuple[str, ...]:
        return self.train.classes

    @property
    def notes(self) -> list[str]:
        """Which files of a folder are left out, and why."""
        folders = [data for data in (self.train, self.test) if isinstance(data, ImageFolder)]
        others = other_files(Path(self.name)) if self.text == COLUMN and Path(self.name).is_dir() else []
        texts = [f"left out, not a text file (.txt): {len(others):,} ({listed(others, 5)})"] * bool(others)
        return texts + [note for folder in folders for note in folder.report.skipped()]


def open(
    source: str | Path,
    *,
    label: str | None = None,
    labelled: bool = True,
    features: Sequence[str] | None = None,
    words: Collection[str] = (),
    text: str | None = None,
    embeddings: str | None = None,
    group: str | None = None,
) -> DataSource:
    """Open a folder of images or of text files, a table, a file of images or features, or a data set by its name.

    Image files are listed and not yet decoded. Folders ``train`` and ``test`` (or ``val``, ``validation``) are the two
    parts of one data set.

    Args:
        source: A path or a name.
        label: The column of a table, or the array of an NPZ file, that holds the classes.
        labelled: Whether every example must have a label; otherwise images may lie in any folder.
        features: The columns of a table to read; by default all but the label.
        words: Columns of a table whose numbers are codes and not quantities.
        text: The column of a table that holds texts, which is then the only one that is read. Without it, the only
            column besides the label holds texts if most of its values differ and have several words.
        embeddings: A file of features, see :func:`read_embeddings`, one row for each row of the table; the table then
            gives the labels and, in the column ``group``, the groups. A file with both needs no table.
    """
    path = check_regular(Path(source).expanduser())
    if embeddings is not None:
        return _open_embeddings(path, check_regular(Path(embeddings).expanduser()), label, labelled, group)
    if path.is_dir():
        return _open_folder(path, label, labelled)
    if ending_of(path) not in TABLES:
        if path.exists():
            wanted = f"a folder of images, a table ({TABLES_TEXT}) or the name of a data set"
            raise OptionError(f"data must be {wanted}, got {path}")
        return _open_named(str(source), label)
    if ending_of(path) in NPZ and path.is_file() and (images := _open_images(path, label, labelled)):
        return images
    if holds_embeddings(path):
        return _open_embeddings(path, path, label, labelled, group)
    with table_errors(path):
        table_files.check_table(path)
    if label is None and labelled:
        raise OptionError(f"a table needs the column that holds the classes: name it with label (--label), for {path}")
    if text is not None:
        features, words = (text,), (text,)
    table = read_table(path, label=label, features=features, words=words)
    column = text or (free_text_column(table) if features is None else None)
    return DataSource(str(path), "table" if column is None else "texts", table, label=label, text=column)


def stream(
    paths: Iterable[str | Path], kind: str, *, columns: Sequence[str] = (), stdin: TextIO | None = None
) -> Iterator[RawInput]:
    """Yield the inputs in files and folders one by one, in bounded memory; ``-`` reads the standard input.

    Images: files, folders (with their sub-folders) and NPZ files; from the standard input one path per line.
    Tables: every format that :func:`open` reads, with the given columns; from the standard input CSV or JSON Lines.
    Texts: one per file, a column of a table, or one per line of the standard input. Points and sequences: NPZ, points
    also CSV. ``kind`` is that of the inputs that the model takes, as in :class:`DataSource`.
    """
    for path in map(str, paths):
        if path == STDIN:
            yield from _stream_lines(sys.stdin if stdin is None else stdin, kind, columns)
            continue
        try:
            file = check_regular(Path(path).expanduser(), must_exist=True)
        except DataError as error:
            yield RawInput(path, None, error)
        else:
            yield from _stream_path(file, kind, columns)


def count_inputs(paths: Iterable[str | Path], kind: str) -> int | None:
    """Return how many inputs :func:`stream` will yield, where that is known without reading them."""
    if kind not in ("images", "texts"):
        return None
    total = 0
    for path in map(str, paths):
        if path == STDIN or ending_of(Path(path)) in (NPZ if kind == "images" else TABLES):
            return None
        total += sum(1 for _ in image_files(path, {})) if Path(path).is_dir() else 1
    return total


def indices(data: Data) -> Examples:
    """Return the index of each example with its label, so that all kinds of data are split by the same code."""
    return Examples(torch.arange(len(data)), data.labels, data.classes)


def subset(data: Data, part: Examples) -> Data:
    """Return the examples at the indices of ``part``, with its labels and classes."""
    which = part.inputs
    if isinstance(data, ImageFolder):
        return replace(data, paths=[data.paths[i] for i in which.tolist()], labels=part.labels, classes=part.classes)
    return replace(data.select(which), labels=part.labels, classes=part.classes)


def load_images(folder: ImageFolder, size: int, channels: int, skip_broken: bool, memory: float = 0.3) -> Data:
    """Decode the images of a folder, or return the folder where they would take too much of the free memory."""
    free = free_memory()
    if free is not None and len(folder) * channels * size * size > memory * free:
        return folder.check(skip_broken=True) if skip_broken else folder
    return folder.load(size, channels=channels, skip_broken=skip_broken)


def _open_folder(path: Path, label: str | None, labelled: bool) -> DataSource:
    if label is not None:
        raise OptionError(f"label names a column of a table, but {path} is a folder: its sub-folders are the classes")
    test = next((path / name for name in TESTS if (path / "train").is_dir() and (path / name).is_dir()), None)
    train_path = path if test is None else path / "train"
    if holds_texts(train_path):
        table = read_text_folder(train_path)
        held_texts = None if test is None else read_text_folder(test, table.classes)
        return DataSource(str(path), "texts", table, held_texts, text=COLUMN)
    if not labelled:
        held_out = None if test is None else scan_unlabelled(test)
        return DataSource(str(path), "images", scan_unlabelled(train_path), held_out)
    train = scan(train_path)
    held_out = None if test is None else scan(test, classes=train.classes)
    return DataSource(str(path), "images", train, held_out, image_statistics=image_statistics(train.paths))


def _open_images(path: Path, label: str | None, labelled: bool) -> DataSource | None:
    """Return the images of an NPZ file; None if it holds none."""
    arrays = read_arrays(path)
    with table_errors(path):
        pixels = _image_array(arrays)
        if pixels is None:
            return None
        n, channels, height, width = pixels.shape
        if channels not in (1, 3) or height != width or not n:
            actual = f"{n} of {height} x {width} with {channels}"
            message = f"expected square images with one or three channels, got {actual}"
            raise DataError(f"{message}; crop or pad them, or write them as image files")
        inputs = torch.from_numpy(np.ascontiguousarray(pixels))
        if not labelled and label is None:
            return DataSource(str(path), "images", Examples(inputs, torch.full((n,), -1), ()))
        name = _label_array(path, label, [other for other, array in arrays.items() if array.ndim < 3])
        if arrays[name].shape != (n,):
            raise DataError(f"expected one label for each of {n} images, got shape {arrays[name].shape}", column=name)
        labels, classes = classes_of(name, array_column(name, arrays[name], as_words=True))
        return DataSource(str(path), "images", Examples(inputs, labels, classes), label=name)


def _open_embeddings(path: Path, file: Path, label: str | None, labelled: bool, group: str | None) -> DataSource:
    """Return the features of a file with the labels and groups of a table, which may be the same file."""
    features = torch.from_numpy(read_embeddings(file))
    examples, groups = Examples(features, torch.full((len(features),), -1), ()), None
    if labelled or label is not None:
        names = [] if group is None else [group]
        if label is None and file != path:
            raise OptionError(f"features need the column of classes: name it with label (--label), for {path}")
        label = label or "labels"
        table = read_table(path, label=label, features=names, words=names)
        if len(table) != len(features):
            counts = f"{len(features):,} rows in {file.name} and {len(table):,} in {path.name}"
            raise DataError(f"features need one row for each example, got {counts}", path=file)
        examples = Examples(features, table.labels, table.classes)
        if group is not None:
            groups = torch.from_numpy(table.columns[group].codes.astype(np.int64))  # type: ignore[union-attr]
    return DataSource(str(path), "points", examples, label=label, is_embedded=True, groups=groups)


def _open_named(name: str, label: str | None) -> DataSource:
    if "/" in name or "\\" in name:
        raise DataError("there is no such file or folder", path=name)
    try:
        entry = catalog.entry(name)
    except OptionError as error:
        raise OptionError(f"there is no file or folder {name}, and {error}") from error
    if label is not None:
        raise OptionError(f"label names a column of a table, but {name} is a data set that has its labels")
    return DataSource(name, entry.kind, catalog.load(name, "train"), catalog.load(name, "test"))


def _image_array(arrays: dict[str, NDArray[Any]]) -> NDArray[np.uint8] | None:
    """Return the only array of uint8 images as ``(n, c, h, w)``; None if there is none.

    Images are ``(n, h, w)``, ``(n, c, h, w)`` if the second size is 1 or 3, else ``(n, h, w, c)``.
    """
    images = {name: a for name, a in arrays.items() if a.ndim in (3, 4) and a.dtype == np.uint8}
    if not images:
        return None
    if len(images) > 1:
        raise DataError(f"expected one array of images, got {listed(list(images))}; write the others to another file")
    (pixels,) = images.values()
    if pixels.ndim == 3:
        return pixels[:, None]
    return pixels if pixels.shape[1] in (1, 3) else pixels.transpose(0, 3, 1, 2)


def _label_array(path: Path, label: str | None, names: list[str]) -> str:
    wanted = (label,) if label is not None else LABELS
    match = next((name for name in wanted if name in names), None)
    if match is not None:
        return match
    message = f"{path} must hold the classes of its images in an array {' or '.join(wanted)}"
    hint = nearest(label, names) if label is not None else ""
    raise OptionError(f"{message}, got {listed(names) or 'none'}; name it with label (--label){hint}")


def _stream_path(path: Path, kind: str, columns: Sequence[str]) -> Iterator[RawInput]:
    if kind == "images":
        return _stream_images(path)
    if path.is_dir():
        raise OptionError(f"this model takes {kind}, but {path} is a folder; name files")
    is_table = kind == "table" or (bool(columns) and ending_of(path) in TABLES and not path.name.endswith(".txt"))
    if kind == "texts" and not is_table:
        try:
            with table_errors(path):
                return iter([RawInput(str(path), path.read_text(encoding="utf-8-sig"))])
        except DataError as error:
            return iter([RawInput(str(path), None, error)])
    return table_files.stream_table(path, columns) if is_table else _stream_arrays(path, kind)


def _stream_images(path: Path) -> Iterator[RawInput]:
    if path.is_dir():
        return _stream_folder(path)
    if ending_of(path) in NPZ:
        with table_errors(path):
            arrays = read_arrays(path)
            pixels = _image_array(arrays)
            if pixels is None:
                raise DataError(f"expected one array of uint8 images, got {listed(list(arrays)) or 'none'}")
        return (RawInput(f"{path}:{i}", image) for i, image in enumerate(pixels.transpose(0, 2, 3, 1), 1))
    return iter([RawInput(str(path), str(path))])


def _stream_folder(path: Path) -> Iterator[RawInput]:
    """Yield the images of a folder, then write a note on its other files."""
    others: dict[str, str] = {}
    name = None
    for name in image_files(path, others):
        yield RawInput(name, name)
    if name is None:
        yield RawInput(str(path), None, DataError("the folder holds no images", path=path))
    for note in skipped(path, others):
        sys.stderr.write(f"note: {path}: {note}\n")


def _stream_arrays(path: Path, kind: str) -> Iterator[RawInput]:
    if ending_of(path) in CSV and kind == "points":
        with table_errors(path), table_files.open_text(path) as stream:
            _, *rows = table_files.csv_rows(stream)
        return (RawInput(f"{path}:{number}", row) for number, row in enumerate(rows, 1))
    if kind == "points":
        return (RawInput(f"{path}:{number}", row) for number, row in enumerate(read_embeddings(path), 1))
    if ending_of(path) not in NPZ:
        raise OptionError(f"this model takes {kind} from NPZ files, got {path.name!r}")
    arrays = read_arrays(path)
    fitting = [array for array in arrays.values() if array.ndim == 3 and array.dtype.kind in "iuf"]
    if len(fitting) != 1:
        actual = f"{len(fitting)} among {listed(list(arrays)) or 'none'}"
        raise DataError(f"expected one array of 3 dimensions, got {actual}", path=path)
    return (RawInput(f"{path}:{number}", row) for number, row in enumerate(fitting[0], 1))


def _stream_lines(stream: TextIO, kind: str, columns: Sequence[str]) -> Iterator[RawInput]:
    if kind == "table":
        return table_files.stream_lines(stream, columns)
    lines = (line.rstrip("\r\n") for line in stream)
    if kind == "images":
        return (RawInput(line, line) for line in lines if line)
    if kind == "texts":
        return (RawInput(f"{STDIN}:{number}", line) for number, line in enumerate(lines, 1) if line)
    raise OptionError(f"this model takes {kind}, which cannot be read from the standard input; name an NPZ file")
