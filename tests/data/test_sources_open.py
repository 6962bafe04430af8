"""What opening a source gives: kind, parts, classes, and errors."""

import numpy as np
import pytest
import torch

from openradial.data import sources
from openradial.data.examples import Examples
from openradial.data.readers.folder import ImageFolder
from openradial.data.readers.images import ImageStatistics
from openradial.data.sources import indices, load_images, subset
from openradial.errors import DataError, OptionError
from tests.fitting.fit_data import write_images, write_table


def test_a_folder_of_images_is_listed_and_looked_at(tmp_path):
    source = sources.open(str(write_images(tmp_path / "animals", each=5)))
    assert (source.kind, source.classes, len(source.train), source.test) == ("images", ("bar", "dot", "ring"), 15, None)
    assert source.image_statistics == ImageStatistics(12, 1)


def test_parts_for_training_and_testing_are_told_apart(tmp_path):
    write_images(tmp_path / "set" / "train", each=4, grey=False)
    write_images(tmp_path / "set" / "val", each=2)
    source = sources.open(str(tmp_path / "set"))
    assert (len(source.train), len(source.test), source.image_statistics.channels) == (12, 6, 3)


def test_broken_images_are_left_to_those_who_decode_them(tmp_path):
    root = write_images(tmp_path / "animals", each=3)
    (root / "bar" / "bad.png").write_bytes(b"\x89PNG broken")
    source = sources.open(str(root))
    assert source.image_statistics == ImageStatistics(12, 1)
    with pytest.raises(DataError, match=r"animals: 1 of 10 images are broken"):
        load_images(source.train, 12, 1, skip_broken=False)
    assert len(load_images(source.train, 12, 1, skip_broken=True)) == 9


def test_images_that_would_fill_the_memory_stay_files(tmp_path):
    folder = sources.open(str(write_images(tmp_path / "animals", each=3))).train
    assert isinstance(load_images(folder, 12, 1, False), Examples)
    assert isinstance(load_images(folder, 12, 1, False, memory=0.0), ImageFolder)
    (tmp_path / "animals" / "bar" / "000.png").write_bytes(b"no image")
    assert len(load_images(folder, 12, 1, True, memory=0.0)) == 8


def test_a_table_has_a_label_column(tmp_path):
    source = sources.open(str(write_table(tmp_path / "t.csv")), label="kind")
    assert (source.kind, source.classes, source.label) == ("table", ("c0", "c1", "c2"), "kind")
    assert list(source.train.columns) == ["length", "width", "colour"]


@pytest.mark.parametrize(
    ("shape", "channels"), [((6, 8, 8), 1), ((6, 8, 8, 3), 3), ((6, 3, 8, 8), 3), ((6, 1, 8, 8), 1), ((6, 8, 8, 1), 1)]
)
def test_images_of_an_npz_file_come_with_channels_first(tmp_path, shape, channels):
    np.savez(tmp_path / "x.npz", x=np.arange(np.prod(shape)).reshape(shape).astype(np.uint8), y=list("aabbab"))
    source = sources.open(str(tmp_path / "x.npz"))
    assert source.train.inputs.shape == (6, channels, 8, 8)
    assert (source.classes, source.train.labels.tolist(), source.label) == (("a", "b"), [0, 0, 1, 1, 0, 1], "y")


def test_channels_of_an_npz_file_keep_their_pixels(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 4, 3), np.uint8)
    np.savez(tmp_path / "x.npz", x=pixels, labels=[7, 9])
    source = sources.open(str(tmp_path / "x.npz"))
    assert torch.equal(source.train.inputs, torch.from_numpy(pixels).permute(0, 3, 1, 2))
    assert source.classes == ("7", "9")


def test_numbers_of_an_npz_file_are_a_table(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros((4, 2)), y=np.array([0, 1, 0, 1]))
    source = sources.open(str(tmp_path / "x.npz"), label="y")
    assert (source.kind, list(source.train.columns)) == ("table", ["x0", "x1"])


def test_a_set_by_name_has_its_own_test_part():
    source = sources.open("digits")
    assert (source.kind, len(source.train), len(source.test)) == ("images", 1442, 355)


def test_chosen_examples_have_the_labels_they_are_given(tmp_path):
    folder = sources.open(str(write_images(tmp_path / "animals", each=2))).train
    table = sources.open(str(write_table(tmp_path / "t.csv", rows=6)), label="kind").train
    for data in (folder, table, sources.open("digits").train):
        part = Examples(torch.tensor([5, 0]), torch.tensor([1, 0]), ("p", "q"))
        few = subset(data, part)
        assert (len(few), few.labels.tolist(), few.classes) == (2, [1, 0], ("p", "q"))
        assert torch.equal(indices(data).labels, data.labels)
    assert [path[-11:] for path in subset(folder, part).paths] == ["ing/001.png", "bar/000.png"]


@pytest.mark.parametrize(
    ("make", "label", "error", "message"),
    [
        (
            lambda root: write_table(root / "t.csv"),
            None,
            OptionError,
            r"needs the column .* name it with label \(--label\)",
        ),
        (
            lambda root: write_images(root / "a", each=1),
            "kind",
            OptionError,
            "is a folder: its sub-folders are the classes",
        ),
        (lambda root: root / "none" / "x", None, DataError, "there is no such file or folder"),
        (lambda root: "digts", None, OptionError, "did you mean 'digits'"),
        (
            lambda root: "animals",
            None,
            OptionError,
            "no file or folder animals, and there is no data set 'animals'",
        ),
        (lambda root: "digits", "kind", OptionError, "digits is a data set that has its labels"),
    ],
)
def test_data_that_cannot_be_source_are_refused(tmp_path, make, label, error, message):
    with pytest.raises(error, match=message):
        sources.open(make(tmp_path), label=label)


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "a.zip").touch()
    with pytest.raises(OptionError, match=r"data must be a folder of images, a table \(.*\) or the name of a data set"):
        sources.open(str(tmp_path / "a.zip"))


@pytest.mark.parametrize(
    ("arrays", "label", "error", "message"),
    [
        ({"x": np.zeros((3, 8, 9), np.uint8), "y": [0, 1, 1]}, None, DataError, "expected square images"),
        (
            {"x": np.zeros((3, 8, 8), np.uint8)},
            None,
            OptionError,
            "in an array y or label or labels or target, got none",
        ),
        ({"x": np.zeros((3, 8, 8), np.uint8), "kind": [1, 2, 3]}, "knd", OptionError, "did you mean 'kind'"),
        ({"x": np.zeros((3, 8, 8), np.uint8), "y": [0, 1]}, None, DataError, "expected one label for each of 3 images"),
        (
            {"x": np.zeros((3, 8, 8), np.uint8), "z": np.zeros((3, 8, 8), np.uint8)},
            None,
            DataError,
            "expected one array of images",
        ),
    ],
)
def test_npz_images_that_are_not_whole_are_refused(tmp_path, arrays, label, error, message):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(error, match=message):
        sources.open(tmp_path / "x.npz", label=label)
