"""The classifiers that ship, and drawings made like MNIST's images."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openradial.bundle import describe
from openradial.errors import DataError
from openradial.server.playground.app import STATIC
from openradial.server.playground.digits import CENTRE, MODELS, NAMES, digit_model, facts, like_mnist, predict_digit


def blot(h, w, top, left, tall, wide):
    ink = np.zeros((h, w), np.uint8)
    ink[top : top + tall, left : left + wide] = 255
    return ink


def centre_of_mass(image):
    """Row and column of the centre of mass, by a plain loop; a pixel's middle is at its number plus a half."""
    total = row = column = 0.0
    for i in range(28):
        for j in range(28):
            value = float(image[i, j])
            total += value
            row += value * (i + 0.5)
            column += value * (j + 0.5)
    return row / total, column / total


@given(
    tall=st.integers(8, 90),
    wide=st.integers(8, 90),
    top=st.integers(0, 20),
    left=st.integers(0, 20),
    seed=st.integers(0, 9),
)
def test_a_drawing_fills_a_box_of_20_and_has_its_mass_where_mnist_has_it(tall, wide, top, left, seed):
    ink = blot(120, 120, top, left, tall, wide)
    ink[top : top + tall, left : left + wide] -= np.random.default_rng(seed).integers(0, 200, (tall, wide), np.uint8)
    image = like_mnist(ink)
    rows, columns = np.flatnonzero(image.any(1)), np.flatnonzero(image.any(0))
    size = (rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1)
    assert max(size) == 20
    assert abs(min(size) - 20 * min(tall, wide) / max(tall, wide)) <= 1
    found = centre_of_mass(image)
    assert max(abs(found[0] - CENTRE), abs(found[1] - CENTRE)) <= 0.6


def test_where_a_drawing_was_made_does_not_matter():
    shape = np.triu(np.full((40, 40), 255, np.uint8))
    images = []
    for top, left in [(0, 0), (60, 10), (33, 60)]:
        ink = np.zeros((100, 100), np.uint8)
        ink[top : top + 40, left : left + 40] = shape
        images.append(like_mnist(ink))
    assert np.array_equal(images[0], images[1])
    assert np.array_equal(images[0], images[2])


def test_a_larger_drawing_gives_the_same_image():
    small = np.triu(np.full((40, 40), 255, np.uint8))
    large = np.kron(small, np.ones((3, 3), np.uint8))
    assert np.abs(like_mnist(small).astype(int) - like_mnist(large)).max() <= 64


def test_an_image_of_mnist_stays_nearly_as_it_is():
    digit = gallery()[7]
    moved = np.zeros((60, 60), np.uint8)
    moved[3:31, 22:50] = digit
    assert np.abs(like_mnist(moved).astype(int) - digit).mean() < 3


def test_an_empty_drawing_is_refused():
    with pytest.raises(DataError, match="the drawing is empty; draw something first"):
        like_mnist(np.zeros((5, 5), np.uint8))


def gallery():
    """The pictures of the gallery, ten digits and six pieces of clothing."""
    pillow = pytest.importorskip("PIL.Image")
    strip = np.asarray(pillow.open(STATIC / "gallery.png"))
    return [strip[:, 28 * place : 28 * (place + 1)] for place in range(strip.shape[1] // 28)]


@pytest.mark.parametrize("name", NAMES)
def test_the_prediction_is_that_of_the_bundle(name):
    bundle = digit_model(name)
    for image in gallery():
        found, row = predict_digit(bundle, image), bundle.predict([image[:, :, None]])[0].as_dict()
        assert found["label"] == row["label"]
        assert str(found["nearest"]) == row["nearest"]
        assert found["p_value"] == pytest.approx(row["p_value"])
        assert found["probabilities"][found["nearest"]] == pytest.approx(row["probability"], rel=1e-5)
        distance = None if found["distances"] is None else pytest.approx(found["distances"][found["nearest"]], rel=1e-5)
        assert row["distance"] == distance


def test_the_radial_classifier_names_the_gallerys_digits_and_doubts_its_clothes_more_than_softmax_does():
    found = {name: [predict_digit(digit_model(name), image) for image in gallery()] for name in NAMES}
    assert [each["nearest"] for each in found["radial"][:10]] == list(range(10))
    rejected = {name: sum(each["label"] == "unknown" for each in found[name][10:]) for name in NAMES}
    assert rejected == {"softmax": 4, "radial": 5}  # of 6, which nobody selected: the first of each class


@pytest.mark.parametrize("name", NAMES)
def test_what_was_measured_at_training_is_kept(name):
    measured = facts()[name]
    assert measured["accuracy"] > 0.98
    assert measured["false_reject_rate"] < 0.08
    assert 0.5 < measured["fashion_mnist_auroc"] <= 1


def test_both_classifiers_were_trained_alike():
    records = [describe(MODELS / name).metadata for name in NAMES]
    assert records[0]["training"] == records[1]["training"]
    assert records[0]["data"] == records[1]["data"] == "mnist"
