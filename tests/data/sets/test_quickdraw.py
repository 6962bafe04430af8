import gzip
import io
import json
import tarfile

import numpy as np
import pytest
import torch

from openradial.data.sets.quickdraw import FILE, quickdraw
from openradial.errors import DataError, OptionError

RANDOM = np.random.default_rng(0)
DRAWINGS = {name: RANDOM.random((10, 784)).round(3) for name in ("zebra", "The Mona Lisa", "ant")}


def ndjson(drawings):
    return gzip.compress("\n".join(json.dumps(drawing) for drawing in np.asarray(drawings).tolist()).encode())


def tgz(members):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, content in {"package/package.json": b"{}", **members}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


def package(drawings):
    return tgz({f"package/src/drawings/{name}.ndjson.gz": content for name, content in drawings.items()})


@pytest.fixture(scope="module")
def real(fetched):
    return {split: fetched(quickdraw, split) for split in ("train", "test")}


def test_the_real_set_has_345_classes_of_100_drawings(real):
    train, test = real["train"], real["test"]
    assert train.classes == test.classes
    assert len(train.classes) == 345
    assert train.classes[:4] == ("The Eiffel Tower", "The Great Wall of China", "The Mona Lisa", "aircraft carrier")
    assert train.counts().tolist() == [80] * 345
    assert test.counts().tolist() == [20] * 345


def test_the_real_drawings_are_bright_ink_on_black(real):
    images = torch.cat([real["train"].inputs, real["test"].inputs])
    assert images.shape == (34_500, 1, 28, 28)
    assert images.dtype == torch.uint8
    assert (images.min(), images.max()) == (0, 255)
    assert (images.double() / 255).mean().item() == pytest.approx(0.1497, abs=5e-5)
    assert (images == 0).float().mean() > 0.7


def test_real_bridges_are_wide_and_real_ladders_are_high(real):
    for name, is_wide in (("bridge", True), ("ladder", False)):
        examples = real["test"].select(real["test"].labels == real["test"].classes.index(name))
        ink = examples.inputs[:, 0] > 0
        height, width = ink.any(2).sum(1).float().mean(), ink.any(1).sum(1).float().mean()
        assert (width > 1.3 * height) == is_wide
        assert (height > 1.3 * width) != is_wide


def test_drawings_are_read_in_order_with_the_first_four_fifths_for_training(stand_in):
    root = stand_in("quickdraw", {FILE: package({name: ndjson(found) for name, found in DRAWINGS.items()})})
    train, test = quickdraw("train", root=root), quickdraw("test", root=root)
    assert train.classes == ("The Mona Lisa", "ant", "zebra")
    assert train.labels.tolist() == [0] * 8 + [1] * 8 + [2] * 8
    expected = np.rint(DRAWINGS["ant"] * 255).reshape(10, 1, 28, 28)
    assert (abs(train.inputs[8:16].numpy() - expected[:8]) <= 1).all()  # float32 may round a half the other way
    assert (abs(test.inputs[2:4].numpy() - expected[8:]) <= 1).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            package({"ant": ndjson(DRAWINGS["ant"])})[:-500],
            r"tgz: expected a tar archive, but .*; remove it to get",
        ),
        (b"nothing packed", r"tgz: expected a tar archive, but"),
        (tgz({}), r"tgz: expected drawings, \*.ndjson.gz, got none"),
        (
            package({"ant": ndjson(DRAWINGS["ant"])[:-20]}),
            r"tgz/ant.ndjson.gz: expected one list of 784 numbers per line",
        ),
        (
            package({"ant": gzip.compress(b"[1, 2\n[3]")}),
            r"tgz/ant.ndjson.gz: expected one list of 784 numbers per line",
        ),
        (package({"ant": ndjson(np.zeros((5, 700)))}), r"drawings of 784 numbers in 0..1, got shape \(4, 700\)"),
        (package({"ant": ndjson(np.full((5, 784), 9))}), r"in 0..1, got shape \(4, 784\) and numbers in 9.0..9.0"),
        (package({"ant": gzip.compress(b"")}), r"drawings of 784 numbers in 0..1, got shape \(0,\)"),
    ],
    ids=["half a tar", "no tar", "no drawings", "cut off", "no json", "size", "range", "empty"],
)
def test_a_damaged_archive_is_named(stand_in, content, message):
    root = stand_in("quickdraw", {FILE: content})
    with pytest.raises(DataError, match=message) as caught:
        quickdraw("train", root=root)
    assert FILE in caught.value.path


def test_a_split_that_does_not_exist_is_refused():
    with pytest.raises(OptionError, match="split must be one of 'train', 'test', got 'val'"):
        quickdraw("val")
