"""The idx format of MNIST and its relatives: a magic number, the sizes, then raw numbers."""

import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openradial.data.examples import Examples
from openradial.errors import DataError
from openradial.files import AGAIN, expecting

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
GET_AGAIN = "the file is damaged, get it again"


def read_idx(path: Path | str) -> NDArray[Any]:
    """Return the array in an idx file, or in one packed as ``.gz``."""
    path = Path(path)
    with expecting("a gzip file", path, GET_AGAIN):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    magic = content[:4]
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in TYPES or not magic[3]:
        wanted = "an idx magic number (00 00, a type 08..0e, the number of dimensions)"
        actual = magic.hex(" ") or "an empty file"
        raise DataError(f"expected {wanted} at the start, got {actual}; this is not an idx file", path=path)
    dtype, start = np.dtype(TYPES[magic[2]]), 4 + 4 * magic[3]
    if len(content) < start:
        problem = f"but the file ends after {len(content)} bytes; {GET_AGAIN}"
        raise DataError(f"expected {magic[3]} sizes of 4 bytes, {problem}", path=path)
    shape = np.frombuffer(content, ">u4", count=magic[3], offset=4).tolist()
    expected = start + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        wanted = f"{expected} bytes for {' x '.join(map(str, shape))} numbers"
        problem = "is cut off" if len(content) < expected else "has more than one array"
        raise DataError(f"expected {wanted}, got {len(content)}; the file {problem}, get it again", path=path)
    with expecting("sizes that an array can have", path, GET_AGAIN):
        return np.frombuffer(content, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def labelled_images(folder: Path, part: str, classes: tuple[str, ...]) -> Examples:
    """Return the images and labels named ``part-images-idx3-ubyte`` and ``part-labels-idx1-ubyte``, packed or not."""
    images_file = packed_or_not(folder / f"{part}-images-idx3-ubyte")
    labels_file = packed_or_not(folder / f"{part}-labels-idx1-ubyte")
    images, labels = _bytes(images_file, 3, "images"), _bytes(labels_file, 1, "labels")
    return labelled(torch.from_numpy(images).unsqueeze(1), labels, classes, labels_file)  # (n, 1, h, w)


def labelled(images: Tensor, labels: NDArray[Any], classes: tuple[str, ...], path: Path) -> Examples:
    """Return images with their labels; raise unless there is one label for each image, and each is that of a class."""
    is_wrong = (labels < 0) | (labels >= len(classes))
    if is_wrong.any():
        row = int(is_wrong.argmax())
        message = f"expected labels 0..{len(classes) - 1}, got {labels[row]}; {AGAIN}"
        raise DataError(message, path=path, row=row + 1)
    if len(labels) != len(images):
        message = f"expected one label per image, got {len(labels)} labels for {len(images)} images; {AGAIN}"
        raise DataError(message, path=path)
    return Examples(images, torch.from_numpy(labels.astype(np.int64)), classes)


def packed_or_not(path: Path) -> Path:
    """Return the file itself, or its ``.gz``."""
    file = path if path.exists() else path.with_name(f"{path.name}.gz")
    if not file.exists():
        raise DataError(f"neither this file nor {file.name} exists; give the folder that has it", path=path)
    return file


def _bytes(path: Path, dims: int, what: str) -> NDArray[np.uint8]:
    array = read_idx(path)
    if array.dtype != np.uint8 or array.ndim != dims:
        message = f"expected {what}: unsigned bytes in {dims} dimensions, got {array.dtype} in {array.ndim}"
        raise DataError(f"{message}; images and labels may be swapped", path=path)
    return array
