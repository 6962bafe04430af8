"""The idx format of MNIST and its relatives: a magic number, the sizes, then raw numbers."""

import gzip
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from openradial.data.examples import Examples
from openradial.errors import DataError

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
GET_AGAIN = "the file is damaged, get it again"


def read_idx(path: Path | str) -> NDArray[Any]:
    """Return the array in an idx file, or in one packed as ``.gz``."""
    path = Path(path)
    content = read_packed_or_not(path)
    magic = content[:4]
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in TYPES or not magic[3]:
        wanted = "an idx magic number (00 00, a type 08..0e, the number of dimensions)"
        actual = magic.hex(" ") or "an empty file"
        raise DataError(f"{path} should begin with {wanted}, got {actual}; this is not an idx file")
    dtype, start = np.dtype(TYPES[magic[2]]), 4 + 4 * magic[3]
    if len(content) < start:
        problem = f"but it ends after {len(content)} bytes; {GET_AGAIN}"
        raise DataError(f"{path} should have {magic[3]} sizes of 4 bytes, {problem}")
    shape = np.frombuffer(content, ">u4", count=magic[3], offset=4).tolist()
    expected = start + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        wanted = f"{expected} bytes for {' x '.join(map(str, shape))} numbers"
        problem = "is cut off" if len(content) < expected else "has more than one array"
        raise DataError(f"{path} should have {wanted}, got {len(content)}; the file {problem}, get it again")
    return np.frombuffer(content, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def labelled_images(folder: Path, part: str, classes: tuple[str, ...]) -> Examples:
    """Return the images and labels named ``part-images-idx3-ubyte`` and ``part-labels-idx1-ubyte``, packed or not."""
    images_file = packed_or_not(folder / f"{part}-images-idx3-ubyte")
    labels_file = packed_or_not(folder / f"{part}-labels-idx1-ubyte")
    images, labels = _bytes(images_file, 3, "images"), _bytes(labels_file, 1, "labels")
    if len(images) != len(labels):
        lengths = f"{len(images)} images but {labels_file} has {len(labels)} labels"
        raise DataError(f"{images_file} has {lengths}; {GET_AGAIN}")
    if len(labels) and labels.max() >= len(classes):
        raise DataError(f"{labels_file} should have labels 0..{len(classes) - 1}, got {labels.max()}; {GET_AGAIN}")
    inputs = torch.from_numpy(images).unsqueeze(1)  # (n, 1, h, w)
    return Examples(inputs, torch.from_numpy(labels.astype(np.int64)), classes)


def packed_or_not(path: Path) -> Path:
    """Return the file itself, or its ``.gz``."""
    file = path if path.exists() else path.with_name(f"{path.name}.gz")
    if not file.exists():
        raise DataError(f"neither {path} nor {file.name} exists; give the folder that has it")
    return file


def _bytes(path: Path, dims: int, what: str) -> NDArray[np.uint8]:
    array = read_idx(path)
    if array.dtype != np.uint8 or array.ndim != dims:
        wanted = f"{what}: unsigned bytes in {dims} dimensions, got {array.dtype} in {array.ndim}"
        raise DataError(f"{path} should hold {wanted}; images and labels may be swapped")
    return array


def read_packed_or_not(path: Path) -> bytes:
    """Return the bytes of a file, unpacked if its name ends in ``.gz``."""
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} should be a gzip file, but {error}; {GET_AGAIN}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
