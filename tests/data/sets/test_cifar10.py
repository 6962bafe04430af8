import io
import json
import sys
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from openradial.data.sets.cifar10 import BATCHES, CLASSES, LABELS, SHEETS, TAR, cifar10
from openradial.errors import DataError, FetchError, MissingError, OptionError

RANDOM = np.random.default_rng(0)
NAMES = (*BATCHES["train"], *BATCHES["test"])
IMAGES = {name: RANDOM.integers(0, 256, (3, 3, 32, 32), dtype=np.uint8) for name in NAMES}
TARGETS = {name: RANDOM.integers(0, 10, 3) for name in NAMES}
TRAIN = np.concatenate([IMAGES[name] for name in BATCHES["train"]])


def records(name):
    """A binary batch: a byte for the label, then red, green and blue planes."""
    return b"".join(bytes([y]) + x.tobytes() for x, y in zip(IMAGES[name], TARGETS[name], strict=True))


def tar(batches):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, content in batches.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


def png(array):
    made = io.BytesIO()
    Image.fromarray(array).save(made, "PNG")
    return made.getvalue()


def sheets(**changed):
    """The package's files: a sheet has a row for each image, pixel after pixel, and labels lie beside."""
    files = {
        f"{name}.png": png(np.ascontiguousarray(IMAGES[name].transpose(0, 2, 3, 1).reshape(3, 1024, 3)))
        for name in NAMES
    }
    for split, name in LABELS.items():
        files[name] = json.dumps(np.concatenate([TARGETS[batch] for batch in BATCHES[split]]).tolist()).encode()
    assert set(files) == set(SHEETS)
    return files | {name.replace("__", "."): content for name, content in changed.items()}


def assert_is_the_set(found):
    assert found.classes == CLASSES
    np.testing.assert_array_equal(found.inputs.numpy(), TRAIN)
    assert found.labels.tolist() == np.concatenate([TARGETS[name] for name in BATCHES["train"]]).tolist()
    assert found.inputs.is_contiguous()
    found.inputs.add_(0)  # writable


@pytest.fixture(scope="module")
def real(fetched):
    return {split: fetched(cifar10, split) for split in BATCHES}


def test_the_set_is_the_one_of_the_literature(real):
    images = real["train"].inputs
    assert images.shape == (50_000, 3, 32, 32)
    assert images.dtype == torch.uint8
    for channel, mean, std in zip(range(3), (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), strict=True):
        scaled = images[:, channel].float() / 255
        assert scaled.mean(dtype=torch.float64).item() == pytest.approx(mean, abs=1e-4)
        assert scaled.double().std().item() == pytest.approx(std, abs=1e-4)


def test_the_labels_are_those_of_the_literature(real):
    assert real["train"].counts().tolist() == [5000] * 10
    assert real["test"].counts().tolist() == [1000] * 10
    assert [CLASSES[label] for label in real["train"].labels[:3]] == ["frog", "truck", "truck"]
    assert [CLASSES[label] for label in real["test"].labels[:3]] == ["cat", "ship", "ship"]


def test_the_publishers_archive_is_read(stand_in):
    root = stand_in("cifar10", {TAR: tar({name: records(name) for name in NAMES})})
    assert_is_the_set(cifar10("train", root=root))
    np.testing.assert_array_equal(cifar10("test", root=root).inputs.numpy(), IMAGES["test_batch"])


def test_sheets_are_read(stand_in):
    root = stand_in("cifar10", sheets())
    assert_is_the_set(cifar10("train", root=root))
    np.testing.assert_array_equal(cifar10("test", root=root).inputs.numpy(), IMAGES["test_batch"])


@pytest.mark.parametrize("below", ["", "cifar-10-batches-bin"])
def test_unpacked_files_in_a_users_folder_are_read(tmp_path, below):
    (tmp_path / below).mkdir(exist_ok=True)
    for name in NAMES:
        (tmp_path / below / f"{name}.bin").write_bytes(records(name))
    assert_is_the_set(cifar10("train", root=tmp_path, download=False))


def test_a_users_archive_with_a_wrong_checksum_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENRADIAL_CACHE", str(tmp_path / "cache"))
    (tmp_path / TAR).write_bytes(tar({}))
    with pytest.raises(FetchError, match=r"cifar-10-binary.tar.gz: has md5:.*, expected md5:c32a1d4a"):
        cifar10(root=tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            tar({name: records(name) for name in NAMES})[:-20_000],
            r"tar.gz: expected the complete archive of CIFAR-10, but",
        ),
        (tar({"data_batch_1": b""}), r"expected the complete archive .*data_batch_2.bin.* not found"),
        (b"", r"expected the complete archive of CIFAR-10, but"),
        (
            tar({name: records(name)[:-1] for name in NAMES}),
            r"tar.gz: expected a multiple of 3073 bytes in data_batch_1.bin, got 9218",
        ),
        (tar(dict.fromkeys(NAMES, b"")), r"tar.gz: expected a multiple of 3073 bytes in data_batch_1.bin, got 0"),
        (tar(dict.fromkeys(NAMES, b"\x0a" * 3073)), r"tar.gz, row 1: expected labels 0..9, got 10"),
    ],
    ids=["half a tar", "no member", "empty", "cut off", "empty batch", "label"],
)
def test_a_damaged_archive_is_named(stand_in, content, message):
    root = stand_in("cifar10", {TAR: content})
    with pytest.raises(DataError, match=message) as caught:
        cifar10(root=root)
    assert caught.value.path.endswith(TAR)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"data_batch_2__png": b""}, r"data_batch_2.png: expected a PNG sheet, but .*; remove it"),
        ({"data_batch_2__png": sheets()["data_batch_2.png"][:-3000]}, r"data_batch_2.png: expected a PNG sheet, but"),
        (
            {"data_batch_2__png": png(np.zeros((3, 1024), np.uint8))},
            r"RGB sheet of width 1024, got uint8 of shape \(3, 1024\)",
        ),
        ({"data_batch_2__png": png(np.zeros((3, 99, 3), np.uint8))}, r"of width 1024, got uint8 of shape \(3, 99, 3\)"),
        ({"train_lables__json": b"[1, 2"}, r"train_lables.json: expected a list of labels in JSON, but"),
        ({"train_lables__json": b"[1.5]"}, r"train_lables.json: expected a list of whole numbers, got float64"),
        ({"train_lables__json": b'["cat"]'}, r"train_lables.json: expected a list of whole numbers, got <U3"),
        ({"train_lables__json": b"[[1], [2, 3]]"}, r"train_lables.json: expected a list of labels in JSON, but"),
        ({"train_lables__json": b"[1, -1]"}, r"train_lables.json, row 2: expected labels 0..9, got -1"),
        (
            {"train_lables__json": b"[1, 2]"},
            r"train_lables.json: expected one label per image, got 2 labels for 15 images",
        ),
    ],
)
def test_a_damaged_sheet_is_named(stand_in, changed, message):
    root = stand_in("cifar10", sheets(**changed))
    with pytest.raises(DataError, match=message):
        cifar10(root=root)


def test_without_pillow_the_way_out_is_named(stand_in, monkeypatch):
    root = stand_in("cifar10", sheets())
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(
        MissingError, match=r"reading CIFAR-10's sheets needs the package PIL, .*'openradial\[images\]'"
    ):
        cifar10(root=root)


def test_a_split_that_does_not_exist_is_refused():
    with pytest.raises(OptionError, match="split must be one of 'train', 'test', got 'val'"):
        cifar10("val")
