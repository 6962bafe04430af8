"""Features that were computed elsewhere: NPY and NPZ files, and the list column of a Parquet file."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openradial.data.readers.table_files import NPZ, PARQUET, ending_of, open_parquet, read_arrays, table_errors
from openradial.errors import DataError, OptionError

NPY = ".npy"
FEATURES = ("features", "embeddings")  # arrays of an NPZ file that hold features


def read_embeddings(path: Path) -> NDArray[np.float32]:
    """Read features ``(n, d)``: the array ``features`` or ``embeddings``, or the only one of two dimensions."""
    if ending_of(path) not in (NPY, *NPZ, *PARQUET):
        raise OptionError(f"features are read from .npy, .npz, .parquet and .pq files, got {path.name!r}")
    with table_errors(path):
        arrays = _arrays(path)
        found = {name: array for name, array in arrays.items() if array.ndim == 2 and array.dtype.kind in "iuf"}
        named = [name for name in FEATURES if name in found] or list(found)
        if not named or (len(named) > 1 and named[0] not in FEATURES):
            shapes = {name: array.shape for name, array in arrays.items()}
            raise DataError(f"expected one array of numbers (n, d), or one called features, got {shapes or 'none'}")
        features = found[named[0]].astype(np.float32)
        if not (finite := np.isfinite(features).all(1)).all():
            raise DataError("expected finite numbers, got NaN or infinity", row=int(finite.argmin()) + 1)
        return features


def holds_embeddings(path: Path) -> bool:
    """Return whether a file has features by name or in a list column, beside which it may hold labels."""
    with table_errors(path):
        if not path.is_file() or ending_of(path) not in (*NPZ, *PARQUET):
            return False
        return any(name in FEATURES or ending_of(path) in PARQUET for name in _arrays(path))


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        if ending_of(path) in NPZ:
            return read_arrays(path)
        if ending_of(path) == NPY:
            with path.open("rb") as stream:
                return {FEATURES[0]: np.load(stream, allow_pickle=False)}
        with open_parquet(path) as opened:
            lists = [field.name for field in opened.schema_arrow if "list<" in str(field.type)]
            columns = opened.read(columns=lists)
            return {name: np.stack(columns[name].to_numpy()) for name in lists}
    except (ValueError, EOFError) as error:
        raise DataError(f"the features are damaged, or rows differ in length ({error})") from error
