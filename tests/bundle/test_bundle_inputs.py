import io

import numpy as np
import pytest
import torch
from made_bundles import ENCODER, image_bundle, table_rows
from PIL import Image

from openradial.bundle import ImageInputs, PointInputs, SequenceInputs, TableInputs, TextInputs
from openradial.data import Normalise, read_table, scan
from openradial.errors import DataError, OptionError


@pytest.fixture(params=[1, 3], ids=["grey", "RGB"])
def picture(request, tmp_path):
    """Pixels of a picture of 20 x 14, and the same picture as a file in a folder of one class."""
    channels = request.param
    random = np.random.default_rng(0)
    array = random.integers(256, size=(14, 20, 3) if channels == 3 else (14, 20), dtype=np.uint8)
    (tmp_path / "pictures" / "cat").mkdir(parents=True)
    path = tmp_path / "pictures" / "cat" / "a.png"
    Image.fromarray(array).save(path)
    return array, path, channels


@pytest.mark.parametrize("crop", [1.0, 0.7])
def test_files_bytes_and_arrays_become_the_pixels_that_training_sees(picture, crop):
    array, path, channels = picture
    inputs = ImageInputs(6, channels, crop=crop)
    expected = scan(path.parents[1]).load(6, channels=channels, crop=crop, workers=0).inputs
    for raw in (path, str(path), path.read_bytes(), array, [path], [array], [path.read_bytes()]):
        assert torch.equal(inputs.prepare(raw), expected)
    assert len(inputs.prepare([path, array, str(path)])) == 3


def test_pixels_are_normalised_as_in_training():
    inputs = ImageInputs(4, 3, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    x = torch.randint(256, (5, 3, 4, 4), dtype=torch.uint8)
    assert torch.equal(inputs.transform(x), Normalise((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))(x))


def test_two_batches_do_not_share_memory():
    inputs = ImageInputs(2, 1)
    first = inputs.transform(torch.zeros(1, 1, 2, 2, dtype=torch.uint8))
    inputs.transform(torch.full((1, 1, 2, 2), 255, dtype=torch.uint8))
    assert first.sum() == 0


def test_grey_arrays_of_the_right_size_are_taken_as_they_are(monkeypatch):
    monkeypatch.setattr("openradial.bundle.images._encoded", None)  # the way over a file takes half of a request's time
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8)
    for raw in (grey, grey[:, :, None]):
        np.testing.assert_array_equal(ImageInputs(8, 1).prepare(raw)[0, 0], grey)


def test_several_arrays_may_be_one():
    images = np.zeros((5, 8, 8, 1), np.uint8)
    assert image_bundle().prepare(images).shape == (5, 1, 8, 8)


def test_a_transparent_picture_lies_on_white():
    clear = np.zeros((8, 8, 4), np.uint8)
    assert ImageInputs(8, 3).prepare(clear).unique().tolist() == [255]


BROKEN = {
    "no file": (
        lambda folder: folder / "none.png",
        r"none\.png: the image cannot be read \(No such file or directory\); replace",
    ),
    "no image": (lambda folder: b"hello", r"the image is not in JPEG, PNG, WebP, BMP or GIF format; replace"),
    "no byte": (lambda folder: b"", r"the image is not in JPEG, PNG, WebP, BMP or GIF format"),
    "floats": (
        lambda folder: np.zeros((8, 8)),
        r"an array of pixels must be uint8 of shape \(h, w\) or .* got float64",
    ),
    "channels": (
        lambda folder: np.zeros((8, 8, 2), np.uint8),
        r"with 1, 3 or 4 channels, got uint8 of shape \(8, 8, 2",
    ),
    "no pixels": (
        lambda folder: np.zeros((0, 8), np.uint8),
        r"an image must have pixels, got an array of shape \(0, 8",
    ),
}


@pytest.mark.parametrize(("raw", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_image_is_named(raw, message, tmp_path):
    with pytest.raises(DataError, match=message):
        image_bundle().prepare([raw(tmp_path)])


def test_half_a_png_is_damaged():
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(256, size=(30, 30), dtype=np.uint8)).save(stream, "PNG")
    with pytest.raises(DataError, match=r"^the image is damaged"):
        image_bundle().predict(stream.getvalue()[:200])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size must be a whole number of at least 1"),
        ({"size": 8, "channels": 2}, "channels must be one of '1', '3'"),
        ({"size": 8, "crop": 0.0}, "crop must be the share"),
        ({"size": 8, "mean": (1.0, 2.0)}, r"mean must be 1 or 3 finite numbers, got \(1.0, 2.0\)"),
        ({"size": 8, "mean": (np.nan,)}, "mean must be 1 or 3 finite numbers"),
        ({"size": 8, "std": (0.0,)}, "std must be a finite number above 0"),
    ],
)
def test_settings_of_images_are_checked(options, message):
    with pytest.raises(OptionError, match=message):
        ImageInputs(**options)


def test_rows_of_a_table_are_encoded_as_files_are(tmp_path):
    rows = table_rows(9)
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["length,colour", *(f"{row['length']!r},{row['colour']}" for row in rows)]))
    expected = ENCODER.apply(ENCODER.read(path)).inputs
    inputs = TableInputs(ENCODER)
    assert torch.equal(inputs.prepare(rows), expected)
    assert torch.equal(inputs.prepare(ENCODER.read(path)), expected)
    assert torch.equal(inputs.prepare([{**row, "length": str(row["length"]), "name": "x"} for row in rows]), expected)
    assert torch.equal(inputs.prepare(rows[0]), expected[:1])


def test_a_labelled_table_can_be_predicted(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("length,colour,kind\n1.0,red,cat\n2.0,blue,whale\n")
    assert TableInputs(ENCODER).prepare(read_table(path, label="kind")).shape == (2, 3)


@pytest.mark.parametrize("gap", [None, "", " NA ", float("nan"), np.float32("nan")])
def test_gaps_are_filled_as_in_training(gap):
    found = TableInputs(ENCODER).prepare([{"length": gap, "colour": gap}])
    np.testing.assert_allclose(found, [[0.0, 0.25, 0.75]])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"lenght": 1.0, "colour": "red"},
            "row 2: the row has no column 'length'; its columns are lenght, colour; did you mean",
        ),
        ({"length": "long", "colour": "red"}, "row 2, column 'length': expected a number, got 'long'; correct it"),
        ({"length": [1], "colour": "red"}, r"row 2, column 'length': expected a number, got \[1\]"),
        ({"length": np.inf, "colour": "red"}, "row 2, column 'length': expected a finite number, got inf"),
        ({"length": 1e300, "colour": "red"}, "row 2, column 'length': 1e\\+300 is too large for float32"),
        ({"length": 1.0, "colour": "green"}, "row 2, column 'colour': the training table does not have 'green'"),
        ([1.0, "red"], "row 2: a row must be a mapping from column to value, got list"),
    ],
)
def test_a_broken_row_is_named(row, message):
    with pytest.raises(DataError, match=message):
        TableInputs(ENCODER).prepare([{"length": 1.0, "colour": "red"}, row])


@pytest.mark.parametrize("raw", [[[1.0, 2.0, 3.0]], [1.0, 2.0], [["a", "b"]], [[1.0], [1.0, 2.0]]])
def test_points_of_another_shape_are_refused(raw):
    with pytest.raises(DataError, match="points must"):
        PointInputs(2).prepare(raw)


def test_sequences_are_padded_and_standardised():
    inputs = SequenceInputs(2, mean=(1.0, 0.0), std=(2.0, 1.0))
    x = inputs.prepare([[[1, 2], [3, 4]], [[5, 6]]])
    assert x.shape == (2, 2, 2)
    np.testing.assert_array_equal(inputs.transform(x), [[[0, 2], [1, 4]], [[2, 6], [np.nan, np.nan]]])


@pytest.mark.parametrize("raw", [[[1.0, 2.0]], [[]], [[["a", "b"]]]])
def test_a_broken_sequence_is_refused(raw):
    with pytest.raises(DataError, match=r"^a sequence must"):
        SequenceInputs(2).prepare(raw)


def test_settings_of_sequences_are_checked():
    with pytest.raises(OptionError, match=r"std must be 1 or 2 finite numbers \(std above 0\), got \(0.0,\)"):
        SequenceInputs(2, std=(0.0,))


def test_a_text_is_text():
    inputs = TextInputs(("profit",))
    assert inputs.prepare("Profit!").tolist() == [[2]]
    with pytest.raises(DataError, match=r"^a text must be a str, got bytes; decode it first$"):
        inputs.prepare([b"profit"])
    with pytest.raises(DataError, match=r"^tokens must lie in 0..2, the words of this vocabulary, got 7..7; encode"):
        inputs.check(torch.tensor([[7]]))
