import numpy as np
import pytest
import torch

from openradial.data.examples import Examples
from openradial.data.image_statistics import Look
from openradial.data.readers.folder import ImageFolder
from openradial.data.sources import chosen, decoded, find, places
from openradial.errors import DataError, OptionError
from tests.fitting.fit_data import write_images, write_table


def test_a_folder_of_images_is_listed_and_looked_at(tmp_path):
    found = find(str(write_images(tmp_path / "animals", each=5)))
    assert (found.kind, found.classes, len(found.data), found.test) == ("images", ("bar", "dot", "ring"), 15, None)
    assert found.seen == Look(12, 1)


def test_parts_for_training_and_testing_are_told_apart(tmp_path):
    write_images(tmp_path / "set" / "train", each=4, grey=False)
    write_images(tmp_path / "set" / "val", each=2)
    found = find(str(tmp_path / "set"))
    assert (len(found.data), len(found.test), found.seen.channels) == (12, 6, 3)


def test_broken_images_are_left_to_those_who_decode_them(tmp_path):
    root = write_images(tmp_path / "animals", each=3)
    (root / "bar" / "bad.png").write_bytes(b"\x89PNG broken")
    found = find(str(root))
    assert found.seen == Look(12, 1)
    with pytest.raises(DataError, match=r"1 of 10 images in .* are broken"):
        decoded(found.data, 12, 1, skip_broken=False)
    assert len(decoded(found.data, 12, 1, skip_broken=True)) == 9


def test_images_that_would_fill_the_memory_stay_files(tmp_path):
    folder = find(str(write_images(tmp_path / "animals", each=3))).data
    assert isinstance(decoded(folder, 12, 1, False), Examples)
    assert isinstance(decoded(folder, 12, 1, False, memory=0.0), ImageFolder)
    (tmp_path / "animals" / "bar" / "000.png").write_bytes(b"no image")
    assert len(decoded(folder, 12, 1, True, memory=0.0)) == 8


def test_a_table_has_a_label_column(tmp_path):
    found = find(str(write_table(tmp_path / "t.csv")), "kind")
    assert (found.kind, found.classes, found.label) == ("table", ("c0", "c1", "c2"), "kind")
    assert list(found.data.columns) == ["length", "width", "colour"]


@pytest.mark.parametrize(
    ("shape", "channels"), [((6, 8, 8), 1), ((6, 8, 8, 3), 3), ((6, 3, 8, 8), 3), ((6, 1, 8, 8), 1), ((6, 8, 8, 1), 1)]
)
def test_images_of_an_npz_file_come_with_channels_first(tmp_path, shape, channels):
    np.savez(tmp_path / "x.npz", x=np.arange(np.prod(shape)).reshape(shape).astype(np.uint8), y=list("aabbab"))
    found = find(str(tmp_path / "x.npz"))
    assert found.data.inputs.shape == (6, channels, 8, 8)
    assert (found.classes, found.data.labels.tolist(), found.label) == (("a", "b"), [0, 0, 1, 1, 0, 1], "y")


def test_channels_of_an_npz_file_keep_their_pixels(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 4, 3), np.uint8)
    np.savez(tmp_path / "x.npz", x=pixels, labels=[7, 9])
    found = find(str(tmp_path / "x.npz"))
    assert torch.equal(found.data.inputs, torch.from_numpy(pixels).permute(0, 3, 1, 2))
    assert found.classes == ("7", "9")


def test_numbers_of_an_npz_file_are_a_table(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros((4, 2)), y=np.array([0, 1, 0, 1]))
    found = find(str(tmp_path / "x.npz"), "y")
    assert (found.kind, list(found.data.columns)) == ("table", ["x0", "x1"])


def test_a_set_by_name_has_its_own_test_part():
    found = find("digits")
    assert (found.kind, len(found.data), len(found.test)) == ("images", 1442, 355)


def test_chosen_examples_have_the_labels_they_are_given(tmp_path):
    folder = find(str(write_images(tmp_path / "animals", each=2))).data
    table = find(str(write_table(tmp_path / "t.csv", rows=6)), "kind").data
    for data in (folder, table, find("digits").data):
        part = Examples(torch.tensor([5, 0]), torch.tensor([1, 0]), ("p", "q"))
        few = chosen(data, part)
        assert (len(few), few.labels.tolist(), few.classes) == (2, [1, 0], ("p", "q"))
        assert torch.equal(places(data).labels, data.labels)
    assert [path[-11:] for path in chosen(folder, part).paths] == ["ing/001.png", "bar/000.png"]


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
            "is a folder: its folders are the classes",
        ),
        (lambda root: root / "none" / "x", None, DataError, "there is no folder or file"),
        (lambda root: "digts", None, OptionError, "did you mean 'digits'"),
        (
            lambda root: "animals",
            None,
            OptionError,
            "no file or folder animals, and there is no data set 'animals'",
        ),
        (lambda root: "digits", "kind", OptionError, "digits is a set with labels of its own"),
    ],
)
def test_data_that_cannot_be_found_are_refused(tmp_path, make, label, error, message):
    with pytest.raises(error, match=message):
        find(str(make(tmp_path)), label)


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "a.zip").touch()
    with pytest.raises(OptionError, match=r"data must be a folder of images, a table \(.*\) or the name of a set"):
        find(str(tmp_path / "a.zip"))


@pytest.mark.parametrize(
    ("arrays", "label", "error", "message"),
    [
        ({"x": np.zeros((3, 8, 9), np.uint8), "y": [0, 1, 1]}, None, DataError, "must hold square images"),
        (
            {"x": np.zeros((3, 8, 8), np.uint8)},
            None,
            OptionError,
            "in an array y or label or labels or target, got none",
        ),
        ({"x": np.zeros((3, 8, 8), np.uint8), "kind": [1, 2, 3]}, "knd", OptionError, "did you mean 'kind'"),
        ({"x": np.zeros((3, 8, 8), np.uint8), "y": [0, 1]}, None, DataError, "one whole number or word for each of 3"),
        (
            {"x": np.zeros((3, 8, 8), np.uint8), "z": np.zeros((3, 8, 8), np.uint8)},
            None,
            DataError,
            "one array of images",
        ),
    ],
)
def test_npz_images_that_are_not_whole_are_refused(tmp_path, arrays, label, error, message):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(error, match=message):
        find(str(tmp_path / "x.npz"), label)
