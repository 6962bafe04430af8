import ast
import gzip
import inspect
import math
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from openradial.data.readers import idx as reader
from openradial.data.readers.idx import TYPES, labelled_images, read_idx
from openradial.errors import DataError

CLASSES = ("a", "b", "c")
IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
LABELS = np.array([2, 0], dtype=np.uint8)


def idx(array, code=0x08):
    """The bytes of an idx file, as the format's description has them."""
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, code, array.ndim]) + sizes + array.astype(TYPES[code]).tobytes()


def folder_with(path, images=IMAGES, labels=LABELS):
    (path / "train-images-idx3-ubyte").write_bytes(images if isinstance(images, bytes) else idx(images))
    (path / "train-labels-idx1-ubyte").write_bytes(labels if isinstance(labels, bytes) else idx(labels))
    return path


@given(st.data(), st.sampled_from(sorted(TYPES)), array_shapes(min_dims=1, max_dims=4))
def test_what_was_written_is_read(tmp_path_factory, data, code, shape):
    dtype = np.dtype(TYPES[code])
    numbers = st.integers(-(2**7) if dtype.kind != "u" else 0, 2**7 - 1)
    array = data.draw(arrays(dtype.newbyteorder("="), shape, elements=numbers))
    path = tmp_path_factory.mktemp("idx") / "array"
    path.write_bytes(idx(array, code))
    found = read_idx(path)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_images_and_labels_become_examples(tmp_path):
    found = labelled_images(folder_with(tmp_path), "train", CLASSES)
    assert found.inputs.shape == (2, 1, 3, 4)
    assert found.inputs.dtype == torch.uint8
    np.testing.assert_array_equal(found.inputs[:, 0].numpy(), IMAGES)
    assert found.labels.tolist() == [2, 0]
    assert found.classes == CLASSES
    found.inputs.add_(1)  # the tensor owns its memory


def test_packed_files_are_read_the_same(tmp_path):
    folder_with(tmp_path)
    plain = labelled_images(tmp_path, "train", CLASSES)
    for path in list(tmp_path.iterdir()):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    packed = labelled_images(tmp_path, "train", CLASSES)
    assert torch.equal(plain.inputs, packed.inputs)
    assert torch.equal(plain.labels, packed.labels)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"array: expected an idx magic number .*, got an empty file; this is not an idx file"),
        (b"\x89PNG....", r"got 89 50 4e 47; this is not an idx file"),
        (b"\0\0\x0a\x01" + bytes(5), r"got 00 00 0a 01"),
        (b"\0\0\x08\0" + bytes(5), r"got 00 00 08 00"),
        (b"\0\0\x08\x03" + bytes(7), r"array: expected 3 sizes of 4 bytes, but the file ends after 11 bytes"),
        (
            idx(IMAGES)[:-1],
            r"array: expected 40 bytes for 2 x 3 x 4 numbers, got 39; the file is cut off, get it again",
        ),
        (idx(IMAGES) + b"!", r"array: expected 40 bytes .* got 41; the file has more than one array"),
        (b"\0\0\x0e\x04" + b"\xff" * 16, rf"expected {20 + 8 * (2**32 - 1) ** 4} bytes"),
    ],
    ids=["empty", "png", "type", "no dimensions", "half a header", "cut off", "too long", "absurd sizes"],
)
def test_a_damaged_file_is_named_with_what_is_wrong(tmp_path, content, message):
    path = tmp_path / "array"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_idx(path)
    assert caught.value.path == str(path)


@pytest.mark.parametrize(
    "content",
    [gzip.compress(idx(IMAGES))[:-9], b"plain text", gzip.compress(idx(IMAGES))[:12] + b"\xff" * 40],
    ids=["cut off", "plain", "garbled"],
)
def test_a_damaged_gzip_file_is_named(tmp_path, content):
    path = tmp_path / "array.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"expected a gzip file, but .*; the file is damaged, get it again") as caught:
        read_idx(path)
    assert caught.value.path == str(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nothing: the file cannot be read \(No such file"):
        read_idx(tmp_path / "nothing")
    with pytest.raises(DataError, match=r"idx3-ubyte: neither this file nor train-images-idx3-ubyte.gz exists"):
        labelled_images(tmp_path, "train", CLASSES)


@pytest.mark.parametrize(
    ("files", "name", "row", "message"),
    [
        ({"labels": LABELS[:1]}, "labels", None, "expected one label per image, got 1 labels for 2 images"),
        ({"labels": LABELS + 1}, "labels", 1, r"expected labels 0..2, got 3"),
        (
            {"images": LABELS},
            "images",
            None,
            "expected images: unsigned bytes in 3 dimensions, got uint8 in 1; .* may be swapped",
        ),
        ({"labels": IMAGES}, "labels", None, "expected labels: unsigned bytes in 1 dimensions, got uint8 in 3"),
        (
            {"labels": idx(LABELS, 0x0C)},
            "labels",
            None,
            "expected labels: unsigned bytes in 1 dimensions, got int32 in 1",
        ),
    ],
    ids=["counts", "label", "labels as images", "images as labels", "type"],
)
def test_images_and_labels_that_do_not_fit_are_refused(tmp_path, files, name, row, message):
    with pytest.raises(DataError, match=message) as caught:
        labelled_images(folder_with(tmp_path, **files), "train", CLASSES)
    paths = {"images": "train-images-idx3-ubyte", "labels": "train-labels-idx1-ubyte"}
    assert (caught.value.path, caught.value.row) == (str(tmp_path / paths[name]), row)


def test_no_images_are_no_examples(tmp_path):
    found = labelled_images(folder_with(tmp_path, IMAGES[:0], LABELS[:0]), "train", CLASSES)
    assert len(found) == 0
    assert math.prod(found.inputs.shape[1:]) == 12


def test_every_error_of_this_reader_has_the_path_of_the_file():
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(reader))) if isinstance(node, ast.Call)]
    errors = [call for call in calls if getattr(call.func, "id", "") == "DataError"]
    assert len(errors) > 4
    assert all("path" in [keyword.arg for keyword in call.keywords] for call in errors)
