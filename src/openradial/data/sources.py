"""Any labelled set, by its path or name: images, tables, points, sequences or texts, not yet prepared for a network."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openradial.data import catalog
from openradial.data.examples import Examples
from openradial.data.image_statistics import Look, look
from openradial.data.readers.folder import ImageFolder, free_memory, scan
from openradial.data.readers.table_files import read_arrays
from openradial.data.readers.tables import CSV, NPZ, PARQUET, Table, read_table
from openradial.errors import DataError, OptionError, listed, nearest

Kind = Literal["images", "table", "points", "sequences", "texts"]
Data = Examples | Table | ImageFolder
LABELS = ("y", "label", "labels", "target")  # arrays of an NPZ file that hold classes where none is named
TESTS = ("test", "val", "validation")
TABLES = (*CSV, *PARQUET, *NPZ)


@dataclass(frozen=True, eq=False)
class Labelled:
    """A set as it was found: all of it, or a part for training and one for testing."""

    name: str
    kind: Kind
    data: Data
    test: Data | None = None
    seen: Look | None = None  # images in a folder: how large they are
    label: str | None = None  # the column with the classes

    @property
    def classes(self) -> tuple[str, ...]:
        return self.data.classes


def find(data: str, label: str | None = None) -> Labelled:
    """The set that a path or a name stands for. Image files are listed and not yet read."""
    path = Path(data).expanduser()
    if path.is_dir():
        return _folder(path, label)
    if path.suffix.lower() in TABLES:
        images = read_images(path, label) if path.suffix.lower() in NPZ and path.is_file() else None
        return images or _table(path, label)
    if path.exists():
        raise OptionError(
            f"data must be a folder of images, a table ({', '.join(TABLES)}) or the name of a set, got the file {path}"
        )
    return _built_in(data, label)


def places(data: Data) -> Examples:
    """The place of each example with its label, so that all kinds of data are split by the same code."""
    return Examples(torch.arange(len(data)), data.labels, data.classes)


def chosen(data: Data, part: Examples) -> Data:
    """The examples at some places, with the labels and classes that these have."""
    which = part.inputs
    if isinstance(data, ImageFolder):
        return replace(data, paths=[data.paths[i] for i in which.tolist()], labels=part.labels, classes=part.classes)
    return replace(data.select(which), labels=part.labels, classes=part.classes)


def decoded(folder: ImageFolder, size: int, channels: int, skip_broken: bool, memory: float = 0.3) -> Data:
    """The images of a folder in memory, or the folder itself where they would take too much of what is free."""
    free = free_memory()
    if free is not None and len(folder) * channels * size * size > memory * free:
        return folder.check(skip_broken=True) if skip_broken else folder
    return folder.load(size, channels=channels, skip_broken=skip_broken)


def read_images(path: Path, label: str | None = None, *, labelled: bool = True) -> Labelled | None:
    """The uint8 images of an NPZ file, ``(n, h, w)``, ``(n, h, w, c)`` or ``(n, c, h, w)``; None if it holds none."""
    arrays = read_arrays(path)
    found = {name: a for name, a in arrays.items() if a.ndim in (3, 4) and a.dtype == np.uint8}
    if not found:
        return None
    if len(found) > 1:
        raise DataError(f"{path} must hold one array of images, got {listed(list(found))}; write the others elsewhere")
    inputs = _channels_first(path, next(iter(found.values())))
    if not labelled:
        return Labelled(str(path), "images", Examples(inputs, torch.full((len(inputs),), -1), ()))
    name = _label_array(path, label, [other for other in arrays if other not in found])
    labels, classes = _classes(path, name, arrays[name], len(inputs))
    return Labelled(str(path), "images", Examples(inputs, labels, classes), label=name)


def _folder(path: Path, label: str | None) -> Labelled:
    if label is not None:
        raise OptionError(f"label names a column of a table, but {path} is a folder: its folders are the classes")
    test = next((path / name for name in TESTS if (path / "train").is_dir() and (path / name).is_dir()), None)
    train = scan(path if test is None else path / "train")
    held = None if test is None else scan(test, classes=train.classes)
    return Labelled(str(path), "images", train, held, look(train))


def _table(path: Path, label: str | None) -> Labelled:
    if label is None:
        raise OptionError(f"a table needs the column that holds the classes: name it with label (--label), for {path}")
    return Labelled(str(path), "table", read_table(path, label=label), label=label)


def _built_in(name: str, label: str | None) -> Labelled:
    if "/" in name or "\\" in name:
        raise DataError(f"there is no folder or file {name}")
    try:
        entry = catalog.entry(name.partition(":")[0])
    except OptionError as error:
        raise OptionError(f"there is no file or folder {name}, and {error}") from error
    if label is not None:
        raise OptionError(f"label names a column of a table, but {name} is a set with labels of its own")
    if entry.kind == "words":
        raise OptionError(f"{name} holds no examples; the sets are: {', '.join(catalog.names())}")
    return Labelled(name, entry.kind, catalog.load(name, "train"), catalog.load(name, "test"))


def _channels_first(path: Path, images: NDArray[np.uint8]) -> Tensor:
    pixels = torch.from_numpy(images)
    if pixels.ndim == 3:
        pixels = pixels.unsqueeze(1)
    elif pixels.shape[1] not in (1, 3):
        pixels = pixels.permute(0, 3, 1, 2)
    n, channels, height, width = pixels.shape
    if channels not in (1, 3) or height != width or not n:
        raise DataError(
            f"{path} must hold square images (n, h, w), (n, h, w, c) or (n, c, h, w) with one or three channels, got "
            f"shape {images.shape}; cut or pad them, or write them as image files"
        )
    return pixels.contiguous()


def _label_array(path: Path, label: str | None, names: list[str]) -> str:
    wanted = (label,) if label is not None else LABELS
    for name in wanted:
        if name in names:
            return name
    hint = nearest(label, names) if label is not None else ""
    raise OptionError(
        f"{path} must hold the classes of its images in an array {' or '.join(wanted)}, got {listed(names) or 'none'}; "
        f"name it with label (--label){hint}"
    )


def _classes(path: Path, name: str, values: NDArray[np.generic], count: int) -> tuple[Tensor, tuple[str, ...]]:
    if values.shape != (count,) or values.dtype.kind not in "biuUS":
        raise DataError(
            f"{path}: {name!r} must hold one whole number or word for each of {count} images, got {values.dtype} of "
            f"shape {values.shape}"
        )
    found, codes = np.unique(values, return_inverse=True)
    words = np.char.decode(found, "utf-8") if found.dtype.kind == "S" else found
    return torch.from_numpy(codes.astype(np.int64)), tuple(str(word) for word in words.tolist())
