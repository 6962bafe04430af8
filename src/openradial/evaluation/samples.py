"""Data to evaluate a bundle on: known classes with their labels, and novel data without."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from openradial.bundle import Bundle, ImageInputs, TableInputs
from openradial.data.examples import Examples
from openradial.data.readers.folder import ImageFolder
from openradial.data.readers.table_files import Column, Words
from openradial.data.readers.tables import Table
from openradial.data.sources import Data, Labelled, find, read_images
from openradial.errors import DataError, OptionError, listed
from openradial.evaluation.rows import Row, image_files

Places = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows to predict; ``labels`` ``(n,)`` are places in the bundle's classes, -1 for novel ones."""

    name: str
    rows: list[Row]
    labels: Places
    truths: tuple[str, ...]  # what each row is, as far as the data say
    notes: tuple[str, ...] = ()


def known_sample(bundle: Bundle, data: str, label: str | None = None) -> Sample:
    """The examples of the classes that a bundle knows; those of other classes are left out and noted.

    ``data`` is what ``openradial fit`` takes. Of a set with a test part, that part is taken.
    """
    found = _found(bundle, data, label)
    examples = found.data if found.test is None else found.test
    labels = _as_places(bundle, examples)
    keep = np.flatnonzero(labels >= 0)
    if not len(keep):
        raise DataError(
            f"{data} holds none of the classes that the model knows: it has {listed(list(examples.classes))}, the "
            f"model knows {listed(list(bundle.classes))}"
        )
    left = sorted({examples.classes[k] for k in examples.labels[torch.from_numpy(labels < 0)].tolist() if k >= 0})
    notes = [f"left out of {data}: {listed(left, 5)}, which the model does not know"] if left else []
    if found.test is None and Path(data).name == _fitted(bundle, "name"):
        notes.append(f"the model was fitted on data called {Path(data).name}: if it is these, the numbers are too good")
    truths = tuple(bundle.classes[k] for k in labels[keep].tolist())
    return Sample(_title(data), _rows(bundle, examples, keep, data), labels[keep], truths, tuple(notes))


def novel_sample(bundle: Bundle, data: str, label: str | None = None) -> Sample:
    """Data of no known class; classes that the bundle knows are left out and noted."""
    path = Path(data).expanduser()
    if path.is_dir() and isinstance(bundle.preprocessing, ImageInputs):
        return _novel_folder(bundle, path)
    found = _unlabelled(bundle, path, label) if path.is_file() else _found(bundle, data, label)
    examples = found.data if found.test is None else found.test
    labels = _as_places(bundle, examples)
    keep = np.flatnonzero(labels < 0)
    left = sorted({bundle.classes[k] for k in labels[labels >= 0].tolist()})
    named = (*examples.classes, _title(data))  # -1 finds the last one
    truths = [named[k] for k in examples.labels[torch.from_numpy(keep)].tolist()]
    return _novel(data, _rows(bundle, examples, keep, data), truths, left)


def _found(bundle: Bundle, data: str, label: str | None) -> Labelled:
    wanted = bundle.preprocessing.kind
    path = Path(data).expanduser()
    if isinstance(bundle.preprocessing, TableInputs) and path.is_file():
        column = label or _fitted(bundle, "label")
        if column is None:
            raise OptionError(
                f"a table needs the column that holds the classes: name it with label (--label), for {path}"
            )
        return Labelled(data, "table", bundle.preprocessing.encoder.read(path, label=column), label=column)
    found = find(data, label)
    if found.kind != wanted:
        raise DataError(f"the model takes {wanted}, and {data} holds {found.kind}")
    return found


def _unlabelled(bundle: Bundle, path: Path, label: str | None) -> Labelled:
    """A file of novel data, whose labels are looked at only where they are named or known from fitting."""
    inputs = bundle.preprocessing
    if isinstance(inputs, TableInputs):
        if label is None:
            return Labelled(str(path), "table", inputs.encoder.read(path))
        return Labelled(str(path), "table", inputs.encoder.read(path, label=label), label=label)
    images = read_images(path, label, labelled=label is not None) if path.suffix.lower() == ".npz" else None
    if images is None or not isinstance(inputs, ImageInputs):
        raise DataError(f"the model takes {inputs.kind}, which {path} does not hold")
    return images


def _fitted(bundle: Bundle, name: str) -> str | None:
    """What a bundle tells of the data that it was fitted on."""
    data = bundle.facts.get("data")
    return data.get(name) if isinstance(data, dict) else None


def _novel_folder(bundle: Bundle, path: Path) -> Sample:
    known, rows, truths, left = set(bundle.classes), [], [], set()
    for name in image_files(path):
        parts = Path(name).relative_to(path).parts
        if len(parts) > 1 and parts[0] in known:
            left.add(parts[0])
        else:
            rows.append(Row(name, name))
            truths.append(parts[0] if len(parts) > 1 else path.name)
    return _novel(str(path), rows, truths, sorted(left))


def _novel(data: str, rows: list[Row], truths: list[str], left: list[str]) -> Sample:
    if not rows:
        raise DataError(f"{data} holds no novel data{': all of it is of classes that the model knows' if left else ''}")
    notes = (f"left out of {data}: {listed(left, 5)}, which the model knows",) if left else ()
    name = f"{_title(data)}, other classes" if left else _title(data)
    return Sample(name, rows, np.full(len(rows), -1), tuple(truths), notes)


def _title(data: str) -> str:
    """A path by its last two parts, which say more than its first ones; a name as it is.

    >>> _title("/data/animals/test"), _title("digits")
    ('animals/test', 'digits')
    """
    return "/".join(part for part in Path(data).parts[-2:] if part != "/")


def _as_places(bundle: Bundle, data: Data) -> Places:
    """The labels as places in the bundle's classes, -1 for all others."""
    place = {name: i for i, name in enumerate(bundle.classes)}
    table = np.array([*(place.get(name, -1) for name in data.classes), -1])  # label -1 finds the last one
    found: Places = table[data.labels.numpy()]
    return found


def _rows(bundle: Bundle, data: Data, keep: Places, name: str) -> list[Row]:
    if isinstance(data, ImageFolder):
        return [Row(data.paths[i], data.paths[i]) for i in keep.tolist()]
    if isinstance(data, Table):
        return [Row(f"{name}:{i + 1}", row) for i, row in zip(keep.tolist(), _table_rows(data, keep), strict=True)]
    assert isinstance(data, Examples)
    inputs = data.inputs[torch.from_numpy(keep)].numpy()
    if bundle.preprocessing.kind == "images":
        inputs = inputs.transpose(0, 2, 3, 1)
    return [Row(f"{name}:{i + 1}", row) for i, row in zip(keep.tolist(), inputs, strict=True)]


def _table_rows(table: Table, keep: Places) -> Iterable[dict[str, Any]]:
    columns = {name: _values(column.select(keep)) for name, column in table.columns.items()}
    return (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))


def _values(column: Column) -> list[Any]:
    if isinstance(column, Words):
        words = (*column.categories, None)  # -1 is the last
        return [words[code] for code in column.codes.tolist()]
    return list(column.values.tolist())
