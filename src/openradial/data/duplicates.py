"""Find identical inputs. They must stay in the same part of a split: a copy in two parts flatters measurements."""

import hashlib
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openradial.data.examples import Examples
from openradial.data.readers.columns import Numbers
from openradial.data.readers.folder import ImageFolder
from openradial.data.readers.tables import Table


def duplicate_groups(data: Examples | Table | ImageFolder) -> NDArray[np.int64]:
    """Return for each example the index of the first one with the same input, ``(n,)``; labels are not compared.

    Inputs are compared by a hash of their content: of tensors, of the values of a table, or of the bytes of image
    files.

    >>> import torch
    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])
    >>> duplicate_groups(Examples(x, torch.tensor([0, 1, 1]), ("a", "b"))).tolist()
    [0, 1, 0]
    """
    if isinstance(data, ImageFolder):
        return _identical_files(data.paths)
    if isinstance(data, Table):
        columns = [
            _bits(column.values) if isinstance(column, Numbers) else column.codes for column in data.columns.values()
        ]
        return _identical_rows(np.stack(columns, axis=1) if columns else np.empty((len(data), 0)))
    return _identical_rows(_bits(data.inputs.numpy(force=True)))


def count_duplicates(groups: NDArray[np.int64]) -> int:
    """Return how many examples are copies of an earlier one.

    >>> count_duplicates(np.array([0, 1, 0, 0]))
    2
    """
    return len(groups) - len(np.unique(groups))


def join_groups(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return groups, ``(n,)``, in which examples are together that share a group of either kind, also in a chain.

    >>> join_groups(np.array([0, 0, 1, 2, 3]), np.array([0, 1, 1, 2, 3])).tolist()
    [0, 0, 0, 1, 2]
    """
    joined = np.arange(len(first))
    while True:
        before = joined
        for groups in (first, second):
            codes = np.unique(groups, return_inverse=True)[1]
            smallest = np.full(codes.max(initial=-1) + 1, len(first))
            np.minimum.at(smallest, codes, joined)
            joined = smallest[codes]
        if np.array_equal(joined, before):
            return np.unique(joined, return_inverse=True)[1].astype(np.int64)


def _bits(values: NDArray[Any]) -> NDArray[Any]:
    """Return the array with one representation for zero and one for NaN, so that equal values have equal bytes."""
    if values.dtype.kind != "f":
        return values
    plain: NDArray[Any] = values + values.dtype.type(0)  # -0.0 becomes 0.0
    plain[np.isnan(plain)] = np.nan
    return plain


def _identical_rows(rows: NDArray[Any]) -> NDArray[np.int64]:
    content = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
    width, seen = len(content) // max(1, len(rows)), dict[bytes, int]()
    first = (
        seen.setdefault(hashlib.blake2b(content[i * width : (i + 1) * width], digest_size=16).digest(), i)
        for i in range(len(rows))
    )
    return np.fromiter(first, dtype=np.int64, count=len(rows))


def _identical_files(paths: list[str]) -> NDArray[np.int64]:
    by_size: dict[int, list[int]] = {}
    for i, path in enumerate(paths):
        try:
            by_size.setdefault(os.stat(path).st_size, []).append(i)
        except OSError:
            continue  # whoever decodes the file names the error
    groups, seen = np.arange(len(paths)), dict[tuple[int, bytes], int]()
    for size, same_size in by_size.items():
        for i in same_size if len(same_size) > 1 else ():
            try:
                with open(paths[i], "rb") as file:
                    groups[i] = seen.setdefault((size, hashlib.file_digest(file, "blake2b").digest()), i)
            except OSError:
                continue
    return groups
