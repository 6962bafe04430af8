"""Features that were computed elsewhere: NPY and NPZ files, and the list column of a Parquet file."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openradial.data.readers import table_files
from openradial.data.readers.table_files import NPZ, PARQUET, ending_of, open_parquet, read_arrays, table_errors
from openradial.errors import DataError, OptionError

FEATURES = ("features", "embeddings")  # arrays of an NPZ file that hold features


def read_embeddings(path: Path) -> NDArray[np.float32]:
    """Read features ``(n, d)``: the array ``features`` or ``embeddings``, or the only one of two dimensions."""
    if ending_of(path) not in (".npy", *NPZ, *PARQUET):
        raise OptionError(f"features are read from .npy, .npz, .parquet and .pq files, got {path.name!r}")
    with table_errors(path):
        arrays = read_arrays(path) if ending_of(path) in NPZ else _read_array(path)
        matrices = {name: array for name, array in arrays.items() if array.ndim == 2 and array.dtype.kind in "iuf"}
        named = [name for name in FEATURES if name in matrices][:1] or list(matrices)
        if len(named) != 1:
            shapes = {name: array.shape for name, array in arrays.items()}
            raise DataError(f"expected one array of numbers (n, d), or one called features, got {shapes or 'none'}")
        with np.errstate(over="ignore", invalid="ignore"):
            features = matrices[named[0]].astype(np.float32)
        if not (finite := np.isfinite(features).all(1)).all():
            raise DataError("expected finite numbers in float32, got NaN or infinity", row=int(finite.argmin()) + 1)
        return features


def holds_embeddings(path: Path) -> bool:
    """Return whether a file has features by name or in a list column, beside which it may hold labels."""
    if ending_of(path) in NPZ and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return any(f"{name}.npy" in archive.namelist() for name in FEATURES)
    return ending_of(path) in PARQUET and path.is_file() and bool(_read_array(path))


def _read_array(path: Path) -> dict[str, NDArray[Any]]:
    """Return the array of an NPY file, or the list columns of a Parquet file."""
    try:
        if ending_of(path) not in PARQUET:
            with path.open("rb") as stream:
                return {FEATURES[0]: np.load(stream, allow_pickle=False)}
        with table_errors(path), open_parquet(path) as opened:
            lists = [field.name for field in opened.schema_arrow if "list<" in str(field.type)]
            return {name: np.stack(opened.read(columns=[name])[name].to_numpy()) for name in lists}
    except DataError:
        raise
    except (ValueError, EOFError, *table_files.UNEXPECTED) as error:
        raise DataError(f"the features are damaged, or rows differ in length ({error})", path=path) from error
