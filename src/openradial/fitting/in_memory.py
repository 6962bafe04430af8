"""Use data in memory as a source: examples, tables, folders of images, or a pair of arrays."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from openradial.data.examples import Examples
from openradial.data.inputs.tables import number_columns
from openradial.data.readers.columns import array_column, word_column
from openradial.data.readers.folder import ImageFolder
from openradial.data.readers.images import image_statistics
from openradial.data.readers.tables import Table, classes_of
from openradial.data.readers.texts import COLUMN
from openradial.data.sources import Data, DataSource, open
from openradial.errors import DataError, OptionError

IN_MEMORY = "data in memory"
FitData = str | Path | DataSource | Data | tuple[ArrayLike | Tensor, ArrayLike | Tensor]


def name_of(data: FitData) -> str:
    """Return the name of the data in options and metadata."""
    if isinstance(data, DataSource):
        return data.name
    return str(data) if isinstance(data, str | Path) else IN_MEMORY


def as_source(data: FitData, label: str | None = None, text: str | None = None, **columns: Any) -> DataSource:
    """Open a path or a name, or take data in memory; ``label`` and ``text`` are columns of a file."""
    if isinstance(data, str | Path):
        return open(data, label=label, text=text, **columns)
    if label is not None or text is not None or columns.get("embeddings") is not None:
        raise OptionError("label, text and embeddings are for files, and the data are in memory; leave them out")
    if isinstance(data, tuple) and len(data) == 2:
        texts: Any = data[0]
        if isinstance(texts, list | tuple | np.ndarray) and len(texts) and isinstance(texts[0], str):
            table = Table({COLUMN: word_column(texts)}, *_labels(data[1]))
            return DataSource(IN_MEMORY, "texts", table, text=COLUMN)
        data = _from_arrays(*data)
        if isinstance(data, Table):  # all columns of an array are used, so that its shape stays
            return DataSource(IN_MEMORY, "table", data, types=dict.fromkeys(data.columns, "number"))
    if isinstance(data, DataSource):
        return data
    if isinstance(data, Table):
        return DataSource(IN_MEMORY, "table", data)
    if isinstance(data, ImageFolder):
        return DataSource(IN_MEMORY, "images", data, image_statistics=image_statistics(data.paths))
    if not isinstance(data, Examples):
        expected = "a path, the name of a data set, a pair of arrays (inputs, labels), or Examples, Table, ImageFolder"
        raise OptionError(f"data must be {expected} or DataSource of openradial.data, got {type(data).__name__}")
    x = data.inputs
    if x.dtype == torch.uint8 and x.ndim == 4 and x.shape[1] in (1, 3) and x.shape[2] == x.shape[3]:
        return DataSource(IN_MEMORY, "images", data)
    if x.is_floating_point() and x.ndim in (2, 3):
        return DataSource(IN_MEMORY, "points" if x.ndim == 2 else "sequences", data)
    raise DataError(
        "expected square images (n, c, h, w) of uint8 with 1 or 3 channels, rows (n, d) or sequences (n, t, c) of "
        f"floats, got {str(x.dtype).removeprefix('torch.')} of shape {tuple(x.shape)}"
    )


def _from_arrays(inputs: ArrayLike | Tensor, labels: ArrayLike | Tensor) -> Data:
    """Return inputs and labels as a table of numbers, or as examples.

    Tensors, images and sequences are used as they are. The columns of other arrays are called x0, x1, ... and
    standardised like those of a file.
    """
    y, classes = _labels(labels)
    x = inputs if isinstance(inputs, Tensor) else _numbers(inputs)
    if len(x) != len(y):
        raise DataError(f"inputs and labels must have the same length, got {len(x)} and {len(y)}")
    if isinstance(x, np.ndarray) and x.ndim == 2:
        return Table(number_columns(x, [f"x{i}" for i in range(x.shape[1])]), y, classes)
    tensor = x if isinstance(x, Tensor) else torch.from_numpy(np.ascontiguousarray(x))
    if tensor.dtype == torch.uint8:
        return Examples(_channels_first(tensor), y, classes)
    return Examples(tensor.float() if tensor.is_floating_point() else tensor, y, classes)


def _channels_first(pixels: Tensor) -> Tensor:
    """Return images ``(n, h, w)``, ``(n, c, h, w)`` or ``(n, h, w, c)`` as ``(n, c, h, w)``."""
    if pixels.ndim == 3:
        return pixels[:, None]
    is_last = pixels.ndim == 4 and pixels.shape[1] not in (1, 3) and pixels.shape[3] in (1, 3)
    return pixels.permute(0, 3, 1, 2).contiguous() if is_last else pixels


def _numbers(inputs: ArrayLike) -> NDArray[Any]:
    try:
        x = np.asarray(inputs)
    except ValueError as error:
        raise DataError(f"inputs must be an array with one row per example ({error})") from error
    if x.dtype.kind not in "biuf" or x.ndim < 2:
        message = f"inputs must be an array of numbers with one row per example, got {x.dtype} of shape {x.shape}"
        raise DataError(f"{message}; write words and texts to a table, and name its file")
    return x


def _labels(labels: ArrayLike | Tensor) -> tuple[Tensor, tuple[str, ...]]:
    y = labels.numpy(force=True) if isinstance(labels, Tensor) else np.asarray(labels)
    if y.dtype == object and all(isinstance(value, str) for value in y.flat):
        y = y.astype(str)
    if y.ndim != 1:
        raise DataError(f"labels must have the shape (n,), one per input, got {y.shape}")
    return classes_of("labels", array_column("labels", y, as_words=True))
