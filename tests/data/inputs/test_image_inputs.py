import io

import numpy as np
import pytest
import torch
from made_bundles import image_bundle
from PIL import Image

from openradial.data import Normalise, scan
from openradial.data.inputs import ImageInputs
from openradial.errors import DataError, OptionError

INPUTS = ImageInputs(8, 1, mean=(0.4,), std=(0.25,))


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
    monkeypatch.setattr("openradial.data.inputs.images._encoded", None)  # decoding a file takes half of the time
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8)
    for raw in (grey, grey[:, :, None]):
        np.testing.assert_array_equal(ImageInputs(8, 1).prepare(raw)[0, 0], grey)


def test_several_arrays_may_be_one():
    images = np.zeros((5, 8, 8, 1), np.uint8)
    assert INPUTS.prepare(images).shape == (5, 1, 8, 8)


def test_a_transparent_picture_lies_on_white():
    clear = np.zeros((8, 8, 4), np.uint8)
    assert ImageInputs(8, 3).prepare(clear).unique().tolist() == [255]


BROKEN = {
    "no file": (
        lambda folder: folder / "none.png",
        r"none\.png: the image cannot be read \(No such file or directory\); replace",
    ),
    "no image": (
        lambda folder: b"hello",
        r"the image is not in a format that Pillow reads; replace it or leave",
    ),
    "no byte": (lambda folder: b"", r"the image is not in a format that Pillow reads"),
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
        INPUTS.prepare([raw(tmp_path)])


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
        ({"size": 8, "mean": (1.0, 2.0)}, r"mean must be 1 or 3 finite numbers .*, got \(1.0, 2.0\)"),
        ({"size": 8, "mean": (np.nan,)}, "mean must be 1 or 3 finite numbers"),
        ({"size": 8, "std": (0.0,)}, r"std must be 1 or 3 finite numbers \(std above 0\), got \(0.0,\)"),
    ],
)
def test_settings_of_images_are_checked(options, message):
    with pytest.raises(OptionError, match=message):
        ImageInputs(**options)
